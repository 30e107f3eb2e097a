"""A ring as an ``IterDataset`` of Grain: one epoch after the other. Imports Grain."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import grain
import numpy as np

from ringreel._arguments import chosen_parts
from ringreel._dataset_streams import DatasetStreams
from ringreel._environment import jax_rank
from ringreel._hold_out import HoldOut
from ringreel._ring import Config, Ring
from ringreel._sample import Sample, writable_values
from ringreel._stream import Stream
from ringreel._worker_watch import end_with_parent

if TYPE_CHECKING:  # so that mypy sees the same classes with Grain and without it

    class _IterDataset:
        pass

    class _DatasetIterator:
        _ctx: Any

        def close(self) -> None: ...
        def _assert_not_closed(self) -> None: ...
else:
    _IterDataset = grain.IterDataset
    _DatasetIterator = grain.DatasetIterator

# Grain creates the iterators of several workers in several threads.
_counting = threading.Lock()


class RingIterDataset(_IterDataset):
    """The samples of a ring, one epoch after the other: a ``grain.IterDataset``.

    An epoch is one pass over the generation that is newest when the epoch starts. A generation that is
    being read is not reclaimed, and each pass counts for ``REUSE``, as for ``ringreel.Ring.stream``.

    An item is a dict from the name of a part to a NumPy array, or to ``bytes``, as for ``RingSource``. With
    ``equal="pad"`` it has one more, "is_padding", an array of one bool.

    The workers of ``mp_prefetch`` share the samples, and each sample is delivered once. The order is the
    same for any number of workers if ``mp_prefetch`` comes before ``batch`` and the number of workers
    divides the number of a rank's samples in each epoch. ``sequential_slice`` must be False.

    Without a ``rank``, the dataset takes it from JAX, if that has several processes, otherwise from
    ``torch.distributed``, if that is initialized, and otherwise from the environment. Several ranks should
    pass ``equal`` and the same ``run``.

    ``get_state`` of an iterator, also of one that transformations return, is the exact position, in values
    of JSON's types. ``set_state`` continues with the item that follows, in this process or another one, with
    the same number of ranks and workers. It continues the run in which the state was saved, and ignores
    ``run``.

    The first iteration begins with the first epoch of its run. Each later iteration of the dataset continues
    the run with the generation that is newest when it starts. Use ``epochs`` instead of Grain's ``repeat``,
    which reads the same generations again.

    Args:
        config (str | os.PathLike | Mapping | Ring): Path of a YAML file, a dict of the same keys, or a
            ``ringreel.Ring``.
        parts (Iterable[str] | None): Names of the parts to return, in this order. None (the default)
            returns all.
        rank (int | None): This process's rank. Give ``rank`` and ``world_size`` together, or neither (the
            default).
        world_size (int | None): Number of ranks, without workers.
        shuffle (bool): As for ``ringreel.Ring.stream``, and so are the arguments that follow.
        seed (int): Seed of the random order. Default 0.
        equal (str | None): ``"drop"``, ``"wrap"`` or ``"pad"``, which give all ranks and workers the same
            number of steps, or None (the default), which lets shares differ by one step.
        pad_value (float | Mapping[str, float]): Value of the elements of a padding sample, or the values
            by part. Default -100.
        epochs (int | None): Number of epochs per iteration. None (the default) never ends.
        prefetch_bytes (int | None): Bytes of samples that are read ahead at most.
        run (str | None): Name of the run.
        replay (str | None): Name of a past run to read again.
        repeat (bool): Whether a generation is read again while there is no newer one. Default True.
        timeout (float | None): Seconds to wait for a generation. None (the default) waits without limit.
        threads (int | None): Number of threads that read ahead. None (the default) uses up to 4.
        hold_out (HoldOut | None): Rule that leaves samples out. None (the default) leaves out none.

    Raises:
        ConfigError: The configuration cannot be used.
        ValueError: An argument is out of range, or ``parts`` is empty, or ``parts`` or ``pad_value`` names
            a part that is not in the configuration's ``SAMPLE``. (If the configuration has no ``SAMPLE``,
            the first item raises it.)
        TypeError: An argument has the wrong type.

    Example:
        >>> import grain
        >>> from ringreel.grain import RingIterDataset
        >>> samples = RingIterDataset("config.yaml", parts=["data", "label"], shuffle=True, seed=1, epochs=2)
        >>> for batch in samples.batch(4):
        ...     print(batch["data"].shape, sorted(batch["label"].tolist()))
        (4, 2, 3) [0, 1, 2, 3]
        (4, 2, 3) [0, 1, 2, 3]

        A state is saved after an item, and another iterator continues with the next one:

        >>> iterator = iter(RingIterDataset("config.yaml", parts=["label"], epochs=1))
        >>> next(iterator), next(iterator)
        ({'label': array(0)}, {'label': array(1)})
        >>> state = iterator.get_state()
        >>> resumed = iter(RingIterDataset("config.yaml", parts=["label"], epochs=1))
        >>> resumed.set_state(state)
        >>> list(resumed)
        [{'label': array(2)}, {'label': array(3)}]
    """

    def __init__(
        self,
        config: Config | Ring,
        parts: Iterable[str] | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        equal: str | None = None,
        pad_value: float | Mapping[str, float] = -100,
        epochs: int | None = None,
        prefetch_bytes: int | None = None,
        run: str | None = None,
        replay: str | None = None,
        repeat: bool = True,
        timeout: float | None = None,
        threads: int | None = None,
        hold_out: HoldOut | None = None,
    ) -> None:
        super().__init__()
        self._streams = DatasetStreams(
            config,
            "grain",
            rank,
            world_size,
            run,
            jax_rank,
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
        self._pads = equal == "pad"
        self._parts = parts if parts is None else tuple([parts] if isinstance(parts, str) else parts)
        self._are_checked = False
        known = self._streams.ring.sample
        if known is not None or self._parts == ():
            self._check_parts(known or [])
        self._worker = (0, 1)
        #: Iterations that were begun, by worker and number of workers.
        self._begun: dict[tuple[int, int], int] = {}

    def __str__(self) -> str:
        return f"RingIterDataset({self._streams.ring.path})"

    def __getstate__(self) -> dict[str, Any]:
        # Grain makes the copy of a worker for an iteration that was counted before.
        with _counting:
            begun = {worker: max(number - 1, 0) for worker, number in self._begun.items()}
        return {**self.__dict__, "_begun": begun}

    def __iter__(self) -> RingDatasetIterator:
        return RingDatasetIterator(self)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Makes this dataset read the share of one worker. Grain calls it in the workers of ``mp_prefetch``.

        Args:
            sl (slice): ``slice(worker, None, workers)``.
            sequential_slice (bool): Must be False (the default).

        Raises:
            ValueError: The share is not every n-th sample.

        Example:
            >>> import grain
            >>> from ringreel.grain import RingIterDataset
            >>> dataset = RingIterDataset("config.yaml", parts=["label"], epochs=1)
            >>> dataset.set_slice(slice(1, None, 2))
            >>> list(dataset)
            [{'label': array(1)}, {'label': array(3)}]
        """
        if sequential_slice:
            raise ValueError(
                "sequential_slice: expected False, because the number of samples of the next generation is not known"
            )
        if sl.stop is not None or not 0 <= (sl.start or 0) < (sl.step or 1):
            raise ValueError(f"sl: expected slice(worker, None, workers), found {sl}")
        worker, workers = self._worker
        self._worker = worker + workers * (sl.start or 0), workers * (sl.step or 1)

    def _share(self) -> tuple[int, int]:
        """Returns the share of this worker, and the number of shares: ranks times workers."""
        rank, world_size = self._streams.rank()
        worker, workers = self._worker
        # So worker w of n reads the items w, w + n, ... of its rank, and Grain puts them in order again.
        return rank + world_size * worker, world_size * workers

    def _stream(self, run: str | None, turn: str | None) -> Stream:
        """Returns the stream of this worker.

        Args:
            run (str | None): Name of the run.
            turn (str | None): Text that the workers of this rank have in common in a later iteration.
        """
        if multiprocessing.current_process().daemon:
            end_with_parent()
        return self._streams.open(*self._share(), run, turn)

    def _turn(self, worker: tuple[int, int], begins: bool) -> str | None:
        """Returns a text that identifies an iteration of this dataset to its workers, or None for the first one.

        Args:
            worker (tuple[int, int]): Number of the worker, and number of workers of the iteration.
            begins (bool): Whether the iteration is to be counted.
        """
        with _counting:
            # An iteration with another number of workers was an earlier one.
            others = [number for key, number in self._begun.items() if key[1] != worker[1]]
            number = max(self._begun.get(worker, 0), *others, 0)
            if begins:
                self._begun[worker] = number + 1
        return f"{self._streams.token}.{number}" if number else None

    def _check_parts(self, names: list[str]) -> None:
        """Chooses the parts to return.

        Raises:
            ValueError: There are none, ``names`` lacks one of them, or "is_padding" is the name of a part.
        """
        self._parts = chosen_parts(self._parts, names, self._streams.ring.path)
        if self._pads and "is_padding" in self._parts:
            raise ValueError('parts: samples have a part "is_padding"; leave it out, or use another equal')
        self._are_checked = True

    def _item(self, sample: Sample) -> dict[str, Any]:
        if not self._are_checked:
            self._check_parts(list(sample))
        item = writable_values(sample, self._parts or ())
        if self._pads:
            item["is_padding"] = np.array(sample.is_padding)
        return item


