#!/usr/bin/env bash
# Remakes docs/operations/top.svg: runs a manager, three generators and two ranks of a trainer for 80 s, and takes a
# picture of `ringreel top`. Needs tmux, and Python with ringreel; the ring must not exist. From the repository's root:
#
#     RINGREEL=target/release/ringreel PYTHON=.venv/bin/python scripts/picture_of_top.sh /scratch/brains.ring
set -euo pipefail
ring=${1:?"usage: scripts/picture_of_top.sh RING"}
ringreel=$(realpath "$(command -v "${RINGREEL:-ringreel}")")
python=${PYTHON:-python3}
dir=$(mktemp -d)
socket=ringreel-picture-$$
children=()
end() {
    kill "${children[@]}" 2> /dev/null || true
    wait || true
    tmux -L "$socket" kill-server 2> /dev/null || true
    rm -r "$dir"
}
trap end EXIT

cat > "$dir/config.yaml" <<YAML
RING: $ring
SWAP_CAP: 60
SAMPLE: [image, label]
SEGMENT_SAMPLES: 4
LEASE_SECONDS: 10
YAML

# Each rank reads a sample once, and needs longer for a step than its share of the generators needs for a sample.
cat > "$dir/trainer.py" <<'PYTHON'
import sys
import time

import ringreel

for _ in ringreel.Ring(sys.argv[1]).stream(int(sys.argv[2]), 2, run="picture", repeat=False, equal="drop"):
    time.sleep(0.07)
PYTHON

"$ringreel" manager -c "$dir/config.yaml" 2> /dev/null &
children+=($!)
for seed in 1 2 3; do
    "$ringreel" generate -c "$dir/config.yaml" --shape 32,32,32 --seed "$seed" --rate $((3 * seed)) &> /dev/null &
    children+=($!)
done
for rank in 0 1; do
    "$python" "$dir/trainer.py" "$dir/config.yaml" "$rank" 2> /dev/null &
    children+=($!)
done
sleep 5 # until the ring exists
tmux -L "$socket" new-session -d -x 104 -y 33 "$ringreel top $ring --interval 1"
sleep 75
tmux -L "$socket" capture-pane -e -p | "$python" "$(dirname "$0")/ansi_to_svg.py" > "$dir/top.svg"
cp "$dir/top.svg" "$(dirname "$0")/../docs/operations/top.svg"
