"""One reader rank of a training job, with a small consumer instead of a network.

The consumer accumulates a histogram of intensities per label over all samples.
A training step takes a given time, as it would on an accelerator; the reader
must keep up with that.
"""

import argparse
import collections
import json
import signal
import time

import numpy as np
import ringreel

from template import LABEL_NAMES


class LabelStatistics:
    """Exact intensity histograms per label, updated sample by sample."""

    def __init__(self):
        self.histogram = np.zeros((len(LABEL_NAMES), 256), np.int64)

    def add(self, image, label):
        """Add one pair of uint8 volumes of the same shape."""
        bins = label.astype(np.int64)
        bins *= 256
        bins += image
        self.histogram += np.bincount(bins.ravel(), minlength=self.histogram.size).reshape(self.histogram.shape)

    def summary(self):
        """Return {label name: {"fraction" of voxels, "mean", "std" of intensity}}."""
        values, voxels = np.arange(256), max(int(self.histogram.sum()), 1)
        result = {}
        for label, name in LABEL_NAMES.items():
            counts = self.histogram[label]
            number = max(int(counts.sum()), 1)
            mean = float(counts @ values) / number
            variance = float(counts @ (values - mean) ** 2) / number
            result[name] = {
                "fraction": round(int(counts.sum()) / voxels, 4),
                "mean": round(mean, 1),
                "std": round(variance**0.5, 1),
            }
        return result


class Rank:
    """What one rank has read, and how long it waited."""

    def __init__(self):
        self.statistics = LabelStatistics()
        self.reads = collections.Counter()  # sample id -> times read
        self.generations = set()
        self.first_wait_s = None  # Until the first sample, while the ring filled.
        self.longest_wait_s = 0.0  # For all later samples.
        self.started = None

    def run(self, stream, step_s):
        """Consume a stream of samples, at most one every `step_s` seconds, until it ends."""
        asked = time.monotonic()
        for sample in stream:
            received = time.monotonic()
            if self.first_wait_s is None:
                self.first_wait_s, self.started = received - asked, received
            else:
                self.longest_wait_s = max(self.longest_wait_s, received - asked)
            self.statistics.add(sample["image"], sample["label"])
            self.generations.add(sample.generation)
            self.reads[sample.sample_id] += 1
            time.sleep(max(0.0, received + step_s - time.monotonic()))
            asked = time.monotonic()

    def report(self):
        """The results as a JSON-serialisable dict."""
        seconds = time.monotonic() - self.started if self.started else 0.0
        samples = sum(self.reads.values())
        return {
            "samples": samples,
            "distinct": len(self.reads),
            "repeats": samples - len(self.reads),
            "generations": len(self.generations),
            "seconds": round(seconds, 3),
            "samples_per_s": round(samples / seconds, 3) if seconds else 0.0,
            "first_wait_s": round(self.first_wait_s or 0.0, 4),
            "longest_wait_s": round(self.longest_wait_s, 4),
            "labels": self.statistics.summary(),
            "reads": dict(self.reads),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--config", default="config.yaml")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--step", type=float, default=0.08, help="seconds per training step (default: 0.08)")
    parser.add_argument("--report", help="write a JSON report to this file at the end")
    args = parser.parse_args()

    # Either signal ends the endless stream.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rank = Rank()
    try:
        ring = ringreel.Ring(args.config)
        rank.run(ring.stream(rank=args.rank, world_size=args.world_size), args.step)
    except KeyboardInterrupt:
        pass
    report = {"rank": args.rank, **rank.report()}
    if args.report:
        with open(args.report, "w") as file:
            json.dump(report, file)
    del report["reads"]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