class RingDatasetIterator(_DatasetIterator):
    """The iterator of a ``RingIterDataset``: the items of one worker.

    It closes its stream at the end of the iteration, and when it is closed or collected.
    """

    def __init__(self, dataset: RingIterDataset) -> None:
        super().__init__()
        self._dataset = dataset
        self._stream: Stream | None = None
        #: Whether the iteration was counted. If so, its run and its turn are known.
        self._is_counted = False
        self._run: str | None = None
        self._turn: str | None = None
        #: The state at the end.
        self._last: dict[str, Any] | None = None
        #: Grain replaces it in the iterators of workers, also in those that it makes in the main process.
        self._alone = self._ctx.mp_context

    def __next__(self) -> dict[str, Any]:
        self._assert_not_closed()
        if self._last is not None:
            raise StopIteration
        if self._stream is None:
            self._begin(True)
            self._stream = self._dataset._stream(self._run, self._turn)
        try:
            sample = next(self._stream)
        except StopIteration:
            self._last = self._state(self._stream.state_dict())
            self._stream.close()
            raise
        return self._dataset._item(sample)

    def get_state(self) -> dict[str, Any]:
        """Returns the position of this worker. Never opens the ring, and never blocks.

        Returns:
            dict: Values of JSON's types: ``run`` (str | None), ``turn`` (str | None, the text that identifies
            a later iteration), and ``stream`` (the state of the stream, empty before the first item).

        Raises:
            ValueError: The iterator was closed.
        """
        if self._last is not None:
            return self._last
        if self._stream is not None:
            self._assert_not_closed()
            return self._state(self._stream.state_dict())
        # In the main process, Grain takes the first state of each worker from an iterator that it makes for that.
        self._begin(self._ctx.mp_context is not self._alone)
        return self._state({})

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from the position that ``get_state`` returned, in this process or another one.

        Args:
            state (dict): The state of the same worker, of the same number of ranks and workers.

        Raises:
            ValueError: ``state`` is not such a state; or it is the state before the first item of a later
                iteration, which does not say where that begins.
            SampleError: ``state`` is that of another ring, seed or order.
        """
        self._assert_not_closed()
        place = self._checked(state)
        self._begin(True)
        stream = self._dataset._stream(state["run"], None)
        try:
            stream.load_state_dict(place)
        except BaseException:
            stream.close()
            raise
        before, self._stream, self._last = self._stream, stream, None
        self._run, self._turn = state["run"], state["turn"]
        if before is not None:
            before.close()

    def close(self) -> None:
        """Ends the iteration and closes its stream."""
        super().close()
        if self._stream is not None:
            self._stream.close()

    def _begin(self, begins: bool) -> None:
        """Decides in which run this iteration is, and which turn of it; counts the iteration if it ``begins``."""
        if not self._is_counted:
            context = self._ctx.mp_context
            self._turn = self._dataset._turn((context.process_index, context.process_count), begins)
            self._run = self._dataset._streams.run_name()
            self._is_counted = begins

    def _state(self, place: dict[str, Any]) -> dict[str, Any]:
        return {"run": self._run, "turn": self._turn, "stream": place}

    def _checked(self, state: Any) -> dict[str, Any]:
        """Returns the state of the stream in ``state``.

        Raises:
            ValueError: See ``set_state``.
        """
        if not isinstance(state, Mapping) or state.keys() != {"run", "turn", "stream"}:
            raise ValueError(
                "state: expected the state of a RingIterDataset's iterator: was it saved with other transformations, "
                "or another number of workers?"
            )
        place: dict[str, Any] = state["stream"]
        if not place and state["turn"] is not None:
            raise ValueError(
                "state: saved before the first item of a later iteration of the dataset, so it lacks the start of that "
                "iteration: save the state after each worker has returned an item"
            )
        share = self._dataset._share()
        saved = (place.get("worker"), place.get("world"))
        if place and saved != share:
            raise ValueError(
                f"state: it is that of share {saved[0]} of {saved[1]} (ranks times workers), but this is share "
                f"{share[0]} of {share[1]}: resume with the same number of ranks and workers"
            )
        return place
