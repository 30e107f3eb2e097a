"""NumPy files: one per part of a volume; one array of all small samples, whose number is known in advance."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from peer import Peer, Reader, Reading
from samples import ALL


class Npy(Peer):
    packages = ("numpy",)

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads

    def write(self, directory, samples) -> None:
        if samples.workload.is_volume:
            for n, sample in enumerate(samples):
                for name, part in zip(samples.workload.parts, sample, strict=True):
                    np.save(directory / f"{n}.{name}.npy", part)
            return
        shape = (len(samples), samples.workload.sample_bytes)
        array = np.lib.format.open_memmap(directory / "samples.npy", "w+", np.uint8, shape)
        if self.api == "many":
            begin = 0
            for batch in samples.batches(4096):
                array[begin : begin + len(batch)] = batch
                begin += len(batch)
        else:
            for n, record in enumerate(samples.records()):
                array[n] = record

    def open(self, what: Reading, **options: Any) -> Reader:
        return Files(what) if what.workload.is_volume else Array(what, self.api)


class Files(Reader):
    def __init__(self, what: Reading) -> None:
        self.what = what

    def sequential(self) -> Iterator[np.ndarray]:
        return self.shuffled(np.arange(self.what.count))

    def shuffled(self, order: np.ndarray) -> Iterator[np.ndarray]:
        for n in order.tolist():
            for name in self.what.workload.parts:
                yield np.asarray(np.load(self.what.directory / f"{n}.{name}.npy", mmap_mode="r"))


class Array(Reader):
    def __init__(self, what: Reading, api: str) -> None:
        self.array = np.asarray(np.load(what.directory / "samples.npy", mmap_mode="r"))
        self.api = api

    def sequential(self) -> Iterator[np.ndarray]:
        if self.api == "many":
            for begin in range(0, len(self.array), 4096):
                yield self.array[begin : begin + 4096]
        else:
            yield from self.array

    def shuffled(self, order: np.ndarray) -> Iterator[np.ndarray]:
        if self.api == "many":
            for begin in range(0, len(order), 1024):
                yield self.array[order[begin : begin + 1024]]
        else:
            for n in order.tolist():
                yield self.array[n]


PEERS = [
    Npy(".npy, mapped", "one", ALL),
    Npy(".npy, mapped, slices", "many", ("page", "tiny")),
]
