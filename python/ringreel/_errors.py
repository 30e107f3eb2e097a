"""The exceptions. Each says what happened, to which path, and what to do; each can be pickled.

What the filesystem refuses is an `OSError` of the fitting subclass, with `errno` and `filename`; a position that is not
there is an `IndexError`. Everything else is a `RingreelError`, and a built-in exception too where one fits.
"""


class RingreelError(RuntimeError):
    """Something went wrong with a ring. The base of this package's exceptions."""


class ConfigError(RingreelError, ValueError):
    """The configuration cannot be used. The message names the key and, in a file, the line."""


class RingNotFoundError(RingreelError):
    """There is no ring where one is expected: no generator or manager has started yet, or RING or DBNAME is wrong."""


class RingMismatchError(RingreelError):
    """The ring that is there is another one than the configuration describes. The message names what differs."""


class DamagedSampleError(RingreelError):
    """A sample that its generation's manifest lists cannot be read: its file is missing, cut short, or changed.

    Attributes
    ----------
    generation, position : int, where it stands.
    sample_id : str
    path : str, the segment's file.

    All are None in an instance that was made by hand.
    """

    generation: int | None = None
    position: int | None = None
    sample_id: str | None = None
    path: str | None = None


class ReclaimedError(RingreelError):
    """A generation was reclaimed while it was read: go on with the newest one."""


class CoordinationUnavailableError(RingreelError, ConnectionError):
    """The server that keeps the index is not there, or does not answer. The message says where, and what to look at.

    It is raised where a generator or a manager starts. Whoever runs already goes on without the index, and whoever
    reads needs none.
    """


class CoordinationDeniedError(RingreelError, PermissionError):
    """The server that keeps the index is there and will not serve us: a wrong user or password, no rights on the
    database, or TLS on one side only. Trying again does not help; the message says what to change.
    """


class StaleError(RingreelError):
    """Nothing new comes, and the configuration says ON_STALE: stop. The message says what was read how often, who
    generates, and why generators failed.
    """


class SampleError(RingreelError, ValueError):
    """What was given does not fit the ring. The message names the part; the ring is as it was before."""


class RingTimeoutError(RingreelError, TimeoutError):
    """What was waited for did not come in time. The message says what it was, and how far it is."""


class StoppedError(RingreelError):
    """A wait was given up because it was asked to. Never leaves this package."""


# In messages and tracebacks they are called what users call them.
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
