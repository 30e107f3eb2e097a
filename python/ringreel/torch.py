"""Rings for torch's `DataLoader`.

The newest generation by index, with stock samplers::

    import torch, ringreel.torch

    dataset = ringreel.torch.RingDataset("config.yaml", as_tuple=True)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=2, shuffle=True, num_workers=4, collate_fn=ringreel.torch.collate
    )
    while True:
        for data, label in loader:
            ...
        dataset.refresh()       # between epochs: on to the newest generation

`RingDataset` works with torch's own `default_collate` too. `collate` gives the same batches and is faster for large
samples: nothing is copied from a worker to the process that trains.
"""

import operator
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ringreel._dataset import Dataset
from ringreel._errors import ReclaimedError
from ringreel._ring import Config, Ring
from ringreel._sample import Sample
from ringreel._torch_batches import collate, mark
from ringreel._torch_stream import RingStream

__all__ = ["RingDataset", "RingStream", "collate"]

# Reading goes on with the newest generation when its own is gone; so often is that looked for.
_TRIES = 10

if TYPE_CHECKING:  # with torch and without it, the checks of types see the same

    class _MapStyle:
        pass
else:
    _MapStyle = torch.utils.data.Dataset


class RingDataset(_MapStyle):
    """The samples of one generation of a ring, by index: a map-style `torch.utils.data.Dataset`.

    A sample is a dict of tensors by the names of its parts, or a tuple of them. Parts of bytes stay `bytes`. Tensors
    lie on the CPU and may be changed in place; nobody else sees a change.

    It is opened when it is made, on the newest generation of that moment, and stays with it: `len` does not change
    under a sampler. `refresh` goes on with the newest one, here and in the workers of this process's loaders (those of
    `persistent_workers` too); call it between epochs. When the generation is reclaimed before that, reading goes on
    with the newest one, while `len` stays: where the newest one is shorter, sample i is its sample i modulo its length.
    (A larger KEEP in the configuration keeps generations for longer.)

    It may be pickled, and used on in forked and spawned processes. There it stays with the generation; only workers of
    a `DataLoader` follow the `refresh` of the process that they belong to. Processes that train together, with a
    `DistributedSampler` each, have to agree on a generation: let one of them `refresh`, send its `generation` to the
    others, and let them `refresh` to that.

    Parameters
    ----------
    config : path of a YAML file, a dict of the same keys, or a `ringreel.Ring`.
    parts : names of the parts that are given, in this order; None: all, in the order of SAMPLE.
    as_tuple : whether a sample is a tuple of its parts, in that order, instead of a dict.
    transform : called with each sample (dict or tuple); what it returns is given in its place. It runs in the worker.
    timeout : seconds for which it waits for the ring's first generation; None: for ever.

    Raises
    ------
    ConfigError : the configuration cannot be used.
    ValueError : `parts` is empty, or names what is not in the configuration's SAMPLE.
    RingTimeoutError : nothing came in time.
    """

    def __init__(
        self,
        config: Config | Ring,
        parts: Sequence[str] | None = None,
        as_tuple: bool = False,
        transform: Callable[[Any], Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        ring = Ring._of(config)
        self._parts = _checked(parts, ring.sample)
        self._as_tuple = as_tuple
        self._transform = transform
        self._config = ring._config
        self._pid = os.getpid()
        self._dataset = Dataset(self._config, timeout, own=True)
        self._timeout = timeout
        self._number = self._dataset.generation
        self._length = len(self._dataset)
        self._missed: set[int] = set()
        #: The generation that workers are to read. They see what is written here after they were started.
        self._shared = torch.tensor([self._number]).share_memory_()
        _made.add(self)

    def __repr__(self) -> str:
        return f"<ringreel.torch.RingDataset {self._config.ring} (generation {self._number}, {self._length} samples)>"

    def __getstate__(self) -> dict[str, Any]:
        self._settle()  # so that workers that it is sent to follow it
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _pid=0)
        _made.add(self)

    @property
    def generation(self) -> int:
        """The number of the generation that was chosen when this was made or refreshed."""
        self._current()
        return self._number

    @property
    def missing(self) -> list[int]:
        """Generations that KEEP covers and that were missing when this process was to read them.

        See `ringreel.Dataset.missing`. Each worker of a `DataLoader` counts, and logs, its own.
        """
        return sorted(self._missed.union(self._dataset.missing))

    def __len__(self) -> int:
        """How many samples that generation holds. It changes with `refresh` only."""
        self._current()
        return self._length

    def __getitem__(self, index: int) -> Any:
        """The sample at `index` (an integer; from the end when negative), as a dict or tuple, or as transformed.

        Raises IndexError when there is no such sample; `DamagedSampleError` when it cannot be read; `ReclaimedError`
        when its generation is gone and there is no newer one; TypeError for a part whose element type torch does not
        have (name the `parts` you want, to leave that one out); KeyError when it has no part of a name in `parts`.
        """
        dataset = self._current()
        asked = operator.index(index)
        position = asked + self._length if asked < 0 else asked
        if not 0 <= position < self._length:
            raise IndexError(f"there is no sample {asked}: generation {self._number} holds {self._length}")
        sample = _read(dataset, position)
        tensors = sample.torch(*self._parts)
        for name, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor):
                mark(tensor, sample, name)
        value = tuple(tensors.values()) if self._as_tuple else tensors
        return value if self._transform is None else self._transform(value)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at `indices`, in that order. Raises what `dataset[index]` raises."""
        return [self[index] for index in indices]

    def refresh(self, generation: int | None = None) -> bool:
        """Goes on with the newest generation, or with `generation`. Whether that is another one.

        Call it between epochs, in the process that holds the loaders; their workers follow. Raises `ReclaimedError`
        when `generation` is not there, and RuntimeError in a worker.
        """
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("refresh() was called in a worker: call it where the DataLoader is, between epochs")
        self._current()
        before = self._number
        dataset = Dataset(self._config, self._timeout, generation, own=True)
        number = dataset.generation
        if generation is not None and number != generation:
            raise ReclaimedError(f"there is no generation {generation} in {self._config.ring}; the newest is {number}")
        self._adopt(dataset, number)
        self._shared[0] = number
        return number != before

    def _current(self) -> Dataset:
        """What is read in this process."""
        self._settle()
        if torch.utils.data.get_worker_info() is not None and int(self._shared) != self._number:
            number = int(self._shared)
            self._adopt(Dataset(self._config, self._timeout, number, own=True), number)
        return self._dataset

    def _settle(self) -> None:
        """Makes it this process's own, which others' `refresh` does not concern, unless this process is a worker."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        if torch.utils.data.get_worker_info() is None:
            self._shared = torch.tensor([self._number]).share_memory_()

    def _adopt(self, dataset: Dataset, number: int) -> None:
        self._missed.update(self._dataset.missing)
        self._dataset, self._number, self._length = dataset, number, len(dataset)


