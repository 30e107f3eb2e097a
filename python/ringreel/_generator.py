"""Generators: writing samples into a ring."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ringreel import _ringreel
from ringreel._batch import parts_of_batch
from ringreel._convert import parts_of, split_pair

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclasses.dataclass(frozen=True)
class Summary:
    """Counts of what a generator did.

    Attributes:
        finished (int): Samples whose segments are sealed.
        delivered (int): Finished samples that a manifest lists, as far as the generator has seen.
        waiting (int): Finished samples that no manifest lists yet: in the generation that fills, or in
            the staging directory for the manager.
        bytes (int): Size of the segment files, in bytes.
        waited_seconds (float): Seconds in calls that waited: ``waited_room_seconds`` plus
            ``waited_readers_seconds``.
        swaps (int): Generations that this generator promoted.
        quarantined (int): Finished samples that were found damaged before a manifest listed them. They
            are in the ring's quarantine directory and are not delivered. Default 0.
        discarded (int): Samples that were written but never finished, because the disk failed when
            their segment was sealed. Their ids were not returned. Default 0.
        interrupted (bool): Whether a signal or ``stop`` ended the generator. Default False.
        waited_room_seconds (float): Seconds spent waiting for room in the ring or on the disk, for a
            promotion, or before another attempt after an error.
        waited_readers_seconds (float): Seconds spent waiting until readers have read the newest
            generation ``min`` times (``REUSE``).
        made_seconds (float): Seconds between two calls, in which the caller made samples.
        wrote_seconds (float): Seconds in calls without the waits. The clock advances every 1 to 10 ms: a
            short call may count as 0 or as a whole tick, and the sums over many calls are right.

    Example:
        >>> summary = ringreel.run_generator([(np.zeros(3), 0)], "config.yaml")
        >>> summary.finished, summary.delivered, summary.waiting    # SWAP_CAP is 4
        (1, 0, 1)
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
    waited_room_seconds: float = 0.0
    waited_readers_seconds: float = 0.0
    made_seconds: float = 0.0
    wrote_seconds: float = 0.0


