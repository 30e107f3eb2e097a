"""Streams: samples one after the other, for one worker of many."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringreel import _ringreel
from ringreel._closing import Closing
from ringreel._errors import (
    CoordinationDeniedError,
    CoordinationUnavailableError,
    DamagedSampleError,
    RingreelError,
    RingTimeoutError,
)
from ringreel._length import ADVICE, length_of_epochs
from ringreel._log import Waiting, logger
from ringreel._mapped_stream import MappedStream
from ringreel._sample import Sample
from ringreel._stats import StreamStats

if TYPE_CHECKING:
    from typing_extensions import Self


class Stream(Closing, Iterator[Sample]):
    """An iterator over this worker's share of one epoch after the other, made by ``Ring.stream``.

    An epoch is one pass over one generation. The stream opens the ring with its first sample. A sample
    that cannot be read is counted in ``damaged`` and logged once as a warning. It is skipped, or, if all
    workers are to have the same number of steps, replaced by another one. A stream belongs to one
    process; in a forked child, make a new one. It is a context manager: leaving the ``with`` block
    closes it.

    A signal handler or another thread may call ``state_dict`` and read ``epochs`` and ``run`` while
    ``next`` waits. They return at once, as of the last sample that ``next`` returned. ``close`` ends the
    wait. Any other call from a signal handler that interrupted a call of the same stream raises
    ``RingreelError``; from another thread it waits for that call to return.

    Raises:
        RingTimeoutError: No sample arrived within ``timeout`` seconds.
        StaleError: No new samples arrive, and ``ON_STALE`` is ``stop``.
        OSError: The filesystem reports an error.

    Example:
        >>> with ringreel.Ring("config.yaml").stream(shuffle=True, seed=1, epochs=2) as stream:
        ...     labels = [int(sample["label"]) for sample in stream]
        >>> sorted(labels), stream.damaged
        ([0, 0, 1, 1, 2, 2, 3, 3], 0)
    """

    def __init__(self, config: _ringreel.Config, worker: int, workers: int, **options: Any) -> None:
        self._config = config
        self._share = (worker, workers)
        self._options = options
        self._stream: _ringreel.Stream | None = None
        self._closed = False
        self._damaged: set[str | None] = set()
        self._missed: list[int] = []
        self._stats = StreamStats()

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        """Returns the number of samples that are left to ``next``.

        Opens the ring, and waits for its first generation. The first call before the first sample chooses the
        generation of the first epoch. With ``epochs=1`` the number is exact. Further epochs are counted as if
        they read a generation of the same length: a generation holds ``SWAP_CAP`` samples at most, but fewer
        if it was promoted before it was full. With ``equal=None`` damaged samples are counted, although they
        are skipped.

        Raises:
            TypeError: The number is unknown: ``epochs`` is None, the stream is a replay, or no generation can be
                chosen for its next epoch yet.
            RingTimeoutError: No generation appeared within ``timeout`` seconds.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=2)
            >>> len(stream)
            8
            >>> sample = next(stream)
            >>> len(stream)
            7
        """
        if self._closed:
            return 0
        epochs = length_of_epochs(self._options["epochs"], self._options["replay"])
        if epochs == 0:
            return 0
        stream = self._own()
        try:
            stream.prepare(Waiting())
        except (RingTimeoutError, CoordinationDeniedError):
            raise
        except (CoordinationUnavailableError, OSError) as error:
            raise TypeError(f"the length is unknown, because the ring does not answer: {error}") from error
        finished, steps = stream.steps_left() or (0, None)
        if finished >= epochs:
            return 0
        if steps is None:
            raise TypeError(
                f"the length of this stream is unknown until there is a generation for its next epoch: {ADVICE}"
            )
        left, whole = steps
        return left + (epochs - finished - 1) * whole

    def __bool__(self) -> bool:
        """Returns True, because whether samples are left is unknown before they are read."""
        return True

    def __next__(self) -> Sample:
        if self._closed:
            raise StopIteration
        waiting = Waiting()
        stream = self._own()
        while True:
            given = stream.next(waiting)
            if given is None:
                raise StopIteration
            sample, is_padding, epoch, error = given
            if error is not None:
                self._tell(error, skipped=sample is None)
            if sample is not None:
                return Sample(*sample, is_padding, epoch)

    def _own(self) -> _ringreel.Stream:
        """Returns the stream of this process. It opens the ring with the first call that waits."""
        if self._stream is None:
            worker, workers = self._share
            self._stream = _ringreel.Stream(self._config, worker=worker, workers=workers, **self._options)
        return self._stream

    def _tell(self, error: DamagedSampleError, skipped: bool) -> None:
        if error.sample_id not in self._damaged:
            self._damaged.add(error.sample_id)
            logger.warning("%s: %s", "sample skipped" if skipped else "sample replaced by another one", error)

    def map(self, function: Callable[..., Any]) -> MappedStream:
        """Returns an iterator over ``function(sample)`` of each sample.

        The new iterator takes the place of this one, which must not be read any more. It has ``state_dict``,
        ``load_state_dict`` and ``close``, and is a context manager.

        Args:
            function (Callable): Called with each sample, and with ``rng`` and ``info`` if it has parameters of
                these names. See ``MappedStream``.

        Returns:
            MappedStream: The results, in the order of the samples.

        Raises:
            TypeError: ``function`` is not callable.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> list(stream.map(lambda sample: int(sample["label"])))
            [0, 1, 2, 3]

            With random numbers that are the same after a resume:

            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1, seed=1)
            >>> noisy = stream.map(lambda sample, rng: sample["data"] + rng.normal(0, 0.1, (2, 3)))
            >>> next(noisy).shape
            (2, 3)
        """
        return MappedStream(self).map(function)

    def filter(self, function: Callable[..., Any]) -> MappedStream:
        """Returns an iterator over the samples for which ``function(sample)`` is true.

        The new iterator takes the place of this one, as that of ``map`` does.

        Args:
            function (Callable): Called with each sample, and with ``rng`` and ``info`` if it has parameters of
                these names. See ``MappedStream``.

        Returns:
            MappedStream: The samples that are kept, in order.

        Raises:
            TypeError: ``function`` is not callable.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> [int(sample["label"]) for sample in stream.filter(lambda sample: sample["label"] != 1)]
            [0, 2, 3]
        """
        return MappedStream(self).filter(function)

    def flat_map(self, function: Callable[..., Any]) -> MappedStream:
        """Returns an iterator over all items of ``function(sample)`` of each sample.

        The items of a sample, such as the patches of a volume, are made when the first of them is needed,
        and are in memory until they were returned. The new iterator takes the place of this one, as that of
        ``map`` does.

        Args:
            function (Callable): Called with each sample, and with ``rng`` and ``info`` if it has parameters of
                these names; returns an iterable. See ``MappedStream``.

        Returns:
            MappedStream: The items, in the order of the samples.

        Raises:
            TypeError: ``function`` is not callable.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> rows = stream.flat_map(lambda sample: sample["data"])
            >>> [row.tolist() for row in rows][:3]
            [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
        """
        return MappedStream(self).flat_map(function)

    @property
    def damaged(self) -> int:
        """Number of samples that could not be read. Each counts once."""
        return len(self._damaged)

    @property
    def missing(self) -> list[int]:
        """Generations that ``KEEP`` covers and whose directories were missing.

        No role of the ring removes a generation that early. The stream skips the epoch of a missing
        generation, or, if all workers are to have the same number of steps, reads it from the newest
        generation. It logs an error for each.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> samples = list(stream)
            >>> stream.missing
            []
        """
        return self._missed if self._stream is None else self._stream.missing

    @property
    def epochs(self) -> int:
        """Number of epochs that were completed.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=2)
            >>> samples = list(stream)
            >>> stream.epochs
            2
        """
        return 0 if self._stream is None else self._stream.epochs

    @property
    def run(self) -> str | None:
        """Name of the stream's run, under which the ring logs its epochs.

        None before the first sample, if no name was given.

        Example:
            >>> ringreel.Ring("config.yaml").stream(run="tumor-3").run
            'tumor-3'
        """
        name = None if self._stream is None else self._stream.run
        return self._options["run"] if name is None else name

    @property
    def seed(self) -> int:
        """The seed of the random order, from 0 to 2**64 - 1.

        Example:
            >>> ringreel.Ring("config.yaml").stream(seed=7).seed
            7
        """
        seed: int = self._options["seed"]
        return seed

    def stats(self) -> StreamStats:
        """Returns how this stream and its caller spent their time, and what was read. Never blocks.

        Another thread may call it while ``next`` waits: the wait is included up to now. With a
        ``DataLoader``, each worker has a stream, and the caller of that stream is the worker.

        Returns:
            StreamStats: Times in seconds, and counts; zeros before the ring is open.

        Example:
            >>> with ringreel.Ring("config.yaml").stream(epochs=1) as stream:
            ...     for sample in stream:
            ...         pass
            >>> stats = stream.stats()
            >>> stats.starved < 1, stats.read_seconds > 0, stats.age_seconds >= 0
            (True, True, True)
        """
        stats = None if self._stream is None else self._stream.stats()
        return self._stats if stats is None else _stats_of(stats)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the stream. Never blocks.

        While ``next`` waits, in this thread or another one, the state is that after the previous sample: a
        stream that loads it continues with the sample that ``next`` is waiting for.

        Returns:
            dict: Values of JSON's types only; empty before the first sample. The main keys are ``run``,
            ``seed``, ``shuffle``, ``world`` (number of workers), ``worker``, ``number`` (the run's count of
            epochs), ``epoch`` (its generation and number of samples; None between two epochs) and ``step``
            (number of samples read of this worker's share of the epoch).

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream()
            >>> sample = next(stream)
            >>> state = stream.state_dict()
            >>> state["worker"], state["world"], state["step"]
            (0, 1, 1)
        """
        text = None if self._stream is None else self._stream.state()
        state: dict[str, Any] = {} if text is None else json.loads(text)
        return state

    def _place(self) -> dict[str, Any]:
        """Returns the state; before the first sample, joins the run to find out where the stream starts."""
        try:
            self._own().prepare(Waiting())
        except (RingreelError, OSError) as error:
            logger.warning("the saved state does not say where this stream will start: %s", error)
            return {}
        return self.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continues from the position that ``state_dict`` returned, in this process or another one.

        With the same number of workers, the stream continues with exactly the sample that would have come
        next. With another number of workers, the unread samples of the epoch are shared among them, so that
        each is read exactly once.

        Args:
            state (Mapping | Sequence[Mapping]): The state of a stream with the same seed and order. After a
                change of the number of workers, a list of the states of all workers; one state is enough if
                all workers had read the same number of samples.

        Raises:
            SampleError: The state is that of another ring, seed, order or worker, or the states are not
                those of one run.
            ValueError: ``state`` is not the state of a stream.

        Example:
            >>> ring = ringreel.Ring("config.yaml")
            >>> stream = ring.stream(run="a", epochs=1)
            >>> int(next(stream)["label"])
            0
            >>> resumed = ring.stream(run="a", epochs=1)
            >>> resumed.load_state_dict(stream.state_dict())
            >>> [int(sample["label"]) for sample in resumed]
            [1, 2, 3]
        """
        states = _all_begun([state] if isinstance(state, Mapping) else list(state))
        if states:
            self._own().load([json.dumps(each) for each in states], Waiting())

    def close(self) -> None:
        """Ends the stream and removes its reader from the ring's members.

        Samples that were read stay valid. A ``next`` that waits, in this thread or another one, raises
        ``StopIteration``.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream()
            >>> sample = next(stream)
            >>> stream.close()
            >>> int(sample["label"]), list(stream)
            (0, [])
        """
        self._end(suspends=False)

    def suspend(self) -> None:
        """Ends the stream as ``close`` does, but keeps its place in its run, as if the process had been killed.

        For a program that saves its state, ends, and is started again, such as a preempted job. If the run has
        a name, the ring keeps the generations that it had still to read for ``RUN_GRACE`` seconds, so that a
        stream that loads the state continues with exactly the next sample. They use disk space until then,
        also if the program never returns. After ``close``, only ``KEEP`` keeps them.

        Call it after ``state_dict``. A ``close`` that follows, such as that of a ``with`` block, has no effect.

        Example:
            >>> ring = ringreel.Ring("config.yaml")
            >>> stream = ring.stream(run="nightly", epochs=1)
            >>> int(next(stream)["label"])
            0
            >>> state = stream.state_dict()
            >>> stream.suspend()

            In the next job:

            >>> stream = ring.stream(run="nightly", epochs=1)
            >>> stream.load_state_dict(state)
            >>> int(next(stream)["label"])
            1
        """
        self._end(suspends=True)

    def _end(self, suspends: bool) -> None:
        self._closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            if suspends:
                stream.suspend()
            else:
                stream.close()
            with contextlib.suppress(RingreelError):  # raised in a forked child: the parent owns the stream
                self._missed = stream.missing
                stats = stream.stats()
                self._stats = self._stats if stats is None else _stats_of(stats)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._stream is not None or self._closed:
            raise TypeError("a stream that has started cannot be pickled: make it in the process that reads it")
        return functools.partial(Stream, self._config, *self._share, **self._options), ()


def _stats_of(stats: dict[str, float | None]) -> StreamStats:
    return StreamStats(**stats)  # type: ignore[arg-type]


def _all_begun(states: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns ``states``, completed with states for the workers that had not started.

    Such a worker gets a state before the first epoch of the others.
    """
    begun = [state for state in states if state]
    needed = {"number", "finished", "worker"}
    if not begun or len(begun) == len(states) or not all(needed <= state.keys() for state in begun):
        return begun
    last = min(begun, key=lambda state: state["number"])
    if last["finished"] == 0:
        first = {**last, "step": 0}  # the same epoch
    else:
        before = {"epoch": None, "place": {"offset": 0, "skip": []}, "step": 0, "finished": 0}
        first = {**last, **before, "number": last["number"] - last["finished"]}
    missing = sorted(set(range(len(states))) - {state["worker"] for state in begun})
    return begun + [{**first, "worker": worker} for worker in missing]
