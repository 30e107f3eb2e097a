"""The samples to write and read, of five sizes, cut from a pool of bytes; and the consumer, which reads every byte.

No two samples are alike, because each pass through the pool begins 64 bytes later. Runs in the interpreter of every
peer, so it depends only on NumPy.
"""

import dataclasses
import functools
import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

POOL_BYTES = 128 << 20
SHIFT = 64
SLACK = 1 << 20
# Below this size, a NumPy call costs more than reading the bytes; zlib's CRC is the cheapest way to read them all.
SMALL = 4096


@dataclasses.dataclass(frozen=True)
class Workload:
    """Samples of one shape. `share`: the fraction of a run's bytes (`--mb`) for a peer with many samples per call, and
    for one with one sample per call."""

    name: str
    title: str
    parts: tuple[str, ...]
    shape: tuple[int, ...]
    share: dict[str, float]
    #: Its contents: a smooth image only if a sample has a large part of one.
    contents: tuple[str, ...]

    @functools.cached_property  # because it is used for each sample
    def part_bytes(self) -> int:
        return math.prod(self.shape)

    @functools.cached_property
    def sample_bytes(self) -> int:
        return self.part_bytes * len(self.parts)

    @functools.cached_property
    def is_volume(self) -> bool:
        """Whether a sample is an image with labels, in two parts."""
        return len(self.parts) > 1

    def count(self, run_bytes: int, api: str, share: float) -> int:
        """The number of samples: a fraction of the run's bytes, and at least two."""
        return max(2, int(run_bytes * self.share[api] * share) // self.sample_bytes)


#: The names of the workloads whose samples are volumes, and of all workloads.
VOLUMES = ("large", "medium", "small")
ALL = (*VOLUMES, "page", "tiny")
WORKLOADS = {
    work.name: work
    for work in (
        Workload("large", "2 x 256³ uint8", ("data", "label"), (256, 256, 256), {"one": 1.0}, ("random", "brain")),
        Workload("medium", "2 x 128³ uint8", ("data", "label"), (128, 128, 128), {"one": 1.0}, ("random",)),
        Workload("small", "2 x 64³ uint8", ("data", "label"), (64, 64, 64), {"one": 1.0}, ("random",)),
        Workload("page", "4 KiB", ("data",), (4096,), {"one": 1 / 32, "many": 1 / 2}, ("random",)),
        Workload("tiny", "100 B", ("data",), (100,), {"one": 1 / 200, "many": 1 / 8}, ("random",)),
    )
}


class Samples:
    """`count` samples of a workload: `samples[i]` is a tuple of arrays, one per part."""

    def __init__(self, pool: Path, workload: Workload, count: int) -> None:
        self.workload, self.count = workload, count
        self._lap = POOL_BYTES // workload.sample_bytes
        self.pool = np.fromfile(pool, np.uint8, min(count, self._lap) * workload.sample_bytes + SLACK)
        if (count // self._lap + 1) * SHIFT > SLACK:
            raise ValueError(f"{count} samples of {workload.sample_bytes} bytes are more than the pool has")

    def __len__(self) -> int:
        return self.count

    def _start(self, index: int) -> int:
        lap, place = divmod(index, self._lap)
        return place * self.workload.sample_bytes + lap * SHIFT

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        work, start = self.workload, self._start(index)
        size = work.part_bytes
        parts = (self.pool[start + n * size : start + (n + 1) * size] for n in range(len(work.parts)))
        return tuple(part.reshape(work.shape) for part in parts)

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        return map(self.__getitem__, range(self.count))

    def records(self) -> Iterator[np.ndarray]:
        """The samples as flat bytes, one by one."""
        size, lap, pool = self.workload.sample_bytes, self._lap, self.pool
        for begin in range(0, self.count, lap):
            first = begin // lap * SHIFT
            last = first + min(lap, self.count - begin) * size
            for start in range(first, last, size):
                yield pool[start : start + size]

    def parts(self) -> Iterator[np.ndarray]:
        """Each part of each sample, for formats whose records are parts."""
        if self.workload.is_volume:
            return (part for sample in self for part in sample)
        return self.records()

    def batches(self, rows: int) -> Iterator[np.ndarray]:
        """Arrays of at most `rows` samples, one per row, that are adjacent in memory."""
        begin = 0
        while begin < self.count:
            end = min(begin + rows, self.count, (begin // self._lap + 1) * self._lap)
            start = self._start(begin)
            yield self.pool[start : start + (end - begin) * self.workload.sample_bytes].reshape(end - begin, -1)
            begin = end


def make_pool(content: str, path: Path) -> None:
    """Writes a pool of `content` ("random" or "brain") to `path`."""
    rng = np.random.default_rng(7)
    if content == "random":
        pool = rng.integers(0, 1 << 64, (POOL_BYTES + SLACK) // 8, np.uint64).view(np.uint8)
    else:
        volumes = []
        for _ in range(4):
            image = _smooth(rng)
            noise = rng.normal(0, 3, image.shape).astype(np.float32)
            head = image > np.quantile(image[::8, ::8, ::8], 0.4)
            volumes += [np.where(head, np.clip(40 + 200 * image + noise, 0, 255), 0).astype(np.uint8)]
            volumes += [np.where(head, 1 + 30 * image, 0).astype(np.uint8)]
        pool = np.resize(np.concatenate([volume.reshape(-1) for volume in volumes]), POOL_BYTES + SLACK)
    pool.tofile(path)


def _smooth(rng: np.random.Generator) -> np.ndarray:
    """A smooth image, 256³, from 0 to 1: noise on a grid of 9³, interpolated along each axis."""
    image = rng.random((9, 9, 9), np.float32)
    at = np.linspace(0, 8, 256, dtype=np.float32)
    low = np.minimum(at.astype(int), 7)
    for axis in range(3):
        weight = (at - low).reshape([-1 if n == axis else 1 for n in range(3)])
        image = np.take(image, low, axis) * (1 - weight) + np.take(image, low + 1, axis) * weight
    return (image - image.min()) / (image.max() - image.min())


def touch(buffer) -> int:
    """Reads every byte of a buffer; returns a checksum that is the same for all peers."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    if array.nbytes < SMALL:
        return zlib.crc32(buffer)
    if not array.flags.c_contiguous:
        return int(np.add.reduce(array, axis=None, dtype=np.uint64))
    array = array.reshape(-1).view(np.uint8)
    words = array.nbytes // 8 * 8
    return int(np.add.reduce(array[:words].view(np.uint64))) + sum(array[words:].tolist())
