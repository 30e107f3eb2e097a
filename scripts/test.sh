#!/usr/bin/env bash
# Runs all tests: Rust, Python, documentation. A part that cannot run on this machine is named and counted as skipped.
# Two lanes run at the same time, because each of them also waits: Rust with its lints and fuzzing; Python and the pages.
# Lines of the second lane begin with "2 |". If a part fails, both lanes end, and the last line names the part.
# `scripts/test.sh quick` runs tests that need neither network nor root, and takes two minutes once everything is built.
# `scripts/test.sh all` also runs what hardly ever differs: Python 3.10, and an index in FerretDB.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/parts.sh
length=${1:-usual}
# More threads than cores: many tests wait for a process or for a timer.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}

lints() {
    cargo clippy --quiet --workspace --all-targets -- -D warnings
    cargo clippy --quiet --package ringreel --no-default-features -- -D warnings
}

# All calls select the same packages, so that cargo compiles each crate for one set of features. Those for Python and for C
# are built with the same features (scripts/check_metadata.py).
crates=(--workspace --exclude ringreel-python --exclude ringreel-capi)

# A test that cannot run writes SKIPPED to stderr and passes; the line is counted.
rust_tests() {
    { cargo test --quiet "${crates[@]}" "$@" 2>&1 1>&3 | tee "$tally/stderr" >&2; } 3>&1
    grep ^SKIPPED "$tally/stderr" >>"$tally/skipped" || true
}

# The index in MongoDB. The tests of the ring, which run above with the index in files, run with it, too.
mongodb_tests() {
    cargo test --quiet "${crates[@]}" --test mongodb -- --ignored --skip ferretdb
}
ring_tests_on_mongodb() {
    scripts/with_mongodb.sh cargo test --quiet "${crates[@]}" --test main -- \
        cli::bad_input:: read::damage:: read::reading:: swap::many_generations:: write::steps::
    scripts/with_mongodb.sh cargo test --quiet "${crates[@]}" --test storm
}
ferretdb_tests() {
    cargo test --quiet "${crates[@]}" --test mongodb -- --ignored ferretdb
}

python_lints() {
    (cd python && ../.venv-test/bin/python -m ruff check --quiet . && ../.venv-test/bin/python -m ruff format --quiet --check .)
    .venv-test/bin/python -m ruff check --quiet --config python/pyproject.toml --target-version py311 docs scripts
}

# torch, ml_dtypes, Grain and OpenCV count as unknown if they are not installed.
python_types() {
    (cd python && ../.venv-test/bin/python -m mypy ringreel)
    .venv-test/bin/python -m mypy.stubtest ringreel._ringreel --mypy-config-file python/pyproject.toml \
        --allowlist python/tests/stubtest_allowlist.txt --ignore-unused-allowlist
}

python_tests() {
    .venv-test/bin/python -m pytest --quiet "$@"
}

