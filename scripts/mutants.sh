#!/usr/bin/env bash
# Mutation tests: whether tests fail when a line of format/ or of the ring's steps is changed. cargo-mutants changes an
# operator, a match arm or a return value. docs/internals/mutants.md has the last figures, and the mutants that no test
# detects.
#
#     scripts/mutants.sh [k/n] [format] [ring]     one mutant in n, from the k-th on (default: 0/8); 0/1: all
#
# Fast tests run first; mutants that they miss run against all related tests.
set -euo pipefail
cd "$(dirname "$0")/.."
sample=${1:-0/8}
shift || true
[ $# -gt 0 ] || set -- format ring
version=27.1.0
tools=$PWD/target/tools

if [ "$("$tools/bin/cargo-mutants" mutants --version 2>/dev/null)" != "cargo-mutants $version" ]; then
    CARGO_TARGET_DIR=$tools/build CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off \
        cargo install --locked --quiet --root "$tools" --version "$version" cargo-mutants
fi

# An endless loop would use all memory before its time limit.
ulimit -v $((8 << 20))

# A copy of the project in which lines are changed. It is always in the same place, so that dependencies are built once.
prepare() {
    work=$PWD/target/mutants/$1
    export CARGO_TARGET_DIR=$work/build TMPDIR=$work/tmp
    rm -rf "$work"/{tree,quick,thorough.*}
    mkdir -p "$work/tree" "$work/tmp"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/tree"
}

# mutants ROUND ARGUMENT...: exit statuses 2 and 3 mean that some mutants were missed, or took too long.
mutants() {
    local round=$1 status=0
    shift
    rm -rf "${work:?}/$round"
    "$tools/bin/cargo-mutants" mutants --dir "$work/tree" --in-place --output "$work/$round" --no-times --colors never \
        "$@" || status=$?
    [ $status = 0 ] || [ $status = 2 ] || [ $status = 3 ] || exit $status
}

quick() {
    mutants quick --shard "$sample" --sharding round-robin --timeout 60 "$@"
}

# thorough FILES ARGUMENT...: tests the mutants in these files that the fast tests missed.
thorough() {
    local missed=() files=$1 round
    shift
    while read -r name; do
        missed+=(--re "^$(sed 's/[][\\.^$*+?(){}|]/\\&/g' <<<"$name")\$")
    done < <(grep -E "$files" "$work/quick/mutants.out/missed.txt")
    round=thorough.$(find "$work" -maxdepth 1 -name 'thorough.*' | wc -l)
    [ ${#missed[@]} = 0 ] || mutants "$round" "${missed[@]}" --timeout 300 "$@"
}

# entries LIST ROUNDS: the mutants in these lists, each once; only those of the sample (`--re` lets some more pass).
entries() {
    cat "$work"/$2/mutants.out/"$1".txt 2>/dev/null | sort -u |
        grep -Fxf <(cat "$work"/quick/mutants.out/{caught,missed,timeout,unviable}.txt) || true
}

# missed: the mutants that no round detected.
missed() {
    entries missed quick | grep -Fxvf <(entries caught 'thorough.*'; entries timeout 'thorough.*') || true
}

score() {
    local caught timeout missed unviable viable
    caught=$(entries caught '*' | wc -l) timeout=$(entries timeout '*' | wc -l) unviable=$(entries unviable quick | wc -l)
    missed=$(missed | wc -l)
    viable=$((caught + timeout + missed))
    missed
    echo "$1, sample $sample: $viable mutants (and $unviable that do not compile): $caught caught, $timeout took too long," \
        "$missed missed: $((100 * (caught + timeout) / viable)) % detected"
}

for part in "$@"; do
    prepare "$part"
    case $part in
        format)
            quick --package ringreel-format --cargo-arg=--lib --cargo-arg=--tests \
                --cargo-arg=--config=profile.mutants.package.ringreel-format.opt-level=0 \
                -- -- --skip flipped_bits_are --skip truncations_are --skip resynchronising --skip readers_agree \
                --skip time_is_proportional
            thorough . --package ringreel-format --cargo-arg=--lib --cargo-arg=--tests -- -- --skip time_is_proportional
            ;;
        ring)
            ring=(--package ringreel --package ringreel-ops --test-package ringreel,ringreel-cli --no-default-features --cargo-arg=--test=main)
            quick "${ring[@]}" \
                -- -- swap::edges:: write::steps:: swap::traces:: runs::logs:: ops::repair_steps:: \
                --skip at_any_call --skip every_call --skip call_that_fails --skip reply --skip every_change
            # `::tests::` are unit tests of the library.
            thorough 'src/(commit|ring/(descriptor|failure_detector|mod|scan)|manifest|manifest/store|swap/(adopt|promote|reclaim))\.rs' "${ring[@]}" --cargo-arg=--lib \
                -- -- ::tests:: write::steps:: swap::many_generations:: read::reading:: cli::bad_input:: fs::sharing::
            thorough 'ring/validation_split\.rs|ops/src/held_out\.rs|src/run(s|_log)/' "${ring[@]}" \
                -- -- write::held_out:: read::streaming:: read::policy:: read::reading::
            thorough 'swap/orphans\.rs|ops/src/((gc|missing|promote_partial)\.rs|repair/)' "${ring[@]}" \
                -- -- ops::verify:: ops::repair:: ops::repair_steps:: ops::promote_partial:: write::held_out::
            ;;
    esac
    score "$part"
done
