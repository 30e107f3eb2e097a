"""Batches of lines from a text file, without losing lines at the end.

The file has 40 lines, the buffer holds 12 lines, a batch has 3 lines.

        python lines.py                # reads all 40 lines: 13 batches of 3, and one of 1
        python lines.py --drop-last    # reads 39: the incomplete last batch is dropped on request
        python lines.py --naive        # reads 36: prints the lines that many hand-written loaders lose

The naive loader fills its buffer, shuffles it, yields batches and fills it again; it discards a partly filled buffer at
the end of the file: 40 = 3 x 12 + 4.
"""

import argparse
import random
import tempfile
from pathlib import Path

import ringreel

LINES = 40
BUFFER = 12
BATCH = 3


def parse(line):
    """Returns the number of a line, from its first column, and its value."""
    number, value = line.split()
    return int(number), float(value)


def naive_batches(path, seed):
    """A wrong implementation, for comparison."""
    rng = random.Random(seed)
    buffer = []
    with open(path) as lines:
        for line in lines:
            buffer.append(parse(line))
            if len(buffer) == BUFFER:
                rng.shuffle(buffer)
                for i in range(0, BUFFER - BATCH + 1, BATCH):
                    yield buffer[i : i + BATCH]
                buffer = []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--naive", action="store_true", help="the loader that loses lines")
    parser.add_argument("--drop-last", action="store_true", help="drop an incomplete last batch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.naive and args.drop_last:
        parser.error("the naive loader always drops lines")

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.txt"
        path.write_text("".join(f"{n} {n / LINES}\n" for n in range(1, LINES + 1)))
        if args.naive:
            batches = naive_batches(path, args.seed)
        else:
            batches = ringreel.StreamLoader(
                path, BATCH, BUFFER, shuffle=True, seed=args.seed, drop_last=args.drop_last, parse=parse
            )
        numbers = []
        for count, batch in enumerate(batches, 1):
            print(f"batch {count:2}: lines", *(f"{number:2}" for number, _ in batch))
            numbers += [number for number, _ in batch]

    missing = sorted(set(range(1, LINES + 1)) - set(numbers))
    what = "no line is missing" if not missing else "dropped on request:" if args.drop_last else "lost:"
    print(f"{len(numbers)} of {LINES} lines were read;", what, *missing)


if __name__ == "__main__":
    main()