torch_tests() {
    [ -x .venv-torch/bin/python ] || /usr/bin/python3 -m venv --system-site-packages .venv-torch
    # Debian's torch is built for NumPy 1.
    VENV=.venv-torch WHEEL=$(echo "${CARGO_TARGET_DIR:-target}"/wheels/dev-abi3/*.whl) scripts/install.sh '[test]'
    .venv-torch/bin/pip install --quiet --disable-pip-version-check 'numpy<2'
    # Versions for torch 1.13. Without --no-deps, pip would replace Debian's torch by one of some gigabytes.
    .venv-torch/bin/pip install --quiet --disable-pip-version-check --no-deps 'lightning==2.2.*' 'pytorch-lightning==2.2.*' \
        'lightning-utilities<0.12' 'torchmetrics<1.5' fsspec tqdm packaging 'monai==1.4.*' ||
        skip "training examples with Lightning and MONAI: pip could not install them"
    .venv-torch/bin/python -m pytest --quiet -rs docs examples/pytorch examples/frameworks \
        --deselect docs/test_pages.py::test_notebook_runs
    # Tests that use torch, or that may depend on the version of NumPy. The other tests ran above.
    .venv-torch/bin/python -m pytest --quiet python/tests/test_torch*.py python/tests/test_*_torch.py \
        python/tests/test_sample.py python/tests/test_sample_dlpack.py python/tests/test_convert.py \
        python/tests/test_dtypes.py python/tests/test_dataset.py python/tests/test_stream_basics.py \
        python/tests/test_docstrings.py python/tests/test_wirehead*.py python/tests/test_package.py
}

# A short selection of the tests, with another interpreter.
tests_on() {
    VENV=.venv-$1 PYTHON=$2 WHEEL=$3 PROFILE=dev scripts/install.sh '[test]'
    ".venv-$1/bin/python" -m pytest --quiet \
        python/tests/test_{arguments,convert,dataset,errors,format_vectors,generator,image_options,package,ring,run}.py \
        python/tests/test_{hold_out,length,mixture,nested,sample,stats,stream_basics,transforms,wirehead}.py
}

# The oldest versions, for each of which a wheel is built, and the newest one, which can use the wheel of .venv-test.
other_pythons() {
    local version python own_wheel=(3.9)
    [ $length != all ] || own_wheel+=(3.10)
    for version in "${own_wheel[@]}"; do
        if python=$(scripts/find_python.sh $version); then
            part "Python tests on Python $version" tests_on $version "$python" ""
        else
            skip "Python tests on Python $version: no such interpreter in PATH or in pyenv"
        fi
    done
    for version in 3.14 3.13 3.12; do
        if python=$(scripts/find_python.sh $version); then
            part "Python tests on Python $version" \
                tests_on $version "$python" "$(echo "${CARGO_TARGET_DIR:-target}"/wheels/dev-abi3/*.whl)"
            return
        fi
    done
    skip "Python tests on Python 3.12 or later: no such interpreter in PATH or in pyenv"
}

# Tools for fault injection in some tests. A test without its tool reports that it is skipped.
install_tools() {
    for tool in strace:strace mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs faketime:faketime cmake:cmake \
        pkg-config:pkg-config gfortran:gfortran mpicc:libmpich-dev mpirun:mpich; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${tool%%:*}" >/dev/null || tools+=("${tool##*:}")
    done
    if [ -n "${tools:-}" ]; then
        { apt-get update && apt-get install --yes --no-install-recommends "${tools[@]}"; } >/dev/null 2>&1 || true
    fi
    # Installs PyTorch from Debian, for the system's Python, in a few seconds; other packages are gigabytes.
    if ! has_torch; then
        { apt-get update && apt-get install --yes python3-torch python3-venv; } >/dev/null 2>&1 || true
    fi
}

rust_parts() {
    part "Rust tests, the model of the rules, and the fuzzing corpora" rust_tests
    part_if_it_can "a cluster on this machine" env RINGREEL="${CARGO_TARGET_DIR:-target}/debug/ringreel" scripts/cluster.sh --seconds 20 storm
    if [ $has_mongodb = yes ]; then
        part "index in MongoDB" mongodb_tests
        part "the ring with its index in MongoDB" ring_tests_on_mongodb
    else
        skip "the index in MongoDB, and the ring with its index there"
    fi
    if [ $length = all ]; then
        part_if_it_can "a FerretDB for tests" scripts/mongodb.sh ferretdb
        if [ $could = 0 ]; then
            part "index in FerretDB" ferretdb_tests
        else
            skip "the index in FerretDB"
        fi
    fi
    part_if_it_can "fuzzing" scripts/fuzz.sh 3
    part "lints" lints
    part "documentation of the crates" scripts/doc.sh
}

python_parts() {
    part "a wheel, installed into .venv-test" env WHEEL= VENV=.venv-test PROFILE=dev scripts/install.sh '[test]'
    if .venv-test/bin/python -m pip install --quiet --disable-pip-version-check 'ruff>=0.17,<0.18'; then
        part "Python lints" python_lints
    else
        skip "Python lints: pip could not install ruff"
    fi
    if .venv-test/bin/python -m pip install --quiet --disable-pip-version-check 'mypy>=2,<3'; then
        part "Python types" python_types
    else
        skip "Python types: pip could not install mypy"
    fi
    # MXNet, to compare ringreel.recordio with.
    scripts/mxnet.sh || skip "the comparison of ringreel.recordio with MXNet's: see the reason above"
    part "Python tests" python_tests python/tests
    other_pythons
    if .venv-test/bin/pip install --quiet --disable-pip-version-check 'grain>=0.2.16,<0.3' 'jax>=0.4.30'; then
        part "Python tests with Grain and JAX" python_tests python/tests/test_grain*.py python/tests/test_sample_dlpack.py \
            python/tests/test_docstrings.py
    else
        skip "Python tests with Grain and JAX: pip could not install them"
    fi
    if .venv-test/bin/pip install --quiet --disable-pip-version-check 'keras>=3.8,<4' 'jax>=0.4.30'; then
        part "training examples with Keras and JAX" python_tests examples/frameworks -k jax
    else
        skip "training examples with Keras and JAX: pip could not install them"
    fi
    part "code blocks of the documentation" python_tests docs
    part "the C library" python_tests capi/tests
    part "the generator for SynthSeg" python_tests examples/synthseg
    part "the jobs for SLURM" python_tests examples/slurm
    if .venv-test/bin/pip install --quiet --disable-pip-version-check --requirement examples/brain/requirements.txt; then
        part "example of synthetic brains" python_tests examples/brain
    else
        skip "example of synthetic brains: pip could not install what it needs"
    fi
    if has_torch; then
        part "Python tests with PyTorch" torch_tests
    else
        skip "Python tests with PyTorch: $NO_TORCH"
    fi
}

second_lane() {
    python_parts
    part_if_it_can "wording and spelling" scripts/prose.sh
    part_if_it_can "documentation site" scripts/docs.sh
}

if [ "$length" = quick ]; then
    part "formatting" cargo fmt --all --check
    part "unit tests" cargo test --quiet --workspace --lib
    part "tests of the ring" cargo test --quiet --package ringreel-cli --test main -- write:: swap::edges:: read::reading:: runs::
    say_counts
    exit
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install_tools
fi
part "formatting" cargo fmt --all --check
part "metadata" python3 scripts/check_metadata.py
part "end of a script with a failed part" scripts/check_parts.sh
part_if_it_can "recipes" scripts/check_packaging.sh
part_if_it_can "workflows" scripts/check_workflows.sh
part_if_it_can "licences" python3 scripts/licences.py --check
part_if_it_can "cargo-deny" scripts/deny.sh
part_if_it_can "a MongoDB for tests" scripts/mongodb.sh java
has_mongodb=no
[ $could != 0 ] || has_mongodb=yes
in_two_lanes rust_parts second_lane
say_counts
