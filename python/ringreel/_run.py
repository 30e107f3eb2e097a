"""The two roles as one call each: run until there is nothing more to do, or until a signal."""

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ringreel import _ringreel
from ringreel._arguments import optional_integer
from ringreel._errors import StoppedError
from ringreel._generator import Generator, Summary
from ringreel._log import logger, on_stderr
from ringreel._ring import Config, Ring
from ringreel._signals import StopOnSignal

# For so long a generator that was told to stop still waits for its last samples to become visible, where that is asked.
_PROMOTE_SECONDS = 5.0


def run_generator(
    iterable: Iterable[Any],
    config: Config | Ring,
    n_samples: int | None = None,
    promote: bool = False,
    stop: "threading.Event | Callable[[], bool] | None" = None,
) -> Summary:
    """Pulls samples from `iterable` and writes them into the ring, until it ends, a signal comes, or
    `stop` asks for the end.

    A sample is pulled when the one before it has been written and never ahead. SIGINT and SIGTERM end it well: the
    sample in hand is finished, sealed and committed, then this returns. (What no generation has room for at that moment
    stays sealed in the ring's staging directory, counts as waiting, and is brought in by the manager.) A second SIGINT
    raises KeyboardInterrupt at once. Outside the main thread signals are left alone.

    Where the program has set up no logging, lines go to stderr meanwhile.

    Parameters
    ----------
    iterable : of samples, as `Generator.write` takes them.
    config : path of a configuration file, a dict, or a `Ring`.
    n_samples : int, at most so many; None: all.
    promote : whether everything written becomes readable at the end, by promoting a generation that is not full.
    stop : a `threading.Event`, or a callable without arguments. When it is set or returns true,
        this ends as at a signal.
        It is looked at between samples, and about every 50 ms during a wait. The only way outside
        the main thread.

    Raises
    ------
    Whatever `iterable` raises, unchanged, with a note that says what was committed. Nothing is
    waited for then: what the ring has no room for stays sealed in its staging directory, and counts
    as waiting.
    SampleError, OSError: as `Generator.write`, with the same note.
    ConfigError, RingMismatchError: the ring cannot be made, or does not match the configuration.
    CoordinationUnavailableError, CoordinationDeniedError: the server of its index does not answer, or refuses this
    user.
    """
    n_samples = optional_integer("n_samples", n_samples, 0)
    iterator = _iterator(iterable)
    ring = Ring._of(config)
    with on_stderr(), StopOnSignal(stop) as stopped:
        ring._tell_notes()
        generator = ring.generator()
        try:
            _pull(iterator, generator, n_samples, stopped)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _commit_after(error, generator, ring)
            raise
        return _finish(generator, ring, promote, stopped)


def _iterator(iterable: Iterable[Any]) -> Iterator[Any]:
    try:
        return iter(iterable)
    except TypeError:
        hint = "; call it, and pass what it returns" if callable(iterable) else ""
        raise TypeError(f"run_generator takes an iterable of samples, found {type(iterable).__name__}{hint}") from None


def _pull(iterator: Iterator[Any], generator: Generator, n_samples: int | None, stopped: Callable[[], bool]) -> None:
    written = 0
    while not stopped() and (n_samples is None or written < n_samples):
        try:
            sample = next(iterator)
        except StopIteration:
            return
        try:
            generator._write(sample, None, stopped)
        except StoppedError as error:
            logger.warning("the last sample was not written: %s", error)
        written += 1


def _finish(generator: Generator, ring: Ring, promote: bool, stopped: StopOnSignal) -> Summary:
    patience = _PROMOTE_SECONDS if promote else 0.0
    summary = generator._finish(promote, lambda: stopped() and stopped.seconds() >= patience)
    summary = dataclasses.replace(summary, interrupted=stopped())
    if stopped.received is not None:
        name = stopped.received.name
        logger.info("%s: %d samples are finished and safe in %s", name, summary.finished, ring.path)
    else:
        logger.info("%d samples are finished and safe in %s", summary.finished, ring.path)
    return summary


def _commit_after(error: BaseException, generator: Generator, ring: Ring) -> None:
    """Commits what was written before `error`, and notes at it what that was."""
    try:
        generator._failed(error)
        summary = generator._finish(False, lambda: True)
    except Exception as second:
        error.add_note(f"ringreel: what was written to {ring.path} before could not be committed: {second}")
        return
    error.add_note(
        f"ringreel: {summary.finished} samples were committed to {ring.path} before this "
        f"({summary.delivered} delivered, {summary.waiting} waiting for their generation to fill)"
    )


def run_manager(config: Config | Ring, stop: "threading.Event | Callable[[], bool] | None" = None) -> None:
    """Runs a manager until SIGINT or SIGTERM: promotes full generations, reclaims old ones, brings in what dead
    generators finished. The first swap is logged, then at most one a
    minute, and their number at the end; where the program has set up no logging, on stderr.

    Any number may run; one works, the others stand by.

    Parameters
    ----------
    config : path of a configuration file, a dict, or a `Ring`.
    stop : a `threading.Event`, or a callable without arguments. It is looked at about every 50 ms,
        and ends the manager
        when it is set or returns true. The only way outside the main thread.

    Raises
    ------
    ConfigError, RingMismatchError : the ring cannot be made, or does not fit.
    CoordinationUnavailableError, CoordinationDeniedError : the server that keeps its index cannot be used.
    """
    ring = Ring._of(config)
    with on_stderr(), StopOnSignal(stop) as stopped:
        ring._tell_notes()
        logger.info("manager of %s (process %d)", ring.path, os.getpid())
        _ringreel.run_manager(ring._config, stopped)
