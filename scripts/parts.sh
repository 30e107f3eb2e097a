# Runs the parts of a script, counts them, and ends the script when one fails. To be sourced by a bash script.
#
#     part NAME COMMAND...             runs a command or a function
#     part_if_it_can NAME COMMAND...   the same; a command that exits with 77, after printing a reason, counts as skipped
#     skip TEXT                        counts a part that cannot be started
#     in_two_lanes FIRST SECOND        runs two functions that call `part`, at the same time
#     say_counts                       prints how many parts passed and were skipped
#     has_torch                        whether there is a torch to test with; if not, $NO_TORCH says what to install
#
# If a part fails, the last line names it, and its output is above that line. A failure in one lane stops the other lane.
SECONDS=0
tally=$(mktemp -d)
lane=0
# The process groups that run: those of two lanes, or that of one part.
running=()
trap end_of_parts EXIT
# Otherwise the exit status would not tell that a signal ended the script.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
NO_TORCH="/usr/bin/python3 (3.11 or later) has no torch; install Debian's python3-torch"

has_torch() {
    /usr/bin/python3 -c 'import sys, torch; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

say() {
    printf '== %02d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$1"
}

count() {
    cat "$tally/$1" 2>/dev/null | wc -l
}

say_counts() {
    say "parts: $(count passed) passed, 0 failed, $(count skipped) skipped"
}

skip() {
    say "SKIPPED: $1" >&2
    echo "$1" >>"$tally/skipped"
}

part() {
    run_part "$@"
    [ "$status" = 0 ] || fail_part "$1"
}

# `could` is the exit status of the command afterwards.
part_if_it_can() {
    run_part "$@"
    could=$status
    case $status in
        0) ;;
        77) skip "$1: see the reason above" ;;
        *) fail_part "$1" ;;
    esac
}

# Sets `status`. The command runs in the background, because `set -e` has no effect in a function whose status is tested.
run_part() {
    local name=$1 began=$SECONDS output printer command
    shift
    say "$name"
    exec {output}> >(tee "$tally/output$lane")
    printer=$!
    # A part that is not in a lane has a process group of its own, so that Ctrl-C ends all its processes.
    [ "$lane" != 0 ] || set -m
    (set +m && "$@") <&0 >&"$output" 2>&1 {output}>&- &
    command=$!
    [ "$lane" != 0 ] || running=("$command")
    set +m
    status=0
    wait "$command" || status=$?
    [ "$lane" != 0 ] || running=()
    exec {output}>&-
    await_printer "$printer"
    if [ "$status" = 0 ]; then
        say "passed: $name, in $((SECONDS - began)) s"
        echo "$name" >>"$tally/passed"
    fi
}

# Waits until a process has printed everything, but at most two seconds, because a process that a part left behind may
# keep its output open.
await_printer() {
    for _ in {1..100}; do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.02
    done
}

# Only the first failure is kept: that of the other lane may be a consequence.
fail_part() {
    (set -o noclobber && echo "$lane $1" >"$tally/failed") 2>/dev/null || true
    exit 1
}

# Each lane has a process group of its own, so that it can be stopped with all its processes. Lines of the second lane
# begin with "2 |".
in_two_lanes() {
    local status=0 output printer
    exec {output}> >(sed -u 's/^/2 | /')
    printer=$!
    set -m
    (set +m && lane=1 && "$1") </dev/null {output}>&- &
    running+=($!)
    (set +m && lane=2 && "$2") </dev/null >&"$output" 2>&1 {output}>&- &
    running+=($!)
    set +m
    exec {output}>&-
    # The lane that ends first, then both.
    { wait -n "${running[@]}" && wait "${running[0]}" && wait "${running[1]}"; } 2>/dev/null || status=$?
    [ "$status" = 0 ] || stop_running
    await_printer "$printer"
    running=()
    [ "$status" = 0 ] || exit "$status"
}

# Whether a process group has a process. One that has ended, and that init has not reaped yet, does not count.
is_running() {
    ps -eo pgid=,stat= | grep -q "^ *$1 [^Z]"
}

# Ends the processes that run, if there are any: by SIGTERM, then by SIGKILL.
stop_running() {
    local leader
    for leader in "${running[@]}"; do
        kill -TERM -- "-$leader" || true
    done
    for leader in "${running[@]}"; do
        for _ in {1..100}; do
            is_running "$leader" || break
            sleep 0.1
        done
        kill -KILL -- "-$leader" || true
        wait "$leader" || true
    done
    running=()
} 2>/dev/null

# Runs when the script ends, for whatever reason.
end_of_parts() {
    local status=$? failed_lane failed
    stop_running
    if [ "$status" != 0 ] && [ -f "$tally/failed" ]; then
        read -r failed_lane failed <"$tally/failed"
        if [ "$failed_lane" != 0 ]; then
            failed="$failed (lane $failed_lane)"
            say "output of $failed:"
            cat "$tally/output$failed_lane"
        fi
        say "FAILED: $failed"
    elif [ "$status" -gt 128 ]; then
        say "STOPPED: by signal $((status - 128))"
    elif [ "$status" != 0 ]; then
        say "FAILED: outside the parts, with exit status $status"
    fi
    rm -rf "$tally"
}
