"""ringreel from Python with its defaults: checksums are compared, `DURABILITY: process`, no compression, and the
generator's pace determines the number of samples per file."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import ringreel
from peer import Peer, Reader, Reading
from samples import ALL

# Bytes per batch of small samples.
BATCH = 4 << 20


def config(directory, workload, count: int, **keys: Any) -> dict[str, Any]:
    return {"RING": str(directory / "ring"), "SWAP_CAP": count, "SAMPLE": list(workload.parts), **keys}


class RingreelPython(Peer):
    packages = ("ringreel",)
    opens = ("dataset", "stream")
    reads = {"checked": {}, "unchecked": {"VERIFY": "never"}}

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads

    def create(self, directory, samples):
        return ringreel.Ring(config(directory, samples.workload, len(samples))).generator()

    def write(self, generator, samples) -> None:
        if samples.workload.is_volume:
            for sample in samples:
                generator.write(sample)
        elif self.api == "many":
            for batch in samples.batches(BATCH // samples.workload.sample_bytes):
                generator.write_batch((batch,))
        else:
            for record in samples.records():
                generator.write((record,))
        generator.finish(promote=True)

    def open(self, what: Reading, **options: Any) -> Reader:
        return Batches(what, options) if self.api == "many" else Samples(what, options)


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


class Batches(Samples):
    def __init__(self, what: Reading, options: dict[str, Any]) -> None:
        super().__init__(what, options)
        self.dataset, self.rows = self.ring.dataset(), BATCH // what.workload.sample_bytes

    def sequential(self) -> Iterator[np.ndarray]:
        for begin in range(0, self.count, self.rows):
            yield self.dataset.batch(slice(begin, begin + self.rows))[self.parts[0]]

    def shuffled(self, order: np.ndarray) -> Iterator[np.ndarray]:
        for begin in range(0, len(order), self.rows):
            yield self.dataset.batch(order[begin : begin + self.rows])[self.parts[0]]


PEERS = [
    RingreelPython("ringreel, Python", "one", ALL),
    RingreelPython("ringreel, Python, batches", "many", ("page", "tiny")),
]
