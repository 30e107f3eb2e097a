# The two commands of the README are `make demo` and `make test`. The others are longer looks.
PYTHON ?= python3
.PHONY: demo test kill bench clean

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

# How long a swap takes, against the size of a generation.
bench:
	cargo bench

clean:
	rm -rf .venv .venv-torch target
