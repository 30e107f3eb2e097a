"""Samples one after the other, for one worker of many."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ringreel import _ringreel
from ringreel._errors import DamagedSampleError, RingreelError
from ringreel._log import Waiting, logger
from ringreel._sample import Sample

#: Threads that read ahead.
_THREADS = min(4, os.cpu_count() or 1)


class Stream(Iterator[Sample]):
    """An iterator over one epoch after the other: this worker's share of each. An epoch is a pass over one generation.

    Made by `Ring.stream`. It opens the ring with the first sample that is asked for. A sample that cannot be read is
    counted in `damaged` and warned of once through `logging`; it is skipped, or, where all workers are to have the same
    number of steps, another one comes in its place. It is used by one process; in a forked child, make a new one.

    A signal handler or another thread may call `state_dict` and read `epochs` and `run` while
    `next` waits: they answer at once, as of the last sample that `next` returned. `close` ends the
    wait. Any other call from a signal handler that interrupted a call of the same stream raises
    `RingreelError`; a call from another thread waits for its turn.

    Raises `RingTimeoutError` when nothing came in time, `StaleError` when nothing new comes and ON_STALE is stop, and
    OSError for what the filesystem says.
    """

    def __init__(self, config: _ringreel.Config, worker: int, workers: int, **options: Any) -> None:
        self._config = config
        self._share = (worker, workers)
        self._options = options
        self._stream: _ringreel.Stream | None = None
        self._closed = False
        self._damaged: set[str | None] = set()
        self._missed: list[int] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Sample:
        if self._closed:
            raise StopIteration
        waiting = Waiting()
        stream = self._own()
        while True:
            given = stream.next(waiting)
            if given is None:
                raise StopIteration
            sample, is_padding, error = given
            if error is not None:
                self._tell(error, skipped=sample is None)
            if sample is not None:
                return Sample(*sample, is_padding)

    def _own(self) -> _ringreel.Stream:
        """The stream of this process. It opens the ring with its first call that waits."""
        if self._stream is None:
            worker, workers = self._share
            self._stream = _ringreel.Stream(self._config, worker=worker, workers=workers, **self._options)
        return self._stream

    def _tell(self, error: DamagedSampleError, skipped: bool) -> None:
        if error.sample_id not in self._damaged:
            self._damaged.add(error.sample_id)
            logger.warning("%s: %s", "skipped" if skipped else "another sample was taken for it", error)

    @property
    def damaged(self) -> int:
        """How many samples could not be read; each counts once."""
        return len(self._damaged)

    @property
    def missing(self) -> list[int]:
        """Generations whose directories were missing when they were to be read, although KEEP covers them.

        No role of the ring removes them so early. The stream leaves their epochs out. If all workers are to
        have the same number of steps, it reads them from the newest generation. It logs an error for each.
        """
        return self._missed if self._stream is None else self._stream.missing

    @property
    def epochs(self) -> int:
        """Epochs that were finished."""
        return 0 if self._stream is None else self._stream.epochs

    @property
    def run(self) -> str | None:
        """The name of its run, by which what it reads is logged; None before the first sample where nobody gave one."""
        name = None if self._stream is None else self._stream.run
        return self._options["run"] if name is None else name

    def state_dict(self) -> dict[str, Any]:
        """Where it is: JSON's types only. Empty before the first sample.

        Never waits. While `next` waits, in this thread or another one, the state is that after the
        sample before: a stream that loads it goes on with the sample that `next` waits for.

        Among others: run, seed, shuffle, world (number of workers), worker, number (the run's count of epochs), epoch
        (its generation and number of samples; None between two), step (samples given of this worker's share of it).
        """
        text = None if self._stream is None else self._stream.state()
        state: dict[str, Any] = {} if text is None else json.loads(text)
        return state

    def _place(self) -> dict[str, Any]:
        """The state; before the first sample, that of where it is going to begin: it takes its place in its run."""
        try:
            self._own().prepare(Waiting())
        except (RingreelError, OSError) as error:
            logger.warning("where this stream is going to begin is not in its state: %s", error)
            return {}
        return self.state_dict()

    def load_state_dict(self, state: "Mapping[str, Any] | Sequence[Mapping[str, Any]]") -> None:
        """Goes on from what `state_dict` of a stream with the same seed and order gave, in this process or another.

        With as many workers as there were: with exactly the sample that would have come next. With another number of
        workers: what was not given of the epoch is shared anew among them, so that no sample comes twice and none is
        left out. Then give the states of all workers as a list; the state of one is enough where all had given the same
        number of samples.

        Raises SampleError for a state of another ring, seed, order or worker, or for states that do not belong
        together, and ValueError for what is no state.
        """
        states = _all_begun([state] if isinstance(state, Mapping) else list(state))
        if states:
            self._own().load([json.dumps(each) for each in states], Waiting())

    def close(self) -> None:
        """Ends the stream, and takes its reader off the ring's list. What was read stays. A `next` that
        waits, in this thread or another one, raises StopIteration."""
        self._closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            with contextlib.suppress(RingreelError):  # in a forked child it is the parent's
                self._missed = stream.missing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._stream is not None or self._closed:
            raise TypeError("a stream that has begun cannot be pickled: make it in the process that reads it")
        return _again, (self._config, *self._share, self._options)


def _all_begun(states: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """`states`, where workers that had not begun have one, too: before the first epoch of the others."""
    begun = [state for state in states if state]
    needed = {"number", "finished", "worker"}
    if not begun or len(begun) == len(states) or not all(needed <= state.keys() for state in begun):
        return begun
    last = min(begun, key=lambda state: state["number"])
    if last["finished"] == 0:
        first = {**last, "step": 0}  # in the same epoch
    else:
        before = {"epoch": None, "place": {"offset": 0, "skip": []}, "step": 0, "finished": 0}
        first = {**last, **before, "number": last["number"] - last["finished"]}
    missing = sorted(set(range(len(states))) - {state["worker"] for state in begun})
    return begun + [{**first, "worker": worker} for worker in missing]


def _again(config: _ringreel.Config, worker: int, workers: int, options: dict[str, Any]) -> Stream:
    return Stream(config, worker, workers, **options)
