"""Putting samples into a ring."""

import dataclasses
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from ringreel import _ringreel
from ringreel._batch import parts_of_batch
from ringreel._convert import parts_of, split_pair


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a generator did.

    Attributes
    ----------
    finished : samples that are sealed and safe.
    delivered : of those, samples that a manifest lists, as far as was seen.
    waiting : of those, samples that no manifest lists yet: in the generation that fills, or left for the manager.
    bytes : of the segments' files.
    waited_seconds : time spent waiting for room in the ring or on the disk.
    swaps : promotions done by this generator.
    quarantined : of the finished samples, those that were found damaged before a manifest listed
        them. They are in the ring's quarantine directory, and not delivered.
    discarded : samples that were written and never finished, because the disk failed when their file
        was to be completed. No id of them was returned.
    interrupted : whether a signal or `stop` ended it.
    """

    finished: int
    delivered: int
    waiting: int
    bytes: int
    waited_seconds: float
    swaps: int
    quarantined: int = 0
    discarded: int = 0
    interrupted: bool = False


class Generator:
    """A generator in a ring, made by `Ring.generator`.

    A context manager: leaving it finishes. After an exception it waits for nothing: sealed samples
    that have no place in a generation yet stay in the ring's staging directory, and the manager
    brings them in. What is written survives the end of this process once `write` or `flush` has
    returned its id. Of use to one process only: in a forked child, open another one.

    A signal handler or another thread may read `summary` and `written` while another call waits:
    both answer at once, as of the last call that returned. A signal handler may also call `finish`.
    `write`, `write_batch` and `flush` from a signal handler that interrupted a call of the same
    generator raise `RingreelError`; from another thread they wait for their turn.
    """

    def __init__(self, config: _ringreel.Config) -> None:
        self._config = config
        self._generator = _ringreel.Generator.open(config)
        self._finished = False

    def __repr__(self) -> str:
        return f"<ringreel.Generator in {self._config.ring}>"

    @property
    def names(self) -> list[str]:
        """Names of the parts, in order: the ring's SAMPLE."""
        return self._generator.names

    @property
    def summary(self) -> Summary:
        """Counts up to the end of the last call. What the generator's thread has done since then
        (samples delivered, generations promoted) appears after the next call."""
        return Summary(**self._generator.summary())

    @property
    def written(self) -> int:
        """Samples that were put in until the last call returned, finished or not; those that were
        lost with their segment are not counted."""
        return self._generator.written

    def write(self, sample: Any, meta: dict[str, Any] | None = None) -> list[str]:
        """Puts one sample in. Waits while the ring or the disk is full.

        Parameters
        ----------
        sample : a tuple or a list of parts in the order of SAMPLE; a dict of parts by name; or a pair
            ``(sample, meta)``. It is such a pair exactly when it is a tuple of two whose second element is a dict and
            whose first is a tuple, a list or a dict.

            A part is anything that `np.asarray` takes, of any shape and any element type that NumPy itself has but
            objects and text of variable length; a torch tensor; or bytes, bytearray or a memoryview, which come back
            as bytes. Big-endian elements come back in native order, equal in value; everything else comes back bit
            for bit.
        meta : dict with text keys; values are None, bool, int (of 64 bits and a sign), float, str, bytes, lists,
            tuples and dicts of these, NumPy scalars, and arrays of numbers, which come back as lists.

        No other thread may change the parts until it returns.

        Returns
        -------
        list of str: ids of the samples that were finished since the call before. With SEGMENT_SAMPLES 1 this one;
        else none until a file is complete, and then all of its samples. With ``SEGMENT_SAMPLES: auto`` a thread
        completes a file when its first sample is SEGMENT_SECONDS old; the next call returns the ids. A file that
        the disk fails to complete is logged and thrown away; `Summary.discarded` counts its samples.

        Raises
        ------
        SampleError : the sample does not fit; the message names the part, and the ring is as it was before.
        OSError : what the filesystem says, and waiting does not mend.
        """
        return self._write(sample, meta, None)

    def _write(self, sample: Any, meta: dict[str, Any] | None, stop: Callable[[], bool] | None) -> list[str]:
        sample, meta = split_pair(sample, meta)
        return self._generator.write(parts_of(sample, self._generator.names), meta, stop)

    def write_batch(self, samples: Any) -> Sequence[str]:
        """Puts many samples of the same shapes in: much faster than one `write` for each, where they are small.

        Parameters
        ----------
        samples : a dict of parts by name, or a tuple of them in the order of SAMPLE. A part is an array (or what
            `np.asarray` takes, or a torch tensor) whose first axis counts the samples; or a list of as many bytes
            objects of one length. They have no meta.

        No other thread may change the parts until it returns.

        Returns
        -------
        sequence of str: ids of the samples that are finished now, as from `write`.

        Raises
        ------
        SampleError : the samples do not fit; the message names the part, and nothing was written.
        OSError : what the filesystem says, and waiting does not mend. The first samples of the batch are in, as many as
            `written` has grown by; the next call returns the ids of those that are finished.
        """
        parts, count = parts_of_batch(samples, self._generator.names)
        return self._generator.write_batch(parts, count, None)

    def flush(self) -> list[str]:
        """Seals and commits what was written so far. Returns the ids of the samples that are finished now."""
        return self._generator.flush()

    def finish(self, promote: bool = False) -> Summary:
        """Seals, commits, and leaves the ring. With `promote`, waits until everything written can be read, by
        promoting a generation that is not full. Raises `RingMismatchError` if the ring was removed meanwhile.
        `flush`, called before, returns the ids of the last samples.

        Called again, it returns the same summary. After it, nothing can be written.

        In a signal handler that interrupted a call of this generator, it returns the summary so far
        and asks that call to finish: the call ends without waiting any longer, and the generator
        finishes as after an exception. A `write` whose sample has found no room raises
        `RingreelError` then.
        """
        return self._finish(promote, None)

    def _finish(self, promote: bool, stop: Callable[[], bool] | None) -> Summary:
        summary = self._generator.finish(promote, stop)
        self._finished = True
        return Summary(**summary)

    def _failed(self, error: BaseException) -> None:
        """Remembers, for the others, what ended this generator. Who was asked to end has not failed."""
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and not error.code):
            return
        self._generator.failed("".join(traceback.format_exception_only(error)).strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None and not self._finished:
            self._failed(error)
        hurry = (lambda: True) if error is not None else None
        self._finish(False, hurry)
