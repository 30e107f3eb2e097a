#!/usr/bin/env bash
# Everything that is tested: Rust, Python, documentation. A part that cannot run here is named and counted as skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
passed=0
skipped=0

part() {
    echo "== $1"
    shift
    "$@"
    passed=$((passed + 1))
}

skip() {
    echo "== SKIPPED: $1" >&2
    skipped=$((skipped + 1))
}

# A part that says with 77 that it cannot run here, and why; `could` tells it afterwards. (No function: `set -e` does not
# hold in one that is called like this.)
part_if_it_can() {
    local name=$1 status=0
    shift
    echo "== $name"
    "$@" || status=$?
    could=$status
    case $status in
        0) passed=$((passed + 1)) ;;
        77) skip "$name: why, stands above" ;;
        *) exit 1 ;;
    esac
}

lints() {
    cargo clippy --quiet --workspace --all-targets -- -D warnings
    cargo clippy --quiet --package ringreel --no-default-features -- -D warnings
}

# A test that cannot run says SKIPPED on stderr, and passes; it is counted as skipped all the same.
rust_tests() {
    mkdir -p target
    { cargo test --quiet 2>&1 1>&3 | tee target/skipped >&2; } 3>&1
    skipped=$((skipped + $(grep -c ^SKIPPED target/skipped || true)))
}

torch_tests() {
    [ -x .venv-torch/bin/python ] || /usr/bin/python3 -m venv --system-site-packages .venv-torch
    # Debian's torch is built for NumPy 1.
    .venv-torch/bin/pip install --quiet --disable-pip-version-check './python[test]' 'numpy<2'
    # What uses torch, or may depend on the version of NumPy. The rest was run above.
    .venv-torch/bin/python -m pytest --quiet python/tests/test_torch*.py python/tests/test_*_torch.py \
        python/tests/test_sample.py python/tests/test_sample_dlpack.py python/tests/test_convert.py \
        python/tests/test_dtypes.py python/tests/test_dataset.py python/tests/test_stream_basics.py \
        python/tests/test_wirehead.py python/tests/test_package.py
}

python_lints() {
    (cd python && ../.venv/bin/python -m ruff check --quiet . && ../.venv/bin/python -m ruff format --quiet --check .)
}

# torch, ml_dtypes, Grain and OpenCV count as unknown where they are not installed.
python_types() {
    (cd python && ../.venv/bin/python -m mypy ringreel)
    .venv/bin/python -m mypy.stubtest ringreel._ringreel --mypy-config-file python/pyproject.toml \
        --allowlist python/tests/stubtest_allowlist.txt --ignore-unused-allowlist
}

# What some tests use to do harm. Those that do without say so.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    for tool in strace:strace mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs faketime:faketime; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${tool%%:*}" >/dev/null || tools+=("${tool##*:}")
    done
    if [ -n "${tools:-}" ]; then
        { apt-get update && apt-get install --yes --no-install-recommends "${tools[@]}"; } >/dev/null 2>&1 || true
    fi
fi

part "formatting" cargo fmt --all --check
part "lints" lints
part "metadata" python3 scripts/check_metadata.py
part_if_it_can "recipes" scripts/check_packaging.sh
part_if_it_can "workflows" scripts/check_workflows.sh
part_if_it_can "licences" python3 scripts/licences.py --check
part_if_it_can "cargo-deny" scripts/deny.sh
part "Rust tests" rust_tests
part "the model of the rules" cargo test --quiet --package ringreel-model
part_if_it_can "a cluster on this machine" env RINGREEL="${CARGO_TARGET_DIR:-target}/debug/ringreel" scripts/cluster.sh --seconds 20 storm

# The index in MongoDB. The tests of the ring, which were run above with the index in files, are run with that one too.
mongodb_tests() {
    cargo test --quiet --package ringreel-cli --test mongodb -- --ignored --skip ferretdb
}
ring_tests_on_mongodb() {
    scripts/with_mongodb.sh cargo test --quiet --package ringreel-cli --test main -- \
        cli::bad_input:: read::damage:: read::reading:: swap::many_generations:: write::steps::
    scripts/with_mongodb.sh cargo test --quiet --package ringreel-cli --test storm
}
ferretdb_tests() {
    cargo test --quiet --package ringreel-cli --test mongodb -- --ignored ferretdb
}
part_if_it_can "a MongoDB for tests" scripts/mongodb.sh java
if [ $could = 0 ]; then
    part "index in MongoDB" mongodb_tests
    part "the ring with its index in MongoDB" ring_tests_on_mongodb
else
    skip "the index in MongoDB, and the ring with its index there"
fi
part_if_it_can "a FerretDB for tests" scripts/mongodb.sh ferretdb
if [ $could = 0 ]; then
    part "index in FerretDB" ferretdb_tests
else
    skip "the index in FerretDB"
fi

part "replay of the fuzzing corpora" cargo test --quiet --package ringreel-fuzz
part_if_it_can "fuzzing" scripts/fuzz.sh 10
part "documentation" scripts/doc.sh
part "installation into .venv" env WHEEL= scripts/install.sh '[test]'
if .venv/bin/python -m pip install --quiet --disable-pip-version-check 'ruff>=0.17,<0.18'; then
    part "Python lints" python_lints
else
    skip "Python lints: pip could not install ruff"
fi
if .venv/bin/python -m pip install --quiet --disable-pip-version-check 'mypy>=2,<3'; then
    part "Python types" python_types
else
    skip "Python types: pip could not install mypy"
fi
# What ringreel.recordio is compared with.
scripts/mxnet.sh || skip "the comparison of ringreel.recordio with MXNet's: why, stands above"
part "Python tests" .venv/bin/python -m pytest --quiet python/tests

if .venv/bin/pip install --quiet --disable-pip-version-check 'grain>=0.2.16,<0.3' 'jax>=0.4.30'; then
    part "Python tests with Grain and JAX" \
        .venv/bin/python -m pytest --quiet python/tests/test_grain.py python/tests/test_sample_dlpack.py
else
    skip "Python tests with Grain and JAX: pip could not install them"
fi

# PyTorch from Debian's packages, for the system's own Python: a few seconds, against gigabytes from elsewhere.
if ! /usr/bin/python3 -c 'import torch' 2>/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install --yes python3-torch python3-venv; } >/dev/null 2>&1 || true
fi
if /usr/bin/python3 -c 'import sys, torch; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    part "Python tests with PyTorch" torch_tests
else
    skip "Python tests with PyTorch: /usr/bin/python3 (3.11 or later) has no torch; install Debian's python3-torch"
fi

echo "parts: $passed passed, 0 failed, $skipped skipped"
