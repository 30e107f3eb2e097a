"""The logger ``ringreel``, and its output if the program has not configured logging."""

import contextlib
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator

logger = logging.getLogger("ringreel")

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _UtcFormatter(logging.Formatter):
    """A formatter with the times of the command ``ringreel``: UTC, ISO 8601, milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class Waiting:
    """A function that logs what a call waits for: first as information, then about every 20 s as a warning.

    So a script without any logging configuration still shows why it seems to hang. In a process of
    ``multiprocessing`` it raises RuntimeError once the parent has exited, because a worker must not wait
    for a trainer that was killed.
    """

    def __init__(self) -> None:
        self._told = False

    def __call__(self, what: str) -> None:
        trainer = multiprocessing.parent_process()
        if trainer is not None and not trainer.is_alive():
            raise RuntimeError("the parent process has exited")
        logger.log(logging.WARNING if self._told else logging.INFO, "waiting for %s", what)
        self._told = True


@contextlib.contextmanager
def on_stderr() -> Iterator[None]:
    """Logs to stderr, from level INFO, if the program has not configured logging."""
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
