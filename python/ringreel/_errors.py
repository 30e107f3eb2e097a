"""The exceptions. Each says what happened, to which path, and what to do, and can be pickled.

An error of the filesystem is an ``OSError`` of the matching subclass, with ``errno`` and
``filename``. A position that does not exist is an ``IndexError``. Every other error is a
``RingreelError``, and also a built-in exception if one matches.
"""

from __future__ import annotations

import sys

from ringreel._log import logger


class RingreelError(RuntimeError):
    """An error of a ring: the base class of this package's exceptions.

    Example:
        >>> try:
        ...     ringreel.Ring("missing.yaml").status()
        ... except ringreel.RingreelError as error:
        ...     print(type(error).__name__)
        ConfigError
    """


class ConfigError(RingreelError, ValueError):
    """A configuration that cannot be used. The message names the key and, in a file, the line.

    Example:
        >>> ringreel.Ring({"DBNAME": "demo", "SWAP_CAP": 0})
        Traceback (most recent call last):
            ...
        ringreel.ConfigError: ...SWAP_CAP...
    """


class RingNotFoundError(RingreelError):
    """No ring exists where one is expected.

    No generator or manager has started yet, or ``RING`` or ``DBNAME`` is wrong.

    Example:
        >>> try:
        ...     ringreel.Ring({"DBNAME": "other", "SWAP_CAP": 4, "SAMPLE": ["data"]}).status()
        ... except ringreel.RingNotFoundError:
        ...     print("start a generator first")
        start a generator first
    """


class RingMismatchError(RingreelError):
    """The ring does not match the configuration. The message names the difference.

    Example:
        >>> ringreel.Ring({"DBNAME": "demo", "SWAP_CAP": 5, "SAMPLE": ["data", "label"]}).status()
        Traceback (most recent call last):
            ...
        ringreel.RingMismatchError: ...SWAP_CAP...
    """


class DamagedSampleError(RingreelError):
    """A sample that its generation's manifest lists cannot be read.

    Its segment's file is missing, truncated or changed.

    Attributes:
        generation (int | None): Number of the generation.
        position (int | None): Position of the sample in the generation, from 0.
        sample_id (str | None): Id of the sample.
        path (str | None): Path of the segment's file.

    All are None in an instance that was constructed by a caller.

    Example:
        >>> import pathlib
        >>> segment = min(pathlib.Path("demo.ring").glob("read.*/*.rec"))
        >>> size = segment.write_bytes(b"")                     # what a failing disk may do
        >>> try:
        ...     ringreel.Ring("config.yaml").dataset()[0]
        ... except ringreel.DamagedSampleError as error:
        ...     print(error.generation, error.position, error.path == str(segment.absolute()))
        1 0 True
    """

    generation: int | None = None
    position: int | None = None
    sample_id: str | None = None
    path: str | None = None


class ReclaimedError(RingreelError):
    """A generation was reclaimed while it was read. Continue with the newest one.

    Example:
        >>> from ringreel.grain import RingSource
        >>> source = RingSource("config.yaml")
        >>> try:
        ...     item = source[0]
        ... except ringreel.ReclaimedError:
        ...     source = RingSource("config.yaml")              # the newest generation
    """


class CoordinationUnavailableError(RingreelError, ConnectionError):
    """The server that keeps the index cannot be reached. The message says where it is, and what to check.

    Raised when a generator or a manager starts. A running one continues without the index, and a reader
    does not need it.

    Example:
        >>> try:
        ...     summary = ringreel.run_generator([(np.zeros(3), 0)], "config.yaml")
        ... except ringreel.CoordinationUnavailableError as error:
        ...     print(f"start the server, or set INDEX: files: {error}")
    """


class CoordinationDeniedError(RingreelError, PermissionError):
    """The server that keeps the index refuses this process.

    The user or the password is wrong, the user has no rights on the database, or only one side uses TLS.
    Retrying does not help; the message says what to change.

    Example:
        >>> try:
        ...     summary = ringreel.run_generator([(np.zeros(3), 0)], "config.yaml")
        ... except ringreel.CoordinationDeniedError as error:
        ...     print(f"check the user in MONGOURI: {error}")
    """


class StaleError(RingreelError):
    r"""No new samples arrive, and the configuration sets ``ON_STALE: stop``.

    The message says what was read how often, which generators are alive, and why generators failed.

    Example:
        >>> import pathlib
        >>> config = pathlib.Path("config.yaml").read_text() + "REUSE: {max: 1}\nON_STALE: stop\n"
        >>> size = pathlib.Path("once.yaml").write_text(config)
        >>> stream = ringreel.Ring("once.yaml").stream(run="a")
        >>> try:
        ...     for step, sample in enumerate(stream, 1):
        ...         pass
        ... except ringreel.StaleError:
        ...     print(f"no fresh samples after step {step}")
        no fresh samples after step 4
    """


class SampleError(RingreelError, ValueError):
    """A sample, or the state of a stream, does not match the ring.

    The message names the part. Nothing was written.

    Example:
        >>> with ringreel.Ring("config.yaml").generator() as generator:
        ...     generator.write((np.zeros(3),))
        Traceback (most recent call last):
            ...
        ringreel.SampleError: sample: expected 2 parts, SAMPLE is [data, label]; found 1
    """


class RingTimeoutError(RingreelError, TimeoutError):
    """A wait ended without a result within ``timeout``. The message says for what, and how far it is.

    Example:
        >>> ring = ringreel.Ring({"DBNAME": "empty", "SWAP_CAP": 4, "SAMPLE": ["data"]})
        >>> len(ring.dataset(timeout=0.1))
        Traceback (most recent call last):
            ...
        ringreel.RingTimeoutError: ...
    """


class StoppedError(RingreelError):
    """A wait ended because its ``stop`` function requested it. Never leaves this package."""


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to ``error``. Logs it before Python 3.11, whose tracebacks are the first to show notes."""
    vars(error).setdefault("__notes__", []).append(note)
    if sys.version_info < (3, 11):
        logger.error("%s: %s", type(error).__name__, note)


# Tracebacks show the public name of an exception.
for _exception in (
    RingreelError,
    ConfigError,
    RingNotFoundError,
    RingMismatchError,
    DamagedSampleError,
    ReclaimedError,
    CoordinationUnavailableError,
    CoordinationDeniedError,
    SampleError,
    StaleError,
    RingTimeoutError,
):
    _exception.__module__ = "ringreel"
