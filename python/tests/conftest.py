"""Shared fixtures: configurations of rings in a fresh directory, rings with samples, and processes."""

import contextlib
import inspect
import itertools
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import ringreel

# A shell makes its background processes ignore SIGINT, and the processes that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """Removes the variables by which a launcher, such as that of the job that runs the tests, names rank and run."""
    launchers = ("RANK", "WORLD_SIZE", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_")
    for name in [name for name in os.environ if name.startswith(launchers)]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path):
    """Makes a configuration, as a dict, of a ring that does not exist yet."""

    def make(**keys):
        defaults = {"RING": str(tmp_path / "ring"), "SWAP_CAP": 4, "SAMPLE": ["data"], "LEASE_SECONDS": 0.5}
        return {**defaults, "POLL_SECONDS": 0.02, **keys}

    return make


@pytest.fixture
def filled(config):
    """Makes a ring with these samples in one readable generation."""

    def make(samples, **keys):
        samples = list(samples)
        first = samples[0][0] if isinstance(samples[0], tuple) else samples[0]
        names = list(first) if isinstance(first, dict) else ["data"]
        ring = ringreel.Ring(config(**{"SAMPLE": names, "SWAP_CAP": max(len(samples), 1), **keys}))
        add(ring, samples)
        return ring

    return make


def add(ring, samples, promote=True):
    """Writes samples and makes them readable."""
    with ring.generator() as generator:
        ids = [id for sample in samples for id in generator.write(sample)]
        ids += generator.flush()
        generator.finish(promote=promote)
    return ids


def numbered(count, size=3, start=0):
    """Returns samples whose elements are the sample's number."""
    return [{"data": np.full(size, start + n, np.int64)} for n in range(count)]


def numbers(samples):
    """Returns the numbers of such samples."""
    return [int(sample["data"].flat[0]) for sample in samples]


@pytest.fixture
def grain():
    """Returns the module grain, or skips the test."""
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns that jax is not installed
    grain = pytest.importorskip("grain", reason="grain is not installed: ringreel.grain under Grain is NOT tested")
    flags = pytest.importorskip("absl.flags").FLAGS
    if not flags.is_parsed():
        flags(["tests"])  # Grain's processes need it if jax is installed
    return grain


def zip_equal(*columns):
    """Does what ``zip(..., strict=True)`` does, which Python 3.9 lacks."""
    missing = object()
    for row in itertools.zip_longest(*columns, fillvalue=missing):
        assert all(value is not missing for value in row), "the columns have different lengths"
        yield row


def options_of(function):
    """Returns the defaults of a function's parameters, by name, without ``self``."""
    parameters = inspect.signature(function).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name != "self"}


class Script:
    """A Python program in a separate process, with its output so far."""

    def __init__(self, directory, text, *args):
        self.path = directory / f"script{len(list(directory.glob('script*.py')))}.py"
        self.path.write_text(textwrap.dedent(text))
        self.log = self.path.with_suffix(".log")
        with self.log.open("w") as log:
            command = [sys.executable, "-u", str(self.path), *map(str, args)]
            self.child = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)

    @property
    def said(self):
        """The output: only whole lines while the program runs, because `print` writes a line in pieces."""
        ended = self.child.poll() is not None
        text = self.log.read_text()
        return text if ended else text[: text.rfind("\n") + 1]

    def wait_for(self, text, seconds=60):
        """Waits until the program has printed `text`."""
        until(lambda: text in self.said or self.child.poll() is not None, seconds)
        assert text in self.said, self.said

    def end(self, number=None, seconds=60):
        """Sends a signal, waits until the program exits, and returns its exit status."""
        if number is not None:
            self.child.send_signal(number)
        return self.child.wait(seconds)


def until(condition, seconds=60):
    """Waits until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@contextlib.contextmanager
def managed(config, log):
    """Runs a manager in a thread. Waits until it holds the lease, according to `log`, pytest's caplog."""
    log.set_level(logging.INFO, "ringreel")
    stop = threading.Event()
    thread = threading.Thread(target=ringreel.run_manager, args=(config, stop.is_set), daemon=True)
    thread.start()
    try:
        until(lambda: "this manager holds the lease" in log.text)
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def script(tmp_path):
    """Starts programs, and kills the remaining ones afterwards."""
    started = []

    def start(text, *args):
        started.append(Script(tmp_path, text, *args))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.child.kill()
        each.child.wait()


def segment_files(ring):
    """Returns the segment files of all readable generations, in order of their paths."""
    found = []
    for directory in sorted(os.listdir(ring.path)):
        if directory.startswith("read."):
            path = os.path.join(ring.path, directory)
            found += [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(".rec")]
    return found


def memory_of(address):
    """Returns the permissions of the memory map at an address, as in /proc: "rw-p" is private and writable."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions = line.split()[:2]
            start, end = (int(n, 16) for n in span.split("-"))
            if start <= address < end:
                return permissions
    return None


def ruin(path, how):
    """Deletes a file, truncates it, or changes a byte in its middle."""
    if how == "deleted":
        os.remove(path)
        return
    size = os.path.getsize(path)
    fresh = path + ".new"  # a sealed file is never modified: a new one replaces it
    with open(path, "rb") as old, open(fresh, "wb") as new:
        data = bytearray(old.read())
        if how == "changed":
            data[size // 2] ^= 0xFF
        else:
            del data[size // 2 :]
        new.write(data)
    if how == "cut open":
        with open(path, "r+b") as file:
            file.truncate(size // 2)
        os.remove(fresh)
    else:
        os.replace(fresh, path)


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    """Rings by the number of samples in their only generation. Tests must not change them."""
    made = {}

    def of(size):
        if size not in made:
            path = tmp_path_factory.mktemp("ring")
            keys = {"RING": str(path / "ring"), "SWAP_CAP": size, "SAMPLE": ["data"], "SEGMENT_SAMPLES": 10}
            made[size] = ringreel.Ring({**keys, "POLL_SECONDS": 0.02, "LEASE_SECONDS": 5})
            add(made[size], numbered(size))
        return made[size]

    return of


@pytest.fixture
def ring_of(filled):
    """Makes a ring with one file per sample. Later generations can be larger or smaller."""

    def make(samples, **keys):
        return filled(samples, **{"SWAP_CAP": 50, "SEGMENT_SAMPLES": 1, **keys})

    return make
