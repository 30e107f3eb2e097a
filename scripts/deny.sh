#!/usr/bin/env bash
# Advisories, licences, bans and sources of all dependencies, by cargo-deny and deny.toml. 77 where that is not there:
# installing it compiles for minutes, which RINGREEL_DENY=install allows.
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
# The database of advisories lies on GitHub. Where that cannot be reached, the copy of the last time is used, if there is one.
if cargo deny fetch db >/dev/null 2>&1; then
    cargo deny check advisories
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/" >/dev/null; then
    echo "advisories: the database could not be fetched; checked against that of the last time" >&2
    cargo deny --offline check advisories
else
    echo "SKIPPED: advisories: the database cannot be reached. Bans, licences and sources were checked" >&2
    exit 77
fi
