"""The two baselines: write(2) of the same bytes to a new file, and that file mapped and read."""

import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from peer import Peer, Reader, Reading
from samples import ALL

BLOCK = 1 << 20


class Plain(Peer):
    # "kept": one map for all passes; the first pass faults its pages in. "new": one map per pass.
    reads = {"kept": {"keep": True}, "new": {"keep": False}}

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads

    def write(self, directory, samples) -> None:
        if samples.workload.is_volume:
            with open(directory / "bytes", "wb", buffering=0) as file:
                for sample in samples:
                    for part in sample:
                        write_all(file.fileno(), part.reshape(-1))
        elif self.api == "many":
            with open(directory / "bytes", "wb", buffering=0) as file:
                for batch in samples.batches(BLOCK // samples.workload.sample_bytes):
                    write_all(file.fileno(), batch.reshape(-1))
        else:
            with open(directory / "bytes", "wb", buffering=BLOCK) as file:
                for record in samples.records():
                    file.write(record)

    def open(self, what: Reading, **options: Any) -> Reader:
        return Mapped(what, self.api, **options)


def write_all(descriptor: int, array: np.ndarray) -> None:
    left = memoryview(array)
    while left:
        left = left[os.write(descriptor, left) :]


class Mapped(Reader):
    def __init__(self, what: Reading, api: str, keep: bool) -> None:
        self.path, self.work, self.count, self.api = what.directory / "bytes", what.workload, what.count, api
        self.kept = self.map() if keep else None

    def map(self) -> np.ndarray:
        with open(self.path, "rb") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)

    def bytes(self) -> np.ndarray:
        return self.map() if self.kept is None else self.kept

    def sequential(self) -> Iterator[np.ndarray]:
        data = self.bytes()
        # With many samples per call, the loop's cost per sample is not measured.
        size = BLOCK if self.api == "many" else self.work.part_bytes
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def shuffled(self, order: np.ndarray) -> Iterator[np.ndarray]:
        data, size = self.bytes(), self.work.sample_bytes
        if self.api == "many":
            rows = data.reshape(-1, size)
            for begin in range(0, len(order), 1024):
                yield rows[order[begin : begin + 1024]]
            return
        for start in (order * size).tolist():
            for part in range(start, start + size, self.work.part_bytes):
                yield data[part : part + self.work.part_bytes]


PEERS = [
    Plain("plain file", "one", ALL),
    Plain("plain file, blocks of 1 MiB", "many", ("page", "tiny")),
]
