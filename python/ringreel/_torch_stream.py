"""A ring as an iterable dataset: one epoch after the other, shared among ranks and loader workers."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing.context
import multiprocessing.sharedctypes
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ringreel._dataset import Dataset
from ringreel._dataset_streams import DatasetStreams
from ringreel._errors import RingreelError
from ringreel._hold_out import HoldOut
from ringreel._length import length_of, length_of_epochs, share_of
from ringreel._ring import Config, Ring
from ringreel._sample import Sample
from ringreel._stats import StreamStats
from ringreel._stream import Stream
from ringreel._torch_bases import IterableStyle
from ringreel._torch_transforms import Conversion
from ringreel._worker_watch import end_with_parent


class _Loops:
    """The iterators of a ``RingStream`` in this process."""

    def __init__(self, suspends: Any = None) -> None:
        self.pid = os.getpid()
        # Shared with the loader workers, which see there that their iterators are to be suspended.
        self.suspends = multiprocessing.sharedctypes.RawValue(ctypes.c_bool, False) if suspends is None else suspends
        self.running: weakref.WeakSet[RingIterator] = weakref.WeakSet()
        self.ended = StreamStats()

    def end(self, iterator: RingIterator) -> None:
        """Counts an iterator that is not used any more."""
        self.running.discard(iterator)
        self.ended = StreamStats.sum([self.ended, iterator.stats()])

    def stats(self) -> StreamStats:
        return StreamStats.sum([self.ended, *(iterator.stats() for iterator in list(self.running))])


class RingStream(IterableStyle):
    """The samples of a ring, one epoch after the other: a ``torch.utils.data.IterableDataset``.

    The stream takes its rank from ``torch.distributed``, if that is initialized, and otherwise from the
    environment, and its worker number from the ``DataLoader``. Each worker gets its own share, and all
    have the same number of steps, so that no rank waits for another at the end of an epoch. Each
    iteration yields ``epochs`` epochs (None: without end), and starts where all workers of the previous
    iteration were, with the newest generation of that moment. A replay starts from the beginning.

    A sample is a dict of tensors by the names of its parts, or a tuple of them. Parts of bytes stay
    ``bytes``. With ``equal="pad"`` it has one more item, "is_padding" (the last one of a tuple): a tensor
    of one bool. Tensors are on the CPU and can be changed in place; the changes are not seen elsewhere.

    ``len`` is the number of samples of this rank in one iteration, and ``len`` of a ``DataLoader`` the number
    of its batches. Both count ``epochs`` epochs of a generation as long as the newest one.

    The iterator has ``state_dict`` and ``load_state_dict``, so a ``StatefulDataLoader`` of torchdata
    resumes exactly.

    A ``transform`` that has a parameter named ``rng`` gets a ``numpy.random.Generator``, a new one for each
    sample: ``numpy.random.default_rng([seed, epoch, generation, position])``, where ``epoch`` is the number
    of the epoch in its run, and ``position`` that of the sample in its generation. So a random transform
    returns the same for any number of ranks, workers and threads, and after a resume. It must not use other
    random numbers. A sample that ``equal="wrap"`` repeats in an epoch gets the same numbers again. A
    parameter named ``info`` gets the ``ringreel.Sample``: its ``sample_id``, ``generation``, ``position``,
    ``epoch``, ``meta`` and ``is_padding``. The signature is inspected once, at construction.

    Args:
        config (str | os.PathLike | Mapping | Ring): Path of a YAML file, a dict of the same keys, or a
            ``ringreel.Ring``.
        equal (str | None): ``"drop"`` (the default), ``"wrap"``, ``"pad"``, or None, which lets shares
            differ by one step. See ``ringreel.Ring.stream``.
        parts (Sequence[str] | None): Names of the parts to return, in this order. None (the default)
            returns all, in the order of ``SAMPLE``.
        as_tuple (bool): Whether a sample is a tuple of its parts instead of a dict. Default False.
        transform (Callable | None): Called with each sample (dict or tuple), in the worker, and with
            ``rng`` and ``info`` if it has parameters of these names (see above); its result is returned
            instead. Default None.
        info (bool): Whether a sample has three more items: "sample_id" (str), "generation" and "position"
            (int). In a tuple they follow the parts. In a batch they are a list of str and two tensors.
            Default False.
        rank (int | None): This process's rank. Give ``rank`` and ``world_size`` together, or neither (the
            default).
        world_size (int | None): Number of ranks, without loader workers.
        shuffle (bool): As for ``ringreel.Ring.stream``, and so are the arguments that follow.
        seed (int): Seed of the random order, and of ``rng``. Default 0.
        pad_value (float | Mapping[str, float]): Value of the elements of a padding sample, or the values
            by part, as in ``{"input_ids": 0, "labels": -100}``; the elements of the other parts are then
            -100. Default -100.
        epochs (int | None): Number of epochs per iteration. None (the default) never ends.
        prefetch_bytes (int | None): Bytes of samples that are read ahead at most.
        run (str | None): Name of the run.
        replay (str | None): Name of a past run to read again.
        repeat (bool): Whether a generation is read again while there is no newer one. Default True.
        timeout (float | None): Seconds to wait for a generation. None (the default) waits without limit.
        threads (int | None): Number of threads that read ahead. None (the default) uses up to 4.
        nested (bool): Whether parts with ``/`` in their names become dicts in dicts, so that part ``a/b`` is
            ``sample["a"]["b"]``, also in the batches. Default False.
        hold_out (HoldOut | None): A rule that leaves samples out, such as those of a ``ValidationDataset``.

    Raises:
        ConfigError: The configuration cannot be used.
        ValueError: An argument is out of range, or ``parts`` is empty, or ``parts`` or ``pad_value`` names
            a part that is not in the configuration's ``SAMPLE``, or a part has the name of an item that
            ``info`` adds.
        TypeError: An argument has the wrong type.

    Example:
        >>> import torch
        >>> from ringreel.torch import RingStream
        >>> stream = RingStream("config.yaml", epochs=1, parts=["data"], as_tuple=True)
        >>> for (data,) in torch.utils.data.DataLoader(stream, batch_size=2):
        ...     print(data.shape)
        torch.Size([2, 2, 3])
        torch.Size([2, 2, 3])

        A random transform, and the origin of each sample:

        >>> def noisy(sample, rng, info):
        ...     sample["data"] += torch.from_numpy(rng.normal(0, 0.1, (2, 3)).astype(np.float32))
        ...     sample["number"] = info.meta["number"]
        ...     return sample
        >>> stream = RingStream("config.yaml", epochs=1, transform=noisy, info=True)
        >>> batch = next(iter(torch.utils.data.DataLoader(stream, batch_size=2)))
        >>> batch["number"], batch["position"], len(batch["sample_id"])
        (tensor([0, 1]), tensor([0, 1]), 2)
    """

    _shares_itself = True

    def __init__(
        self,
        config: Config | Ring,
        *,
        equal: str | None = "drop",
        parts: Sequence[str] | None = None,
        as_tuple: bool = False,
        transform: Callable[..., Any] | None = None,
        info: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        pad_value: float | Mapping[str, float] = -100,
        epochs: int | None = None,
        prefetch_bytes: int | None = None,
        run: str | None = None,
        replay: str | None = None,
        repeat: bool = True,
        timeout: float | None = None,
        threads: int | None = None,
        hold_out: HoldOut | None = None,
        nested: bool = False,
    ) -> None:
        self._streams = DatasetStreams(
            config,
            "loader",
            rank,
            world_size,
            run,
            shuffle=shuffle,
            seed=seed,
            equal=equal,
            pad_value=pad_value,
            epochs=epochs,
            prefetch_bytes=prefetch_bytes,
            replay=replay,
            repeat=repeat,
            timeout=timeout,
            threads=threads,
            hold_out=hold_out,
        )
        self._turns = 0
        self._newest: Dataset | None = None
        self._loops = _Loops()
        known = self._streams.ring.sample
        self._given = Conversion(known, parts, as_tuple, transform, seed, info, nested, padding=equal == "pad")

    def __repr__(self) -> str:
        return f"<ringreel.torch.RingStream {self._streams.ring.path}>"

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_newest": None}
        del state["_loops"]
        # Only a process that is being started can share memory with this one. A copy is independent.
        if multiprocessing.context.get_spawning_popen() is not None:
            state["_suspends"] = self._loops.suspends
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        self._loops = _Loops(state.pop("_suspends", None))
        self.__dict__.update(state)

    def _here(self) -> _Loops:
        """Returns the iterators of this process."""
        if self._loops.pid != os.getpid():  # in a forked child, where the iterators are the parent's
            self._loops = _Loops(self._loops.suspends)
        return self._loops

    def stats(self) -> StreamStats:
        """Returns how the iterators of this process and their callers spent their time. Never blocks.

        Adds up all iterations, each from its first sample to its end. The conversion to tensors and
        ``transform`` count as the caller's step. With a ``DataLoader`` that has workers, the streams are in the
        workers: each measures its own, whose caller is the worker, and this process has none. In a worker,
        ``torch.utils.data.get_worker_info().dataset.stats()`` returns them. ``ringreel status`` and
        ``ringreel top`` show those of all workers.

        Returns:
            StreamStats: Times in seconds, and counts. See ``ringreel.Stream.stats``.

        Example:
            >>> import torch
            >>> from ringreel.torch import RingStream
            >>> stream = RingStream("config.yaml", epochs=1, repeat=False)
            >>> batches = list(torch.utils.data.DataLoader(stream, batch_size=2))
            >>> stats = stream.stats()
            >>> stats.distinct, stats.share_read, stats.starved < 1
            (4, 1.0, True)
        """
        return self._here().stats()

    def suspend(self) -> None:
        """Keeps the places of all iterators in their run, those of loader workers too.

        For a program that saves its state, ends, and is started again: see ``ringreel.Stream.suspend``. Call it
        after the states were saved, and then end the program. The iterators of this process end. Those of
        workers end with their loader, and then stay in the run.

        Example:
            >>> from ringreel.torch import RingStream
            >>> stream = RingStream("config.yaml", run="nightly")
            >>> iterator = iter(stream)
            >>> sample, state = next(iterator), iterator.state_dict()
            >>> stream.suspend()
            >>> list(iterator)
            []
        """
        loops = self._here()
        loops.suspends.value = True
        for iterator in list(loops.running):
            iterator.suspend()

    def __len__(self) -> int:
        """Returns the number of samples of this rank in one iteration, over all its epochs and workers.

        Each epoch is counted as if it read a generation as long as the newest one of this moment; waits for a
        first one. A generation holds ``SWAP_CAP`` samples at most, but fewer if it was promoted before it was
        full. With ``equal=None`` damaged samples are counted, although they are skipped.

        ``len`` of a ``DataLoader`` is the number of its batches, for any number of workers. Each worker makes
        the batches of its own samples, so there can be one batch more per worker than without workers.

        Raises:
            TypeError: The number is unknown: ``epochs`` is None, or the stream is a replay.
            RingTimeoutError: No generation appeared within ``timeout`` seconds.

        Example:
            >>> import torch
            >>> from ringreel.torch import RingStream
            >>> stream = RingStream("config.yaml", epochs=2)
            >>> len(stream), len(torch.utils.data.DataLoader(stream, batch_size=3))
            (8, 3)
        """
        return length_of(self)

    def _count(self, share: int, shares: int) -> int:
        """Returns the number of samples of one share in one iteration."""
        ring, options = self._streams.ring, self._streams.options
        epochs = length_of_epochs(options["epochs"], options["replay"])
        if epochs == 0:
            return 0
        if self._newest is None:
            self._newest = ring.dataset(options["timeout"], hold_out=options["hold_out"])
        else:
            self._newest.refresh()
        return epochs * share_of(len(self._newest), share, shares, options["equal"])

    def __bool__(self) -> bool:
        """Returns True, because whether there are samples is unknown before they are read."""
        return True

    def __iter__(self) -> RingIterator:
        rank, world_size = self._rank_and_world_size()
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if info is not None:
            # Otherwise torch may end the worker of a killed process in an orderly way. The worker would leave the run,
            # which would then keep no generation for a restart.
            end_with_parent()
        # Identifies this loop: equal in all its workers, and different in every other loop of persistent workers too.
        self._turns += 1
        turn = f"{self._streams.token if info is None else info.seed - info.id}.{self._turns}"
        run = self._streams.run_name()
        stream = self._streams.open(rank * workers + worker, world_size * workers, run, turn)
        return RingIterator(stream, self._given, self._here())

    def _rank_and_world_size(self) -> tuple[int, int]:
        """Returns the rank of this process and the number of ranks."""
        return self._streams.rank()


class RingIterator(Iterator[Any]):
    """The iterator of a ``RingStream``: the samples of one worker.

    Example:
        >>> from ringreel.torch import RingStream
        >>> iterator = iter(RingStream("config.yaml", parts=["label"]))
        >>> next(iterator)
        {'label': tensor(0)}
    """

    def __init__(self, stream: Stream, given: Callable[[Sample], Any], loops: _Loops) -> None:
        self._stream = stream
        self._given = given
        self._loops = loops
        loops.running.add(self)

    def __del__(self) -> None:
        if self._loops.pid != os.getpid():  # the parent's, in a forked child
            return
        if self._loops.suspends.value:
            self.suspend()
        with contextlib.suppress(RingreelError):
            self._loops.end(self)

    def __iter__(self) -> RingIterator:
        return self

    def __next__(self) -> Any:
        return self._given(next(self._stream))

    @property
    def missing(self) -> list[int]:
        """Generations that ``KEEP`` covers and were missing. See ``ringreel.Stream.missing``."""
        return self._stream.missing

    def stats(self) -> StreamStats:
        """Returns the times and counts of this worker. See ``RingStream.stats``.

        Returns:
            StreamStats: Times in seconds, and counts.

        Example:
            >>> from ringreel.torch import RingStream
            >>> iterator = iter(RingStream("config.yaml"))
            >>> sample = next(iterator)
            >>> iterator.stats().distinct
            1
        """
        return self._stream.stats()

    def close(self) -> None:
        """Ends the iterator, and leaves its run. See ``ringreel.Stream.close``.

        Example:
            >>> from ringreel.torch import RingStream
            >>> iterator = iter(RingStream("config.yaml"))
            >>> sample = next(iterator)
            >>> iterator.close()
            >>> list(iterator)
            []
        """
        self._stream.close()

    def suspend(self) -> None:
        """Ends the iterator, but keeps its place in the run. See ``ringreel.Stream.suspend``.

        Example:
            >>> from ringreel.torch import RingStream
            >>> iterator = iter(RingStream("config.yaml", run="nightly"))
            >>> sample, state = next(iterator), iterator.state_dict()
            >>> iterator.suspend()
            >>> list(iterator)
            []
        """
        self._stream.suspend()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of this worker. See ``ringreel.Stream.state_dict``.

        Before the first sample, it opens the ring and returns where the worker will start. While
        ``__next__`` waits, it opens nothing and returns at once.

        Returns:
            dict: The position, in values of JSON's types.

        Example:
            >>> from ringreel.torch import RingStream
            >>> iterator = iter(RingStream("config.yaml"))
            >>> sample = next(iterator)
            >>> iterator.state_dict()["step"]
            1
        """
        return self._stream._place()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continues from a position. See ``ringreel.Stream.load_state_dict``.

        Args:
            state (Mapping | Sequence[Mapping]): The position of this worker, or those of all workers.

        Raises:
            SampleError: The state is that of another ring, seed, order or worker.
            ValueError: ``state`` is not the state of a stream.

        Example:
            >>> from ringreel.torch import RingStream
            >>> iterator = iter(RingStream("config.yaml", run="a", parts=["label"]))
            >>> sample = next(iterator)
            >>> resumed = iter(RingStream("config.yaml", run="a", parts=["label"]))
            >>> resumed.load_state_dict(iterator.state_dict())
            >>> next(resumed)
            {'label': tensor(1)}
        """
        self._stream.load_state_dict(state)
