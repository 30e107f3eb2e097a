"""One generator process: writes synthetic brains to the ring until it is stopped."""

# ruff: noqa: E402
import os

# One thread per generator; start more generators to use more cores.
# This must be set before NumPy is loaded.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import secrets
import time

import ringreel

import synth
import template


class Counted:
    """An iterator that counts the items that it has returned."""

    def __init__(self, iterator):
        self.iterator = iterator
        self.count = 0

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self.iterator)
        self.count += 1
        return item


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--config", default="config.yaml")
    parser.add_argument("--worker", type=int, default=0, help="number of this generator; part of every seed")
    parser.add_argument("--seed", type=int, help="seed of the run (default: random; recorded in every sample)")
    parser.add_argument("-n", "--samples", type=int, help="stop after this many samples (default: run until a signal)")
    parser.add_argument("--report", help="write a JSON report to this file at the end")
    args = parser.parse_args()

    seed = secrets.randbits(32) if args.seed is None else args.seed
    samples = Counted(synth.stream(template.load_label_map(), seed, args.worker))
    start = time.monotonic()
    summary = ringreel.run_generator(samples, args.config, n_samples=args.samples)
    report = {
        "worker": args.worker,
        "seed": seed,
        "made": samples.count,
        "seconds": round(time.monotonic() - start, 3),
        "summary": summary,
    }
    text = json.dumps(report, default=str)
    print(text)
    if args.report:
        with open(args.report, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
