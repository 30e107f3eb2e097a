"""Rings and datasets in other processes: forked, spawned, pickled."""

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import weakref

import numpy as np
import pytest
from conftest import add, numbered, numbers

import ringreel

# Python 3.12 and later warn of every fork where there are threads; that it goes well is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def read(ring, dataset, queue):
    """What a child process does."""
    status = ring.status()
    found = (numbers(dataset), numbers(ring.stream(epochs=1)), status["samples_delivered"], os.getpid())
    queue.put(found)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("used_before", [False, True])
def test_a_child_reads_by_itself(filled, method, used_before):
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
    """Runs `work` in a forked child that ends as an interpreter does; returns its exit status."""
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


def test_what_a_parent_opened_is_refused_in_a_fork_and_left_alone(filled):
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
        sys.unraisablehook = failures.append  # what goes wrong while something is dropped ends up there
        gone = weakref.ref(generator), weakref.ref(stream)
        del generator, stream  # must neither hang nor strike the parent off the list
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


def test_a_ring_and_a_dataset_can_be_pickled(filled, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text("RING: here\nSWAP_CAP: 4\nSAMPLE: [data]\n")
    for given in ("config.yaml", {"RING": "here", "SWAP_CAP": 4, "SAMPLE": ["data"]}):
        ring = ringreel.Ring(given)
        assert ring.path == str(tmp_path / "here")
        add(ring, numbered(4))
        dataset = ring.dataset(timeout=5)
        assert len(dataset) == 4
        data = pickle.dumps((ring, dataset, ring.stream(epochs=1)))
        monkeypatch.chdir("/")
        again, copy, stream = pickle.loads(data)
        assert again.path == ring.path and numbers(copy) == numbers(stream) == [0, 1, 2, 3]
        monkeypatch.chdir(tmp_path)


def test_a_pickled_dataset_stays_with_its_generation(filled):
    ring = filled(numbered(3), KEEP=1)
    dataset = ring.dataset()
    assert len(dataset) == 3
    data = pickle.dumps(dataset)
    add(ring, numbered(2, start=10))
    assert numbers(pickle.loads(data)) == [0, 1, 2]
    add(ring, numbered(2, start=20))
    assert numbers(pickle.loads(data)[:2]) == [20, 21]  # it is gone: the newest


def test_a_stream_that_has_begun_cannot_be_pickled(filled):
    stream = filled(numbered(1)).stream()
    next(stream)
    with pytest.raises(TypeError, match="begun"):
        pickle.dumps(stream)


EXCEPTIONS = [
    ringreel.RingreelError,
    ringreel.ConfigError,
    ringreel.RingNotFoundError,
    ringreel.RingMismatchError,
    ringreel.DamagedSampleError,
    ringreel.ReclaimedError,
    ringreel.CoordinationUnavailableError,
    ringreel.CoordinationDeniedError,
    ringreel.SampleError,
    ringreel.RingTimeoutError,
]


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_exceptions_can_be_pickled(kind):
    error = kind("what happened")
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == "what happened" and again.__notes__ == ["a note"]
    assert isinstance(error, ringreel.RingreelError) and isinstance(error, RuntimeError)
    assert kind.__module__ == "ringreel"