# Workers that are forked follow what they come from, which must not be what that process was itself forked from.
_made: "weakref.WeakSet[RingDataset]" = weakref.WeakSet()


def _settle_all() -> None:
    for dataset in list(_made):
        dataset._settle()


os.register_at_fork(before=_settle_all)


def _read(dataset: Dataset, index: int) -> Sample:
    """The sample at `index`, counted round from the beginning in a generation that is shorter.

    A dataset whose generation is reclaimed goes on with the newest one, which may be. Raises what `dataset[i]` raises.
    """
    for _ in range(_TRIES):
        inside = index % len(dataset)
        try:
            sample = dataset[inside]
        except IndexError:  # it went on to a shorter one just now
            continue
        if inside == index % len(dataset):
            return sample
    raise ReclaimedError(
        f"generations are reclaimed faster than sample {index} is read: raise KEEP or SWAP_CAP in the configuration"
    )


def _checked(parts: Sequence[str] | None, known: Sequence[str] | None) -> tuple[str, ...]:
    if parts is None:
        return ()
    if isinstance(parts, str) or not parts:
        raise ValueError(f"parts: expected names in a list, or None for all parts, found {parts!r}")
    for name in parts:
        if known is not None and name not in known:
            raise ValueError(f"parts: there is no part {name!r}; SAMPLE names {', '.join(known)}")
    return tuple(parts)
