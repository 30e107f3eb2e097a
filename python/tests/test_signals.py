"""Signals to real processes.

A program prints its progress. If a test has to send a signal at a certain place, the program waits there for the test.
"""

import json
import re
import signal
import threading
import time

import pytest
from conftest import numbers, segment_files, until

import ringreel

GENERATE = """
    import json, os, sys, time
    import numpy as np, ringreel

    def wait_at(number, n):
        while n == number and not os.path.exists("go"):
            time.sleep(0.01)

    def samples():
        n = 0
        while True:
            print("begin", n)
            {pause}
            print("yield", n)
            yield {{"data": np.full(1000, n)}}
            n += 1

    try:
        summary = ringreel.run_generator(samples(), json.loads(sys.argv[1]), promote={promote})
        print("summary", json.dumps(vars(summary)))
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
"""


def go(process):
    """Lets a program continue that waits with `wait_at`."""
    process.path.with_name("go").touch()


def summary_of(process):
    line = next(line for line in process.said.splitlines() if line.startswith("summary"))
    return json.loads(line.removeprefix("summary "))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("segment_samples", [1, 7])
def test_signal_during_a_run_loses_no_yielded_sample(config, script, number, segment_samples):
    keys = config(SWAP_CAP=5, KEEP=50, SEGMENT_SAMPLES=segment_samples)
    process = script(GENERATE.format(pause="time.sleep(0.02)", promote=True), json.dumps(keys))
    process.wait_for("yield 12")
    assert process.end(number) == 0, process.said
    yielded = process.said.count("yield")
    summary = summary_of(process)
    assert summary["interrupted"] and summary["finished"] == summary["delivered"] == yielded
    status = ringreel.Ring(keys).status()
    assert status["samples_delivered"] == yielded and status["generators"] == []
    assert f"{number.name}: {yielded} samples are finished and safe in" in process.said


def test_current_sample_is_finished_after_a_signal(config, script):
    process = script(GENERATE.format(pause="wait_at(1, n)", promote=False), json.dumps(config(SWAP_CAP=5)))
    process.wait_for("begin 1")
    process.child.send_signal(signal.SIGTERM)
    go(process)
    assert process.end() == 0
    assert "yield 1" in process.said and "begin 2" not in process.said
    assert summary_of(process)["finished"] == 2
    assert ringreel.Ring(config(SWAP_CAP=5)).status()["samples_waiting"] == 2


def test_a_second_sigint_is_a_keyboard_interrupt_at_once(config, script):
    process = script(GENERATE.format(pause="wait_at(0, n)", promote=False), json.dumps(config()))
    process.wait_for("begin 0")
    process.child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.child.poll() is None
    assert process.end(signal.SIGINT) == 0
    assert "KeyboardInterrupt" in process.said and "yield" not in process.said


