# The two commands of the README are `make demo` and `make test`. The others are longer looks.
PYTHON ?= python3
.PHONY: demo test test-quick test-all docs dist storm reliability cluster fuzz mutants bench scale clean

# Builds the Python package, installs it into .venv, and runs synthetic brains through a ring for a minute.
# `make demo WHEEL=dist/NAME.whl` installs a wheel instead, and needs no compiler.
demo:
	WHEEL="$(WHEEL)" scripts/demo.sh

# Rust, Python, documentation. What cannot run here is named, and counted as skipped.
test:
	scripts/test.sh

# A part of it for daily work: it needs neither network nor root.
test-quick:
	scripts/test.sh quick

# Everything that is tested, at full length: two hours.
test-all: test reliability storm fuzz

# Builds the documentation as a site: open target/site/index.html.
docs:
	scripts/docs.sh

# Builds the packages into dist/ (wheels, source, command, crates) and tries each: `make dist PARTS="sdist wheel"` for some.
dist:
	scripts/dist.sh $(PARTS)

# Ten minutes of killing and stopping everybody at random, on full disks, while the index is lost; ten more in which owners
# are stopped for longer than manifests are kept; then five with the index in MongoDB.
storm:
	scripts/mongodb.sh java
	RINGREEL_STORM_SECONDS=600 cargo test --release --test storm -- --nocapture
	RINGREEL_STORM_SECONDS=600 cargo test --release --package ringreel-cli --features short-history --test storm -- --nocapture
	RINGREEL_STORM_SECONDS=300 scripts/with_mongodb.sh cargo test --release --test storm -- --nocapture

# All that `make test` has a short slice of, as docs/internals/reliability.md has the figures of: an hour.
reliability:
	cargo run --release --package ringreel-model
	RINGREEL_CRASH_IMAGES=120000 cargo test --release --test crash_images -- --nocapture
	RINGREEL_ALL_FAULTS=1 cargo test --release --test faults -- --nocapture
	RINGREEL_ALL_CALLS=1 cargo test --release --test syscalls -- --nocapture
	RINGREEL_POWER_CUTS=20 cargo test --release --test disks -- --nocapture
	RINGREEL_HOSTILE=1000 cargo test --release --test hostile -- --nocapture

# Clusters on this machine (root), ten minutes of storm each: GlusterFS with SLURM, MooseFS and CephFS on nodes that are
# namespaces, NFS 4.2 and NFS 3 on virtual machines. More than three hours.
cluster:
	scripts/cluster.sh --fs all --seconds 600

# Ten minutes of fuzzing for each decoder; `make test` has 10 seconds of it.
fuzz:
	scripts/fuzz.sh 600

# Whether the tests would notice a mistake, in a sample of both format/ and the ring: hours.
mutants:
	scripts/mutants.sh

# ringreel beside other formats, write(2) and a map, from Rust and from Python: docs/internals/benchmarks.md is made anew. Half an
# hour, on a machine that has nothing else to do; BENCH="--quick" is for a look. (Others: `cargo bench` has swaps, the codec
# and `ringreel verify`; benches/stream.py has waits; benches/dataloader.py has torch.)
bench:
	benches/side_by_side/setup.sh
	.venv-bench/bin/python benches/side_by_side $(or $(BENCH),--docs)

# The ring as a system: flow, swaps, idle roles, operations. Half an hour; docs/internals/scale.md is made anew.
scale:
	$(PYTHON) benches/system.py

clean:
	rm -rf .venv .venv-test .venv-torch .venv-mxnet .venv-bench .venv-bench-torch .venv-dist .venv-docs .venv-lint .venv-matrix dist target
