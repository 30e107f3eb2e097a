"""The generator and the manager as one call each, which runs to the end or until a signal."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ringreel import _ringreel
from ringreel._arguments import optional_integer
from ringreel._errors import StoppedError, add_note
from ringreel._generator import Generator, Summary
from ringreel._log import logger, on_stderr
from ringreel._ring import Config, Ring
from ringreel._signals import StopOnSignal
from ringreel._wording import counted

# Seconds that a generator waits after a stop request for its last samples to be promoted, if `promote` was requested.
_PROMOTE_SECONDS = 5.0


def run_generator(
    iterable: Iterable[Any],
    config: Config | Ring,
    n_samples: int | None = None,
    promote: bool = False,
    stop: threading.Event | Callable[[], bool] | None = None,
) -> Summary:
    """Writes the samples of ``iterable`` into the ring until it ends or a stop is requested.

    A sample is pulled after the previous one was written, never ahead. The first SIGINT or SIGTERM
    stops in an orderly way: the current sample is finished, sealed and committed, and the call returns.
    (Samples that no generation has room for at that moment stay sealed in the ring's staging directory,
    count as waiting, and are committed by the manager.) A second SIGINT raises KeyboardInterrupt at
    once. Outside the main thread, signals are not handled.

    If the program has not configured logging, log lines go to stderr during the call.

    Args:
        iterable (Iterable): The samples, as ``Generator.write`` accepts them.
        config (str | os.PathLike | Mapping | Ring): Path of a configuration file, a dict, or a ``Ring``.
        n_samples (int | None): Number of samples to write at most. None (the default) writes all.
        promote (bool): Whether everything written becomes readable at the end, by promoting a generation
            that is not full. Default False.
        stop (threading.Event | Callable[[], bool] | None): Stops the call, as a signal does, when it is
            set or returns true. It is checked between samples, and about every 50 ms during a wait.
            Outside the main thread it is the only way to stop the call. Default None.

    Returns:
        Summary: The counts of the generator.

    Raises:
        Exception: Whatever ``iterable`` raises, unchanged, with a note that says what was committed. The
            call does not wait then: samples that the ring has no room for stay sealed in its staging
            directory, and count as waiting.
        SampleError: A sample does not match the ring, with the same note.
        OSError: The filesystem reports an error that waiting does not resolve, with the same note.
        ConfigError: The configuration does not suffice to create the ring.
        RingMismatchError: The ring does not match the configuration.
        CoordinationUnavailableError: The server that keeps the index does not answer.
        CoordinationDeniedError: The server that keeps the index refuses this user.

    Example:
        >>> samples = ((np.full((2, 3), n, np.float32), n) for n in range(6))
        >>> summary = ringreel.run_generator(samples, "config.yaml", promote=True)
        >>> summary.delivered, summary.interrupted
        (6, False)
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
    samples = counted(summary.finished, "sample is", "samples are")
    if stopped.received is not None:
        name = stopped.received.name
        logger.info("%s: %s finished and safe in %s", name, samples, ring.path)
    else:
        logger.info("%s finished and safe in %s", samples, ring.path)
    return summary


def _commit_after(error: BaseException, generator: Generator, ring: Ring) -> None:
    """Commits what was written before ``error``, and adds a note about it to the error."""
    try:
        generator._failed(error)
        summary = generator._finish(False, lambda: True)
    except Exception as second:
        add_note(error, f"ringreel: what was written to {ring.path} before could not be committed: {second}")
        return
    add_note(
        error,
        f"ringreel: {counted(summary.finished, 'sample was', 'samples were')} committed to {ring.path} before this "
        f"({summary.delivered} delivered, {summary.waiting} waiting for their generation to fill)",
    )


def run_manager(config: Config | Ring, stop: threading.Event | Callable[[], bool] | None = None) -> None:
    """Runs a manager until SIGINT, SIGTERM or ``stop``.

    It promotes full generations, reclaims old ones, and commits the sealed segments of dead generators.
    Any number of managers can run; one works, the others stand by.

    The first promotion is logged, then at most one per minute, and the total at the end. If the program
    has not configured logging, log lines go to stderr during the call.

    Args:
        config (str | os.PathLike | Mapping | Ring): Path of a configuration file, a dict, or a ``Ring``.
        stop (threading.Event | Callable[[], bool] | None): Stops the manager when it is set or returns
            true. It is checked about every 50 ms. Outside the main thread it is the only way to stop the
            manager. Default None.

    Raises:
        ConfigError: The configuration does not suffice to create the ring.
        RingMismatchError: The ring does not match the configuration.
        CoordinationUnavailableError: The server that keeps the index does not answer.
        CoordinationDeniedError: The server that keeps the index refuses this user.

    Example:
        >>> import threading
        >>> stop = threading.Event()
        >>> threading.Timer(0.2, stop.set).start()              # a real manager runs until a signal
        >>> ringreel.run_manager("config.yaml", stop)
    """
    ring = Ring._of(config)
    with on_stderr(), StopOnSignal(stop) as stopped:
        ring._tell_notes()
        logger.info("manager of %s (process %d)", ring.path, os.getpid())
        _ringreel.run_manager(ring._config, stopped)