def test_a_second_sigterm_changes_nothing(config, script):
    process = script(GENERATE.format(pause="wait_at(0, n)", promote=False), json.dumps(config()))
    process.wait_for("begin 0")
    process.child.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.child.send_signal(signal.SIGTERM)
    go(process)
    assert process.end() == 0
    assert summary_of(process)["finished"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_handled_while_the_ring_is_full(config, script, number):
    """MAX_FILES leaves no room, and KEEP prevents a reclaim, so the generator waits without end."""
    keys = config(SWAP_CAP=2, KEEP=100, MAX_FILES=6, LEASE_SECONDS=2)
    process = script(GENERATE.format(pause="pass", promote=False), json.dumps(keys))
    until(lambda: (members := status_of(keys)["generators"]) and "room under MAX_FILES" in members[0].get("doing", ""))
    assert process.end(number) == 0, process.said
    summary = summary_of(process)
    assert summary["interrupted"] and summary["finished"] == summary["delivered"] + summary["waiting"] > 0
    assert "the last sample was not written" in process.said


SEAL = """
    import glob, json, os, sys
    import ringreel

    keys = json.loads(sys.argv[1])
    ringreel._run._SEAL_SECONDS = 0.5

    def samples():
        yield {"data": 1}
        for path in glob.glob(keys["RING"] + "/write.1/*.rec"):
            os.truncate(path, 10)
        print("ruined")

    print("summary", json.dumps(vars(ringreel.run_generator(samples(), keys, promote=True))))
"""


def test_signals_are_handled_while_a_generation_cannot_be_promoted(config, script):
    process = script(SEAL, json.dumps(config()))
    process.wait_for("ruined")
    time.sleep(0.5)
    assert process.child.poll() is None
    assert process.end(signal.SIGTERM) == 0, process.said
    summary = summary_of(process)
    assert summary["interrupted"] and (summary["finished"], summary["delivered"]) == (1, 0)


def status_of(keys):
    try:
        return ringreel.Ring(keys).status()
    except (ringreel.RingNotFoundError, OSError):
        return {"generators": []}


def test_a_killed_generator_loses_no_finished_sample(config, script):
    keys = config(SWAP_CAP=1000, SEGMENT_SAMPLES=1)
    process = script(GENERATE.format(pause="time.sleep(0.01)", promote=False), json.dumps(keys))
    process.wait_for("yield 20")
    process.end(signal.SIGKILL)
    yielded = process.said.count("yield")
    assert yielded - 1 <= ringreel.Ring(keys).status()["samples_waiting"] <= yielded


MANAGE = """
    import json, sys, ringreel
    ringreel.run_manager(json.loads(sys.argv[1]))
    print("returned")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_manager_swaps_and_returns_at_a_signal(config, script, number):
    keys = config(SWAP_CAP=3, LEASE_SECONDS=30, KEEP=10)
    ring = ringreel.Ring(keys)
    process = script(MANAGE, json.dumps(keys))
    process.wait_for("this manager holds the lease")
    ringreel.run_generator(({"data": n} for n in range(9)), ring)
    until(lambda: ring.status()["swaps"] == 3)
    assert process.end(number) == 0, process.said
    assert "returned" in process.said and "the manager stopped" in process.said
    assert process.said.count("INFO swap: generation") == 1
    assert "the manager stopped after 3 swaps" in process.said
    assert re.search(r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ", process.said), process.said
    assert ring.status()["manager"] is None and ring.status()["managers"] == []


def test_end_waits_for_a_slow_manager(config, script):
    keys = config(SWAP_CAP=2, LEASE_SECONDS=30, KEEP=5)
    ring, late = ringreel.Ring(keys), ringreel.Ring({**keys, "SEGMENT_SAMPLES": 2})
    manager = script(MANAGE, json.dumps(keys))
    manager.wait_for("this manager holds the lease")
    manager.child.send_signal(signal.SIGSTOP)
    ended = []
    with ring.generator() as other:
        [other.write((n,)) for n in range(2)]  # full, and the manager does not poll
        run = threading.Thread(target=lambda: ended.append(ringreel.run_generator([(2,)], late)))
        run.start()
        time.sleep(1)
        assert run.is_alive() and ring.status()["swaps"] == 0
        manager.child.send_signal(signal.SIGCONT)
        run.join(60)
    assert (ended[0].finished, ended[0].swaps) == (1, 0) and ended[0].waited_seconds > 0
    assert ring.status()["writing"]["samples"] == 1
    assert manager.end(signal.SIGTERM) == 0


END = """
    import json, sys, threading, time
    import ringreel

    ring = ringreel.Ring(json.loads(sys.argv[1]))
    ringreel.run_generator([(1,)], ring, promote=True)
    for n in range(30):
        threading.Thread(target=list, args=(ring.stream(repeat=False),), daemon=True).start()
    for n in range(10):
        threading.Thread(target=ringreel.run_manager, args=(ring,), daemon=True).start()
    time.sleep(0.5)
"""


def test_interpreter_can_exit_while_its_threads_wait(config, script):
    """Repeats the test, because the crash occurred in every third run."""
    keys = config(POLL_SECONDS=0.2)
    assert [script(END, json.dumps(keys)).end() for _ in range(8)] == [0] * 8


INTERRUPT = """
    import json, sys, ringreel
    ring = ringreel.Ring(json.loads(sys.argv[1]))
    print("waiting")
    try:
        {what}
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
"""


@pytest.mark.parametrize("what", ["ring.dataset()[0]", "next(ring.stream())", "next(ring.stream(repeat=False))"])
def test_ctrl_c_ends_a_wait_for_data(config, script, what):
    process = script(INTERRUPT.format(what=what), json.dumps(config()))
    process.wait_for("waiting")
    time.sleep(1)
    assert process.end(signal.SIGINT) == 0
    assert process.said.splitlines()[-1] == "KeyboardInterrupt"


READ = """
    import json, sys, ringreel
    for sample in ringreel.Ring(json.loads(sys.argv[1])).stream(epochs=int(sys.argv[2])):
        print("read", int(sample["data"].flat[0]), sample.generation)
"""


def test_generators_a_manager_and_readers_work_together(config, script):
    keys = config(SWAP_CAP=10, KEEP=3, SEGMENT_SAMPLES=2)
    manager = script(MANAGE, json.dumps(keys))
    generators = [script(GENERATE.format(pause="time.sleep(0.005)", promote=False), json.dumps(keys)) for _ in range(3)]
    readers = [script(READ, json.dumps(keys), 5) for _ in range(2)]
    for reader in readers:
        assert reader.end(seconds=60) == 0, reader.said
    ends = [generator.end(signal.SIGTERM) for generator in generators]
    assert ends == [0, 0, 0] and manager.end(signal.SIGTERM) == 0
    status = ringreel.Ring(keys).status()
    made = sum(generator.said.count("yield") for generator in generators)
    assert status["samples_delivered"] + status["samples_waiting"] == made
    assert all(reader.said.count("read") >= 40 for reader in readers)
    assert len(segment_files(ringreel.Ring(keys))) > 0 and numbers(ringreel.Ring(keys).dataset())
