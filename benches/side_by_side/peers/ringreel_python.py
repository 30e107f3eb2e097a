"""ringreel from Python, with its defaults: checksums are compared, `DURABILITY: process`, no compression.

Large samples have a file each, as by default. Small ones share files, as the README advises.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import ringreel
from peer import Peer, Reader, Reading

SEGMENT_SAMPLES = {"large": 1, "page": 4096, "tiny": 65536}


def config(directory, workload, count: int, **keys: Any) -> dict[str, Any]:
    keys = {"SEGMENT_SAMPLES": SEGMENT_SAMPLES[workload.name], **keys}
    return {"RING": str(directory / "ring"), "SWAP_CAP": count, "SAMPLE": list(workload.parts), **keys}


class RingreelPython(Peer):
    name = "ringreel, Python"
    packages = ("ringreel",)
    opens = ("dataset", "stream")
    reads = {"checked": {}, "unchecked": {"VERIFY": "never"}}

    def create(self, directory, samples):
        return ringreel.Ring(config(directory, samples.workload, len(samples))).generator()

    def write(self, generator, samples) -> None:
        if samples.workload.name == "large":
            for sample in samples:
                generator.write(sample)
        else:
            for record in samples.records():
                generator.write((record,))
        generator.finish(seal=True)

    def open(self, what: Reading, **options: Any) -> Reader:
        return Samples(what, options)


class Samples(Reader):
    def __init__(self, what: Reading, options: dict[str, Any]) -> None:
        self.ring = ringreel.Ring(config(what.directory, what.workload, what.count, **options))
        self.parts, self.count = what.workload.parts, what.count
        self.stream: Any = None
        self.dataset: Any = None

    def sequential(self) -> Iterator[np.ndarray]:
        if self.stream is None:
            self.stream = self.ring.stream()
        for _, sample in zip(range(self.count), self.stream, strict=False):
            for part in self.parts:
                yield sample[part]

    def shuffled(self, order: np.ndarray) -> Iterator[np.ndarray]:
        if self.dataset is None:
            self.dataset = self.ring.dataset()
        for n in order.tolist():
            sample = self.dataset[n]
            for part in self.parts:
                yield sample[part]

    def first(self, how: str) -> Any:
        return self.ring.dataset()[0][self.parts[0]] if how == "dataset" else next(iter(self.sequential()))


PEERS = [RingreelPython()]
