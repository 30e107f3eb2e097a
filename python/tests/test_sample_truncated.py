"""Segments that are truncated under arrays: the process survives and logs it. Other bus errors still kill it."""

import faulthandler
import glob
import logging
import os
import signal

import numpy as np
import pytest

import ringreel

SIZE = 300_000


def truncate(ring, but_bytes=8192):
    for path in glob.glob(f"{ring.path}/read.1/*.rec"):
        os.truncate(path, but_bytes)


@pytest.fixture
def ring(filled):
    samples = [{"data": np.full(SIZE, n + 1, np.uint8)} for n in range(3)]
    ring = filled(samples, READ="mmap")
    return ring


def test_array_of_a_truncated_segment_is_zeros_and_logged(ring, caplog):
    dataset = ring.dataset()
    held = dataset[0]["data"]
    assert (held[:100] == 1).all()
    truncate(ring)
    assert held[0] == 1 and not held[8192:].any(), "what is left, and zeros"
    with caplog.at_level(logging.ERROR, "ringreel"), pytest.raises(ringreel.DamagedSampleError):
        dataset[1]
    assert "truncated while it was mapped" in caplog.text and "read.1" in caplog.text


PROGRAM = """
    import faulthandler, glob, logging, mmap, os, resource, signal, sys
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the process will die, and should leave no core file
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))  # and should not run without end
    import numpy as np
    import ringreel
    path, what = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    if what == "faulthandler before":
        faulthandler.enable()
    ring = ringreel.Ring({"RING": path, "READ": "mmap"})
    dataset = ring.dataset()
    held = [dataset[n]["data"] for n in range(3)]
    if what in ("faulthandler after", "foreign, faulthandler after"):
        faulthandler.enable()
    if what.startswith("foreign, faulthandler between"):
        faulthandler.enable()
        held.append(ring.dataset()[0]["data"])  # the next map
    if what.endswith("and off"):
        faulthandler.disable()
    for name in glob.glob(f"{path}/read.1/*.rec"):
        os.truncate(name, 8192)
    if what == "fork":
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert status == 0, status
    print("zeros", sum(int(array[8192:].any()) for array in held), flush=True)
    if what.startswith("foreign") or what.startswith("faulthandler"):
        with open("foreign", "wb+") as file:
            file.truncate(8192)
            unguarded = mmap.mmap(file.fileno(), 8192)
            file.truncate(0)
        if what == "foreign, faulthandler last":
            faulthandler.enable()
        print("now a foreign one", flush=True)
        unguarded[4096]
    if what == "sent":
        os.kill(os.getpid(), signal.SIGBUS)
    print("alive", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "what",
    [
        "faulthandler before",
        "faulthandler after",
        "foreign",
        "foreign, faulthandler after",
        "foreign, faulthandler between",
        "foreign, faulthandler between, and off",
        "foreign, faulthandler last",
        "sent",
        "fork",
    ],
)
def test_only_bus_errors_of_our_maps_are_survived(ring, script, what):
    program = script(PROGRAM, ring.path, what)
    status = program.end()
    assert "zeros 0" in program.said, program.said
    if what == "fork":
        assert status == 0 and "alive" in program.said, program.said
        return
    assert status == -signal.SIGBUS and "alive" not in program.said, program.said
    if what in ("faulthandler before", "foreign, faulthandler between", "foreign, faulthandler last"):
        after = program.said.split("now a foreign one")
        assert "Bus error" in after[1] and "Bus error" not in after[0], program.said


def test_faulthandler_is_not_changed(ring):
    before = faulthandler.is_enabled()
    assert ring.dataset()[0]["data"][0] == 1
    assert faulthandler.is_enabled() == before
