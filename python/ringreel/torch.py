"""Rings as datasets for torch's ``DataLoader``.

``RingDataset`` reads the newest generation by index, with torch's own samplers. ``RingStream`` reads
one epoch after the other. Both work with torch's ``default_collate``; ``collate`` returns the same
batches and is faster for large samples, because a worker process does not copy them to the trainer.

Example:
    >>> import torch
    >>> from ringreel.torch import RingDataset, collate
    >>> dataset = RingDataset("config.yaml", as_tuple=True)
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=2, shuffle=True, collate_fn=collate)
    >>> for epoch in range(2):
    ...     for data, label in loader:
    ...         assert data.shape == (2, 2, 3)
    ...     changed = dataset.refresh()             # between epochs: switch to the newest generation
"""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringreel._arguments import integer, position_of
from ringreel._dataset import Dataset
from ringreel._errors import ReclaimedError
from ringreel._hold_out import HoldOut, checked_rule
from ringreel._ring import Config, Ring
from ringreel._sample import Sample
from ringreel._torch_bases import MapStyle
from ringreel._torch_batches import collate
from ringreel._torch_images import ImageRecordStream
from ringreel._torch_mixture import MixtureStream
from ringreel._torch_stream import RingStream
from ringreel._torch_transforms import Conversion
from ringreel._torch_validation import ValidationDataset
from ringreel._wording import counted

__all__ = ["ImageRecordStream", "MixtureStream", "RingDataset", "RingStream", "ValidationDataset", "collate"]

# Number of attempts to read a sample whose generation is reclaimed between lookup and read.
_TRIES = 10


