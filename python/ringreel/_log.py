"""The logger, and where its lines go when nobody said."""

import contextlib
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator

logger = logging.getLogger("ringreel")

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _UtcFormatter(logging.Formatter):
    """Times as the command `ringreel` logs them: UTC, ISO 8601, milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class Waiting:
    """Tells what is waited for: at once as information, and from then on, about every 20 s, as a warning.

    So a script without any logging set up still says why it seems to hang. In a process of `multiprocessing`'s it
    raises RuntimeError when the parent is gone: a worker does not wait for a trainer that was killed.
    """

    def __init__(self) -> None:
        self._told = False

    def __call__(self, what: str) -> None:
        trainer = multiprocessing.parent_process()
        if trainer is not None and not trainer.is_alive():
            raise RuntimeError("the process that this one works for has ended")
        logger.log(logging.WARNING if self._told else logging.INFO, "waiting for %s", what)
        self._told = True


@contextlib.contextmanager
def on_stderr() -> Iterator[None]:
    """Lines go to stderr, from the level INFO on, where the program has set up no logging of its own."""
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_UtcFormatter(_FORMAT))
    level = logger.level
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
