# `make demo` and `make test` are in the README. The other targets are longer tests and measurements.
PYTHON ?= python3
.PHONY: demo test test-quick test-all docs dist storm reliability cluster fuzz mutants bench scale clean

# Builds the Python package, installs it into .venv, and runs synthetic brains through a ring for a minute.
# `make demo WHEEL=dist/NAME.whl` installs a wheel instead, and needs no compiler.
demo:
	WHEEL="$(WHEEL)" scripts/demo.sh

# Tests Rust, Python and the documentation. Tests that cannot run here are named, and counted as skipped.
test:
	scripts/test.sh

# A subset for daily work; needs neither network nor root.
test-quick:
	scripts/test.sh quick

# All tests at full length: two hours.
test-all: reliability storm fuzz
	scripts/test.sh all

# Builds the documentation as a site: open target/site/index.html.
docs:
	scripts/docs.sh

# Builds the packages into dist/ (wheels, source, command, crates) and tries each: `make dist PARTS="sdist wheel"`.
dist:
	scripts/dist.sh $(PARTS)

# Ten minutes of killing and stopping processes at random, with full disks and a lost index; ten more in which owners
# are stopped for longer than manifests are kept; then five with the index in MongoDB.
storm:
	scripts/mongodb.sh java
	RINGREEL_STORM_SECONDS=600 cargo test --release --test storm -- --nocapture
	RINGREEL_STORM_SECONDS=600 cargo test --release --package ringreel-cli --features short-history --test storm -- --nocapture
	RINGREEL_STORM_SECONDS=300 scripts/with_mongodb.sh cargo test --release --test storm -- --nocapture

# The full length of the tests that `make test` runs briefly (figures: docs/internals/reliability.md): an hour.
reliability:
	cargo run --release --package ringreel-model
	RINGREEL_CRASH_IMAGES=120000 cargo test --release --test crash_images -- --nocapture
	RINGREEL_ALL_FAULTS=1 cargo test --release --test faults -- --nocapture
	RINGREEL_ALL_CALLS=1 cargo test --release --test syscalls -- --nocapture
	RINGREEL_POWER_CUTS=20 cargo test --release --test disks -- --nocapture
	RINGREEL_HOSTILE=1000 cargo test --release --test hostile -- --nocapture

# Clusters on this machine (needs root), a storm of ten minutes each: GlusterFS with SLURM, MooseFS and CephFS on nodes
# that are namespaces, NFS 4.2 and NFS 3 on virtual machines. More than three hours.
cluster:
	scripts/cluster.sh --fs all --seconds 600

# Ten minutes of fuzzing for each decoder; `make test` runs 3 seconds.
fuzz:
	scripts/fuzz.sh 600

# Mutation tests: whether the tests notice mistakes in a sample of format/ and the ring. Hours.
mutants:
	scripts/mutants.sh

# Compares ringreel with other formats, write(2) and a map, from Rust and from Python, and rewrites
# docs/internals/benchmarks.md. Half an hour on an otherwise idle machine; BENCH="--quick" for a short run.
# (`cargo bench` measures swaps, the codec and `ringreel verify`; benches/stream.py waits; benches/dataloader.py torch.)
bench:
	benches/side_by_side/setup.sh
	.venv-bench/bin/python benches/side_by_side $(or $(BENCH),--docs)

# Measures the whole system: flow, swaps, idle roles, operations. Half an hour; rewrites docs/internals/scale.md.
scale:
	$(PYTHON) benches/system.py

clean:
	rm -rf .venv .venv-test .venv-torch .venv-mxnet .venv-bench .venv-bench-torch .venv-dist .venv-docs .venv-lint .venv-matrix .venv-3.* dist target
