#!/usr/bin/env bash
# Fuzzes the decoders: scripts/fuzz.sh [seconds per target, 20] [target ...]
# Prints a line of figures per target. Exits with 1 if a finding exists; its input is in fuzz/artifacts/.
# FUZZ_JOBS targets run at a time (default: one per core). Their corpora are kept in target/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
shift || true
mapfile -t all < <(cd fuzz/fuzz_targets && ls | sed 's/\.rs$//')
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")

# libFuzzer is C++. (zstd's C is compiled as usual.)
if ! command -v c++ >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install --yes g++; } >/dev/null 2>&1 || true
fi
if ! command -v c++ >/dev/null; then
    echo "SKIPPED: fuzzing needs a C++ compiler; install g++" >&2
    exit 77
fi

# Builds like cargo-fuzz, but without it. The stable compiler suffices, because no sanitizer is used: no decoder
# contains `unsafe`. Overflow checks are on, as in tests.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/fuzz}
host=$(rustc -vV | sed -n 's/^host: //p')
passes=(-sanitizer-coverage-level=4 -sanitizer-coverage-inline-8bit-counters -sanitizer-coverage-pc-table
    -sanitizer-coverage-trace-compares)
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module ${passes[*]/#/-Cllvm-args=} -Cdebug-assertions -Coverflow-checks"
begin=$SECONDS
cargo build --quiet --release --package ringreel-fuzz --features libfuzzer --bins --target "$host"
echo "built in $((SECONDS - begin)) s" >&2

fuzz() {
    local target=$1 kept=$CARGO_TARGET_DIR/corpus/$1 log=$CARGO_TARGET_DIR/$1.log artifacts=fuzz/artifacts/$1
    local dirs=("$kept" "fuzz/corpus/$target") vectors=$CARGO_TARGET_DIR/vectors/$target kind='' len=4096
    case $target in
        frame | resync | segment) kind=rec len=16384 ;;
        idx | lst) kind=$target ;;
    esac
    mkdir -p "${dirs[@]}" "$artifacts" "$vectors"/{ok,bad}
    if [ "$kind" ]; then
        cp format/vectors/ok/*."$kind" "$vectors/ok" 2>/dev/null || true
        cp format/vectors/bad/*."$kind" "$vectors/bad" 2>/dev/null || true
        dirs+=("$vectors")
    fi
    touch "$log.begin"
    local status=0
    "$CARGO_TARGET_DIR/$host/release/$target" "${dirs[@]}" -max_total_time="$seconds" -max_len="$len" -timeout=25 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$artifacts/" >"$log" 2>&1 || status=$?
    local last findings
    last=$(grep --text -E '^#[0-9]+.* cov: ' "$log" | tail -1)
    findings=$(find "$artifacts" -type f -newer "$log.begin" | wc -l)
    field() { sed -n "s/.* $1: \([^ ]*\).*/\1/p" <<<"$last"; }
    stat() { sed -n "s/^stat::$1: *//p" "$log"; }
    echo "| \`$target\` | $seconds | $(stat number_of_executed_units) | $(stat average_exec_per_sec) |" \
        "$(field cov) | $(field ft) | $(field corp) | $findings |"
    if [ "$status" != 0 ]; then
        { grep --text -m1 -A3 panicked "$log" || tail -5 "$log"; } >&2
        echo "$target: has findings or could not run (status $status): see $artifacts and $log" >&2
        return 1
    fi
}
export -f fuzz
export seconds host

echo "| target | seconds | executions | per second | edges covered | features | corpus, files/bytes | findings |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|"
printf '%s\n' "${targets[@]}" | xargs -P "${FUZZ_JOBS:-$(nproc)}" -I{} bash -c 'fuzz {}' || exit 1
