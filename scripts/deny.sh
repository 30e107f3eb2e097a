#!/usr/bin/env bash
# Checks advisories, licences, bans and sources of all dependencies with cargo-deny and deny.toml. Exits with 77 if it is
# not installed; RINGREEL_DENY=install compiles it, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo deny --version >/dev/null 2>&1; then
    if [ "${RINGREEL_DENY:-}" != install ]; then
        echo "SKIPPED: cargo-deny is not installed (RINGREEL_DENY=install installs it)" >&2
        exit 77
    fi
    cargo install --locked --quiet cargo-deny
fi
cargo deny check bans licenses sources
# The advisory database is on GitHub. If it cannot be reached, the last downloaded copy is used, if available.
if cargo deny fetch db >/dev/null 2>&1; then
    cargo deny check advisories
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/" >/dev/null; then
    echo "advisories: the database could not be fetched; checked against the last copy" >&2
    cargo deny --offline check advisories
else
    echo "SKIPPED: advisories: the database cannot be reached. Bans, licences and sources were checked" >&2
    exit 77
fi
