"""What a peer is. A file in `peers/` has one or more of them in its list PEERS; a new one needs nothing else."""

import dataclasses
import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from samples import ALL, Samples, Workload


@dataclasses.dataclass
class Reading:
    """What a peer reads: the files in `directory`, which it wrote itself, `count` samples of `workload`."""

    directory: Path
    workload: Workload
    count: int


class Peer:
    """A way to keep samples in files. All methods run in a process that did nothing before."""

    name: str
    #: "one" sample at a call, or "many".
    api: str = "one"
    #: The language of its consumer: it is compared with the baselines that have the same.
    language: str = "Python"
    #: The interpreter: a virtual environment in the repository.
    venv: str = ".venv-bench"
    workloads: tuple[str, ...] = ALL
    #: Where its files may lie.
    places: tuple[str, ...] = ("tmpfs", "disk")
    #: Packages whose versions are told.
    packages: tuple[str, ...] = ()
    #: Of the samples that others have in a workload, so many: for those that would take too long.
    share: dict[str, float] = {}
    #: Whether samples can be read in any order.
    random: bool = True
    #: The ways to read: a name, and what `open` gets for it.
    reads: dict[str, dict[str, Any]] = {"": {}}

    #: The ways to the first sample (`Reader.first`).
    opens: tuple[str, ...] = ("",)

    def lacking(self) -> str | None:
        """Why it cannot run here; None when it can."""
        return None

    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in self.packages}

    def create(self, directory: Path, samples: Samples) -> Any:
        """What has to be there before the first sample can be written. Not timed."""
        return directory

    def write(self, target: Any, samples: Samples) -> None:
        """Writes all samples; when it returns, others can read them. Timed."""
        raise NotImplementedError

    def open(self, what: Reading, **options: Any) -> "Reader":
        """Opens what was written."""
        raise NotImplementedError


class Reader:
    """What `Peer.open` gives. A buffer is anything with the buffer protocol; it holds a part, or whole samples."""

    def sequential(self) -> Iterable[Any]:
        """All bytes, in the order in which they were written, as buffers. May be called again."""
        raise NotImplementedError

    def shuffled(self, order: np.ndarray) -> Iterable[Any]:
        """The samples whose numbers are in `order`, in that order."""
        raise NotImplementedError

    def first(self, how: str) -> Any:
        """The first buffer; `how` is one of `Peer.opens`."""
        found: Iterator[Any] = iter(self.sequential())
        return next(found)