class RingDataset(MapStyle):
    """The samples of one generation of a ring, by index: a map-style ``torch.utils.data.Dataset``.

    A sample is a dict of tensors by the names of its parts, or a tuple of them. Parts of bytes stay
    ``bytes``. Tensors are on the CPU and can be changed in place; the changes are not seen elsewhere.

    The dataset opens the ring when it is constructed, on the newest generation of that moment, and stays
    with it: ``len`` does not change under a sampler. ``refresh`` switches to the newest generation, in
    this process and in the workers of its loaders (``persistent_workers`` too); call it between epochs.
    If the generation is reclaimed before that, reading continues with the newest one, and ``len`` stays
    the same: if the newest one is shorter, sample ``i`` is its sample ``i`` modulo its length. A larger
    ``KEEP`` in the configuration keeps generations longer.

    The dataset can be pickled, and used in forked and spawned processes. There it stays with its
    generation; only workers of a ``DataLoader`` follow the ``refresh`` of the process that they belong
    to. Processes that train together, each with a ``DistributedSampler``, have to agree on a generation:
    call ``refresh`` in one of them, send its ``generation`` to the others, and call
    ``refresh(generation)`` there.

    A ``transform`` that has a parameter named ``rng`` gets a ``numpy.random.Generator``, a new one for each
    sample: ``numpy.random.default_rng([seed, epoch, generation, position])``, where ``position`` is that of
    the sample in its generation, and ``epoch`` the argument of ``set_epoch``, which is to be called before
    each epoch, as for a ``DistributedSampler``. A parameter named ``info`` gets the ``ringreel.Sample``.
    See ``RingStream``.

    Args:
        config (str | os.PathLike | Mapping | Ring): Path of a YAML file, a dict of the same keys, or a
            ``ringreel.Ring``.
        parts (Sequence[str] | None): Names of the parts to return, in this order. None (the default)
            returns all, in the order of ``SAMPLE``.
        as_tuple (bool): Whether a sample is a tuple of its parts instead of a dict. Default False.
        transform (Callable | None): Called with each sample (dict or tuple), in the worker, and with
            ``rng`` and ``info`` if it has parameters of these names (see above); its result is returned
            instead. Default None.
        timeout (float | None): Seconds to wait for the ring's first generation. None (the default) waits
            without limit.
        seed (int): Seed of ``rng``. Default 0.
        info (bool): Whether a sample has three more items: "sample_id" (str), "generation" and "position"
            (int). In a tuple they follow the parts. In a batch they are a list of str and two tensors.
            Default False.
        nested (bool): Whether parts with ``/`` in their names become dicts in dicts, so that part ``a/b`` is
            ``sample["a"]["b"]``, also in the batches. Default False.
        hold_out (HoldOut | None): A rule that leaves samples out, such as those of a ``ValidationDataset``.
            None (the default): all samples for training.

    Raises:
        ConfigError: The configuration cannot be used.
        ValueError: ``parts`` is empty, or names a part that is not in the configuration's ``SAMPLE``, or a
            part has the name of an item that ``info`` adds.
        RingTimeoutError: No generation appeared within ``timeout`` seconds.

    Example:
        >>> from ringreel.torch import RingDataset
        >>> dataset = RingDataset("config.yaml", parts=["label", "data"], as_tuple=True)
        >>> label, data = dataset[2]
        >>> len(dataset), label, data.shape
        (4, tensor(2), torch.Size([2, 3]))
    """

    def __init__(
        self,
        config: Config | Ring,
        parts: Sequence[str] | None = None,
        as_tuple: bool = False,
        transform: Callable[..., Any] | None = None,
        timeout: float | None = None,
        seed: int = 0,
        info: bool = False,
        hold_out: HoldOut | None = None,
        nested: bool = False,
    ) -> None:
        ring = Ring._of(config)
        self._given = Conversion(ring.sample, parts, as_tuple, transform, seed, info, nested)
        self._config = ring._config
        self._pid = os.getpid()
        self._hold_out = checked_rule(hold_out)
        self._dataset = self._opened(timeout, None)
        self._timeout = timeout
        self._number = self._dataset.generation
        self._length = len(self._dataset)
        self._missed: set[int] = set()
        #: The generation that workers read, and the epoch. They are in shared memory, so running workers see changes.
        self._shared = torch.tensor([self._number, 0]).share_memory_()
        _made.add(self)

    def __repr__(self) -> str:
        samples = counted(self._length, "sample")
        return f"<ringreel.torch.RingDataset {self._config.ring} (generation {self._number}, {samples})>"

    def __getstate__(self) -> dict[str, Any]:
        self._settle()  # so that workers that unpickle it follow this process
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _pid=0)
        _made.add(self)

    @property
    def generation(self) -> int:
        """Number of the generation that was selected at construction or by ``refresh``.

        Example:
            >>> from ringreel.torch import RingDataset
            >>> RingDataset("config.yaml").generation
            1
        """
        self._current()
        return self._number

    @property
    def missing(self) -> list[int]:
        """Generations that ``KEEP`` covers and whose directory or manifest was missing.

        See ``ringreel.Dataset.missing``. Each worker of a ``DataLoader`` counts and logs separately.

        Example:
            >>> from ringreel.torch import RingDataset
            >>> RingDataset("config.yaml").missing
            []
        """
        return sorted(self._missed.union(self._dataset.missing))

    def __len__(self) -> int:
        """Returns the number of samples of the generation. Only ``refresh`` changes it."""
        self._current()
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Returns a sample as a dict or a tuple, or the result of ``transform``.

        Args:
            index (int): Position of the sample; negative positions count from the end.

        Raises:
            IndexError: The generation has no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The generation was reclaimed, and no newer one exists.
            TypeError: torch does not have a part's element type. Name the other ``parts`` to leave that one
                out.
            KeyError: The sample has no part of a name in ``parts``.
        """
        dataset = self._current()
        position = position_of(operator.index(index), self._length, "generation %d has", self._number)
        sample = _read(dataset, position)
        sample.epoch = int(self._shared[1])
        return self._given(sample)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns the samples at ``indices``, in that order. Raises what ``dataset[index]`` raises."""
        return [self[index] for index in indices]

    def refresh(self, generation: int | None = None) -> bool:
        """Switches to the newest generation, or to a given one.

        Call it between epochs, in the process that holds the loaders. Their workers follow.

        Args:
            generation (int | None): Number of a generation. None (the default) is the newest one.

        Returns:
            bool: Whether the generation changed.

        Raises:
            ReclaimedError: Generation ``generation`` does not exist.
            RuntimeError: The caller is a worker.

        Example:
            >>> from ringreel.torch import RingDataset
            >>> dataset = RingDataset("config.yaml")
            >>> samples = [(np.zeros((2, 3), np.float32), 9)] * 4
            >>> summary = ringreel.run_generator(samples, "config.yaml", promote=True)
            >>> dataset.refresh(), dataset.generation
            (True, 2)
        """
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                "refresh() was called in a worker: call it in the process of the DataLoader, between epochs"
            )
        self._current()
        before = self._number
        dataset = self._opened(self._timeout, generation)
        number = dataset.generation
        if generation is not None and number != generation:
            raise ReclaimedError(f"{self._config.ring} has no generation {generation}; the newest is {number}")
        self._adopt(dataset, number)
        self._shared[0] = number
        return number != before

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch, which is part of the seed of a transform's ``rng``.

        Call it before each epoch, in the process that holds the loaders. Their workers follow. A resumed
        training that sets the same numbers gets the same random numbers. Without a call, the number is 0.

        Args:
            epoch (int): Number of the epoch, 0 or more.

        Raises:
            RuntimeError: The caller is a worker.
            TypeError: ``epoch`` is not an integer.
            ValueError: ``epoch`` is negative.

        Example:
            >>> from ringreel.torch import RingDataset
            >>> dataset = RingDataset("config.yaml", transform=lambda sample, rng: rng.integers(100))
            >>> first = dataset[0]
            >>> dataset.set_epoch(1)
            >>> dataset[0] == first
            False
            >>> dataset.set_epoch(0)
            >>> dataset[0] == first
            True
        """
        epoch = integer("epoch", epoch, 0)
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("set_epoch() was called in a worker: call it in the process of the DataLoader")
        self._settle()
        self._shared[1] = epoch

    def _opened(self, timeout: float | None, generation: int | None) -> Dataset:
        return Dataset(self._config, timeout, generation, own=True, hold_out=self._hold_out)

    def _current(self) -> Dataset:
        """Returns the dataset of this process. In a worker, follows the trainer's ``refresh`` first."""
        self._settle()
        if torch.utils.data.get_worker_info() is not None and int(self._shared[0]) != self._number:
            number = int(self._shared[0])
            self._adopt(self._opened(self._timeout, number), number)
        return self._dataset

    def _settle(self) -> None:
        """Stops following the parent process's ``refresh``, unless this process is a worker."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        if torch.utils.data.get_worker_info() is None:
            self._shared = torch.tensor([self._number, int(self._shared[1])]).share_memory_()

    def _adopt(self, dataset: Dataset, number: int) -> None:
        self._missed.update(self._dataset.missing)
        self._dataset, self._number, self._length = dataset, number, len(dataset)


# A forked worker follows the generation of its parent process, so before a fork the parent stops following its own.
_made: weakref.WeakSet[RingDataset] = weakref.WeakSet()


def _settle_all() -> None:
    for dataset in list(_made):
        dataset._settle()


os.register_at_fork(before=_settle_all)


def _read(dataset: Dataset, index: int) -> Sample:
    """Returns the sample at ``index``, modulo the number of samples of a shorter generation.

    A dataset whose generation is reclaimed continues with the newest one, which can be shorter.

    Raises:
        ReclaimedError: Generations are reclaimed faster than the sample is read.
    """
    for _ in range(_TRIES):
        inside = index % max(len(dataset), 1)  # a rule can hold all samples out
        try:
            sample = dataset[inside]
        except IndexError:  # the dataset has just switched to a shorter generation
            continue
        if inside == index % max(len(dataset), 1):
            return sample
    raise ReclaimedError(
        f"generations are reclaimed faster than sample {index} is read: raise KEEP or SWAP_CAP in the configuration"
    )
