"""Rings and datasets in other processes: forked, spawned, pickled."""

import gc
import multiprocessing
import os
import signal
import sys
import weakref

import numpy as np
import pytest
from conftest import numbered, numbers

import ringreel

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def read(ring, dataset, queue):
    """Runs in a child process."""
    status = ring.status()
    found = (numbers(dataset), numbers(ring.stream(epochs=1)), status["samples_delivered"], os.getpid())
    queue.put(found)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("used_before", [False, True])
def test_child_process_reads_independently(filled, method, used_before):
    ring = filled(numbered(6))
    dataset = ring.dataset()
    if used_before:
        assert len(dataset) == 6
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=read, args=(ring, dataset, queue)) for _ in range(3)]
    [child.start() for child in children]
    found = [queue.get(timeout=60) for _ in children]
    [child.join(60) for child in children]
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert all(item[:3] == (list(range(6)), list(range(6)), 6) for item in found)
    assert len({item[3] for item in found} | {os.getpid()}) == 4
    assert numbers(dataset) == list(range(6))


def in_fork(work):
    """Runs `work` in a forked child that exits through the interpreter. Returns its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)  # a child that hangs fails
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_parents_objects_are_refused_and_untouched_in_a_fork(filled):
    ring = filled(numbered(3), SWAP_CAP=100, KEEP=5)
    generator, stream = ring.generator(), ring.stream()
    generator.write({"data": np.arange(3)})
    next(stream)
    members = [[member["name"] for member in ring.status()[role]] for role in ("generators", "readers")]
    assert [len(names) for names in members] == [1, 1]

    def child():
        nonlocal generator, stream
        with pytest.raises(ringreel.RingreelError, match="after a fork, open it again in the child"):
            generator.write({"data": np.arange(3)})
        with pytest.raises(ringreel.RingreelError, match="after a fork, open it again in the child"):
            next(stream)
        failures = []
        sys.unraisablehook = failures.append  # receives errors in destructors
        gone = weakref.ref(generator), weakref.ref(stream)
        del generator, stream  # must neither hang nor remove the parent from the members
        gc.collect()
        assert gone[0]() is None and gone[1]() is None and failures == []
        now = [[member["name"] for member in ring.status()[role]] for role in ("generators", "readers")]
        assert now == members
        with ring.generator() as own:
            own.write({"data": np.arange(3)})

    assert in_fork(child) == 0
    assert numbers([next(stream)]) == [1]
    generator.write({"data": np.arange(3)})
    assert generator.finish().finished == 2