class Generator:
    """A generator of a ring, opened by ``Ring.generator``.

    It is a context manager: leaving the ``with`` block finishes the generator. After an exception it
    finishes without waiting: sealed samples that have no place in a generation yet stay in the ring's
    staging directory, and the manager commits them. A sample survives the end of this process once
    ``write`` or ``flush`` has returned its id. A generator belongs to one process; in a forked child,
    open another one.

    A signal handler or another thread may read ``summary`` and ``written`` while another call waits.
    Both return at once, as of the last completed call. A signal handler may also call ``finish``.
    ``write``, ``write_batch`` and ``flush`` raise ``RingreelError`` in a signal handler that interrupted
    a call of the same generator; in another thread they wait for that call to return.

    Example:
        >>> with ringreel.Ring("config.yaml").generator() as generator:
        ...     for n in range(4):
        ...         ids = generator.write((np.full((2, 3), n, np.float32), n), {"age": 30 + n})
        >>> generator.summary.finished
        4
    """

    def __init__(self, config: _ringreel.Config) -> None:
        self._config = config
        self._generator = _ringreel.Generator.open(config)
        self._finished = False

    def __repr__(self) -> str:
        return f"<ringreel.Generator in {self._config.ring}>"

    @property
    def names(self) -> list[str]:
        """The names of a sample's parts, in order: the ring's ``SAMPLE``.

        Example:
            >>> with ringreel.Ring("config.yaml").generator() as generator:
            ...     generator.names
            ['data', 'label']
        """
        return self._generator.names

    @property
    def summary(self) -> Summary:
        """The counts as of the last completed call.

        Work that the generator's thread has done since (samples delivered, generations promoted) is counted
        after the next call.
        """
        return Summary(**self._generator.summary())

    @property
    def written(self) -> int:
        """Number of samples written as of the last completed call, finished or not.

        Samples that were lost with their segment are not counted.

        Example:
            >>> with ringreel.Ring("config.yaml").generator() as generator:
            ...     ids = generator.write((np.zeros(3), 0))
            ...     generator.written
            1
        """
        return self._generator.written

    def write(self, sample: Any, meta: dict[str, Any] | None = None) -> list[str]:
        """Writes one sample. Blocks while the ring or the disk is full.

        No other thread may change the parts until the call returns.

        Args:
            sample (tuple | list | Mapping): The parts in the order of ``SAMPLE``, or a dict of parts by
                name, or a pair ``(sample, meta)``. In a dict, a dict of parts is allowed in place of a part:
                ``{"a": {"b": part}}`` is part ``a/b``. A pair is a tuple of two whose second element is a dict
                and whose first is a tuple, a list or a dict.

                A part is one of:

                - anything that ``np.asarray`` accepts, of any shape and of any element type of NumPy itself
                  except objects and text of variable length. Big-endian elements are read back in native
                  order with equal values; all others are read back bit for bit;
                - a torch tensor;
                - bytes, a bytearray or a memoryview, which are read back as bytes.
            meta (dict | None): A dict with text keys. Values are None, bool, int (from -2**64 to
                2**64 - 1), float, str, bytes, lists, tuples and dicts of these, NumPy scalars, and arrays
                of numbers, which are read back as lists. None (the default) is an empty dict.

        Returns:
            list[str]: Ids of the samples that were finished since the previous call. With
            ``SEGMENT_SAMPLES: 1`` this is the id of the sample. Otherwise the list is empty until a segment
            is complete, and then holds the ids of all its samples. With ``SEGMENT_SAMPLES: auto`` a thread
            completes a segment when its first sample is ``SEGMENT_SECONDS`` old, and the next call returns
            the ids. A segment that cannot be completed because the disk fails is logged and discarded;
            ``Summary.discarded`` counts its samples.

        Raises:
            SampleError: The sample does not match the ring. The message names the part. Nothing was
                written.
            OSError: The filesystem reports an error that waiting does not resolve.

        Example:
            >>> generator = ringreel.Ring("config.yaml").generator()
            >>> ids = generator.write((np.zeros((2, 3), np.float32), 7))
            >>> ids += generator.write({"data": b"raw bytes", "label": 8}, {"source": "scanner 2"})
            >>> ids += generator.flush()
            >>> len(ids)
            2
            >>> summary = generator.finish()
        """
        return self._write(sample, meta, None)

    def _write(self, sample: Any, meta: dict[str, Any] | None, stop: Callable[[], bool] | None) -> list[str]:
        sample, meta = split_pair(sample, meta)
        return self._generator.write(parts_of(sample, self._generator.names), meta, stop)

    def write_batch(self, samples: Any) -> Sequence[str]:
        """Writes many samples of the same shapes.

        For small samples this is much faster than one ``write`` per sample. No other thread may change
        the parts until the call returns. The samples have no meta.

        Args:
            samples (tuple | list | Mapping): The parts in the order of ``SAMPLE``, or a dict of parts by
                name. A part is an array of shape ``(n, ...)`` (or what ``np.asarray`` accepts, or a torch
                tensor) whose first axis counts the samples, or a list of ``n`` bytes objects of equal
                length.

        Returns:
            Sequence[str]: Ids of the samples that were finished since the previous call, as from ``write``.

        Raises:
            SampleError: The samples do not match the ring. The message names the part. Nothing was written.
            OSError: The filesystem reports an error that waiting does not resolve. The first samples of the
                batch are written: as many as ``written`` has grown by. The next call returns the ids of
                those that are finished.

        Example:
            >>> with ringreel.Ring("config.yaml").generator() as generator:
            ...     ids = generator.write_batch((np.zeros((100, 2, 3), np.float32), np.arange(100)))
            >>> generator.summary.finished
            100
        """
        parts, count = parts_of_batch(samples, self._generator.names)
        return self._generator.write_batch(parts, count, None)

    def flush(self) -> list[str]:
        """Seals and commits everything that was written so far.

        Returns:
            list[str]: Ids of the samples that were finished since the previous call.

        Raises:
            OSError: The filesystem reports an error that waiting does not resolve.

        Example:
            >>> with ringreel.Ring("config.yaml").generator() as generator:
            ...     ids = generator.write((np.zeros(3), 0))
            ...     ids += generator.flush()
            ...     len(ids)
            1
        """
        return self._generator.flush()

    def finish(self, promote: bool = False) -> Summary:
        """Seals and commits everything that was written, and leaves the ring.

        ``flush``, called before, returns the ids of the last samples. Nothing can be written afterwards. A
        second call returns the same summary.

        In a signal handler that interrupted a call of this generator, ``finish`` returns the summary so far
        and requests that the interrupted call finish: it ends without waiting any longer, and the generator
        finishes as after an exception. A ``write`` whose sample found no room then raises
        ``RingreelError``.

        Args:
            promote (bool): Whether to wait until everything written is readable, by promoting a generation
                that is not full. Default False.

        Returns:
            Summary: The counts of this generator.

        Raises:
            RingMismatchError: The ring was removed meanwhile.
            OSError: The filesystem reports an error that waiting does not resolve.

        Example:
            >>> generator = ringreel.Ring("config.yaml").generator()
            >>> ids = generator.write((np.zeros((2, 3), np.float32), 7))
            >>> generator.finish(promote=True).delivered
            1
            >>> len(ringreel.Ring("config.yaml").dataset())         # the newest generation: the one sample
            1
        """
        return self._finish(promote, None)

    def _finish(self, promote: bool, stop: Callable[[], bool] | None) -> Summary:
        summary = self._generator.finish(promote, stop)
        self._finished = True
        return Summary(**summary)

    def _failed(self, error: BaseException) -> None:
        """Records, for the ring's other processes, the error that ended this generator.

        A generator that was stopped on request has not failed.
        """
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and not error.code):
            return
        self._generator.failed("".join(traceback.format_exception_only(type(error), error)).strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None and not self._finished:
            self._failed(error)
        hurry = (lambda: True) if error is not None else None
        self._finish(False, hurry)
