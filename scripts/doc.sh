#!/usr/bin/env bash
# Builds the documentation of the crates. Warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --package ringreel --package ringreel-format \
    --package ringreel-recordio --package ringreel-ops --package ringreel-cli --features ringreel-recordio/images
