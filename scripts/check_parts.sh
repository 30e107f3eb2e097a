#!/usr/bin/env bash
# Checks how scripts/parts.sh ends a script: a part that fails is named by the last line, with its output above, also in
# one of two lanes, and the other lane is stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Runs a script of parts; puts its exit status into `status`, and its output, without times, into $dir/log.
parts() {
    printf '%s\n' 'set -euo pipefail' '. scripts/parts.sh' "$1" >"$dir/script"
    status=0
    timeout 60 bash "$dir/script" >"$dir/out" 2>&1 </dev/null || status=$?
    sed 's/== [0-9][0-9]:[0-9][0-9] /== /; s/, in [0-9]* s$//' "$dir/out" >"$dir/log"
}

# Fails if the last script did not exit with this status, or if its output did not end with these lines.
ends() {
    local expected
    expected=$(printf '%s\n' "${@:2}")
    if [ "$status" != "$1" ] || [ "$(tail -n $(($# - 1)) "$dir/log")" != "$expected" ]; then
        printf '%s\n' "exit status $status, expected $1 and these last lines:" "$expected" "but it printed:" >&2
        cat "$dir/out" >&2
        exit 1
    fi
}

# Whether the long process of the last script is running; a zombie is not.
still_runs() {
    ps -o stat= -p "$(cat "$dir/script.sleep")" | grep -q '^[^Z]'
}

# A function whose second command fails: with `set -e`, the third one must not run.
functions='
two() { echo one; (exit 3); echo three; }
cannot() { echo "there is no tool"; exit 77; }
lasting() { sleep 1234 & echo $! >"$0.sleep"; wait; }
good() { part "a good part" echo fine; }
bad() { part "a good part" echo fine; sleep 0.5; part "a bad part" two; part "never" echo never; }
slow() { part "a slow part" lasting; }
'

parts "$functions part good true; part_if_it_can maybe cannot; skip 'another one'; in_two_lanes good good; say_counts"
ends 0 "== parts: 3 passed, 0 failed, 2 skipped"
grep -qx '2 | fine' "$dir/log"

parts "$functions part good true; part bad two; say_counts"
ends 1 "== bad" one "== FAILED: bad"
parts "$functions part good true; part_if_it_can bad two; say_counts"
ends 1 "== bad" one "== FAILED: bad"

# The other lane would last for 20 minutes.
for lanes in "bad slow:1" "slow bad:2"; do
    parts "$functions in_two_lanes ${lanes%:*}; say_counts"
    ends 1 "== output of a bad part (lane ${lanes#*:}):" one "== FAILED: a bad part (lane ${lanes#*:})"
    if grep -q never "$dir/log" || still_runs; then
        echo "the other lane was not stopped" >&2
        exit 1
    fi
done

parts "$functions in_two_lanes good false; say_counts"
ends 1 "== FAILED: outside the parts, with exit status 1"

# A signal ends the part that runs.
for script in "part slow lasting" "in_two_lanes slow good"; do
    rm -f "$dir/script.sleep"
    printf '%s\n' 'set -euo pipefail' '. scripts/parts.sh' "$functions $script" >"$dir/script"
    bash "$dir/script" >"$dir/log" 2>&1 &
    until [ -s "$dir/script.sleep" ]; do sleep 0.05; done
    kill -TERM $!
    wait $! 2>/dev/null && exit 1
    if ! tail -n 1 "$dir/log" | grep -q "STOPPED: by signal 15$"; then
        cat "$dir/log" >&2
        exit 1
    fi
    if still_runs; then
        echo "a part survived its script" >&2
        exit 1
    fi
done
