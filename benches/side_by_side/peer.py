"""The interface of a peer. A file in `peers/` lists its peers in PEERS; a new peer needs nothing else."""

import dataclasses
import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from samples import ALL, Samples, Workload


@dataclasses.dataclass
class Reading:
    """What a peer reads: the files in `directory`, which it wrote, `count` samples of `workload`."""

    directory: Path
    workload: Workload
    count: int


class Peer:
    """A way to store samples in files. All methods run in a fresh process."""

    name: str
    #: Whether a call takes "one" sample or "many".
    api: str = "one"
    #: The language of its consumer, which selects the baselines to compare with.
    language: str = "Python"
    #: The interpreter, in a virtual environment of the repository.
    venv: str = ".venv-bench"
    workloads: tuple[str, ...] = ALL
    #: The places in which its files may be.
    places: tuple[str, ...] = ("tmpfs", "disk")
    #: Packages whose versions are reported.
    packages: tuple[str, ...] = ()
    #: The fraction of a workload's samples that it gets, for peers that would take too long.
    share: dict[str, float] = {}
    #: Whether samples can be read in any order.
    random: bool = True
    #: The ways to read: a name, and the arguments of `open`.
    reads: dict[str, dict[str, Any]] = {"": {}}

    #: The ways to the first sample (`Reader.first`).
    opens: tuple[str, ...] = ("",)

    def lacking(self) -> str | None:
        """The reason why it cannot run here, or None."""
        return None

    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in self.packages}

    def create(self, directory: Path, samples: Samples) -> Any:
        """Creates what must exist before the first sample can be written. Not timed."""
        return directory

    def write(self, target: Any, samples: Samples) -> None:
        """Writes all samples; when it returns, other processes can read them. Timed."""
        raise NotImplementedError

    def open(self, what: Reading, **options: Any) -> "Reader":
        """Opens the files for reading."""
        raise NotImplementedError


class Reader:
    """The result of `Peer.open`. A buffer supports the buffer protocol, and contains a part or whole samples."""

    def sequential(self) -> Iterable[Any]:
        """Yields all bytes in the order of writing, as buffers. May be called again."""
        raise NotImplementedError

    def shuffled(self, order: np.ndarray) -> Iterable[Any]:
        """Yields the samples whose numbers are in `order`, in that order."""
        raise NotImplementedError

    def first(self, how: str) -> Any:
        """Returns the first buffer; `how` is one of `Peer.opens`."""
        found: Iterator[Any] = iter(self.sequential())
        return next(found)
