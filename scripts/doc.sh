#!/usr/bin/env bash
# The documentation of the crates. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --package ringreel --package ringreel-format \
    --package ringreel-recordio --package ringreel-ops --package ringreel-cli
