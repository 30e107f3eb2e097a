# The two commands of the README are `make demo` and `make test`. The others are longer looks.
PYTHON ?= python3
.PHONY: demo test kill fuzz bench clean

# Builds everything, installs it into .venv, and runs synthetic brains through a ring.
demo:
	scripts/install.sh
	.venv/bin/pip install --quiet -r examples/brain/requirements.txt
	.venv/bin/python examples/brain/run.py

# Rust, Python, documentation. What cannot run here is named, and counted as skipped.
test:
	scripts/test.sh

# A minute of killing generators, the manager and readers at random.
kill:
	RINGREEL_KILL_SECONDS=60 cargo test --release --test kill -- --nocapture

# Ten minutes of fuzzing for each decoder; `make test` has 10 seconds of it.
fuzz:
	scripts/fuzz.sh 600

# How long a swap takes, and what reading costs, each against a measure in the same run.
bench:
	cargo bench
	.venv/bin/python benches/stream.py
	[ ! -x .venv-torch/bin/python ] || .venv-torch/bin/python benches/dataloader.py

clean:
	rm -rf .venv .venv-torch .venv-mxnet target
