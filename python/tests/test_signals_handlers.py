"""Signal handlers and other threads use a generator or a stream while one of its calls waits."""

import json
import signal
import threading

import pytest
from conftest import add, numbered, numbers, until

import ringreel

PREAMBLE = """
    import json, signal, sys, threading
    import ringreel

    ring = ringreel.Ring(json.loads(sys.argv[1]))

    def refused(call):
        try:
            call()
        except ringreel.RingreelError as error:
            return f"refused: {error}"
        return "not refused"
"""

WRITE = """
    generator = ring.generator()

    def save(number, frame):
        print("saved", generator.summary.finished, generator.written, refused(lambda:
        generator.write((0,))))

    def end(number, frame):
        print("ending", generator.finish().finished)

    signal.signal(signal.SIGUSR1, save)
    signal.signal(signal.SIGTERM, end)
    try:
        with generator:
            for n in range({count}):
                generator.write((n,))
                print("wrote")
            {last}
    except ringreel.RingreelError as error:
        print("raised", error)
    print("summary", json.dumps(vars(generator.finish())))
"""

# Without a reader, the generator fills one generation ahead, and its next call blocks.
FULL = {"SWAP_CAP": 2, "REUSE": {"min": 1}}


def until_it_waits(keys):
    def waits():
        try:
            generators = ringreel.Ring(keys).status()["generators"]
        except (ringreel.RingNotFoundError, OSError):
            return False
        return any("waiting for" in generator.get("doing", "") for generator in generators)

    until(waits, 60)


def summary_of(process):
    line = next(line for line in process.said.splitlines() if line.startswith("summary"))
    return json.loads(line.removeprefix("summary "))


@pytest.mark.parametrize("last", ["generator.flush()", "generator.finish()", "generator.finish(promote=True)"])
def test_handlers_can_query_a_generator_that_commits(config, script, last):
    keys = config(**FULL)
    process = script(PREAMBLE + WRITE.format(count=5, last=last), json.dumps(keys))
    until_it_waits(keys)
    process.child.send_signal(signal.SIGUSR1)
    process.wait_for("saved", 60)
    assert "saved 5 5 refused: a call of this generator is running in this thread" in process.said
    process.child.send_signal(signal.SIGTERM)
    assert process.end(seconds=60) == 0, process.said
    assert "ending 5" in process.said and "raised" not in process.said
    summary = summary_of(process)
    assert [summary[key] for key in ("finished", "delivered", "waiting", "quarantined")] == [5, 2, 3, 0]
    assert ringreel.Ring(keys).status()["failures"] == []


def test_handlers_can_query_a_generator_that_waits_for_room(config, script):
    keys = config(SWAP_CAP=2, KEEP=100, MAX_FILES=6)
    process = script(PREAMBLE + WRITE.format(count=1000, last="pass"), json.dumps(keys))
    until_it_waits(keys)
    process.child.send_signal(signal.SIGUSR1)
    process.wait_for("saved", 60)
    wrote = process.said.count("wrote\n")
    assert f"saved {wrote} {wrote} refused: a call of this generator is running in this thread" in process.said
    process.child.send_signal(signal.SIGTERM)
    assert process.end(seconds=60) == 0, process.said
    assert process.said.count("wrote\n") == wrote and "raised a signal handler finished this generator" in process.said
    assert summary_of(process)["finished"] == wrote
    status = ringreel.Ring(keys).status()
    assert status["samples_delivered"] + status["samples_waiting"] == wrote and status["failures"] == []


READ = """
    stream = {make}

    def save(number, frame):
        print("state", json.dumps(stream.state_dict()))
        print("saved", {epochs}, refused(lambda: next(stream)))

    def end(number, frame):
        stream.close()

    signal.signal(signal.SIGUSR1, save)
    signal.signal(signal.SIGTERM, end)
    print("began")
    for sample in stream:
        print("read", int(sample["data"][0]), json.dumps(stream.state_dict()))
    print("ended")
"""


def state_in(process, word):
    """Returns the state in the last line that starts with `word`."""
    lines = [line for line in process.said.splitlines() if line.startswith(word)]
    return json.loads(lines[-1][lines[-1].index("{") :])


def until_it_reads(ring):
    until(lambda: any("waiting for" in reader.get("doing", "") for reader in ring.status()["readers"]), 60)


def test_handlers_can_query_a_waiting_stream(filled, script):
    ring = filled(numbered(4))
    keys = {**json.loads(ring._config.__reduce__()[1][0])}
    process = script(PREAMBLE + READ.format(make="ring.stream(repeat=False)", epochs="stream.epochs"), json.dumps(keys))
    process.wait_for("read 3", 60)
    until_it_reads(ring)
    process.child.send_signal(signal.SIGUSR1)
    process.wait_for("saved", 60)
    assert "saved 0 refused: a call of this stream is running in this thread" in process.said
    state = state_in(process, "state")
    assert state == state_in(process, "read") and state["step"] == 4
    process.child.send_signal(signal.SIGTERM)
    assert process.end(seconds=60) == 0 and process.said.endswith("ended\n"), process.said
    add(ring, numbered(4, start=4))
    again = ring.stream(repeat=False)
    again.load_state_dict(state)
    assert numbers(next(again) for _ in range(4)) == [4, 5, 6, 7]


def test_handlers_can_query_a_stream_that_waits_for_a_ring(config, script):
    process = script(PREAMBLE + READ.format(make="ring.stream()", epochs="stream.epochs"), json.dumps(config()))
    process.wait_for("began", 60)
    until(lambda: "saved" in process.said or process.child.send_signal(signal.SIGUSR1), 60)
    until(lambda: "refused: a call of this stream" in process.said, 60)
    assert state_in(process, "state") == {}
    process.child.send_signal(signal.SIGTERM)
    assert process.end(seconds=60) == 0 and process.said.endswith("ended\n"), process.said


def test_handlers_can_query_a_mixture_of_a_waiting_stream(filled, script):
    ring = filled(numbered(4))
    keys = {**json.loads(ring._config.__reduce__()[1][0])}
    make = "ringreel.Mixture([ring.stream(repeat=False)])"
    process = script(PREAMBLE + READ.format(make=make, epochs="stream.given"), json.dumps(keys))
    process.wait_for("read 3", 60)
    until_it_reads(ring)
    process.child.send_signal(signal.SIGUSR1)
    process.wait_for("saved", 60)
    assert "saved (4,) refused: a call of this stream is running in this thread" in process.said
    state = state_in(process, "state")
    assert state == state_in(process, "read") and state["sources"][0]["step"] == 4


def in_thread(call):
    """Returns the result of `call` in a separate thread. It must not block."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(60)
    assert results, "the call waits"
    return results[0]


def test_threads_can_query_a_stream_that_waits_in_another_thread(filled):
    ring = filled(numbered(4))
    stream = ring.stream(repeat=False)
    assert len([next(stream) for _ in range(4)]) == 4
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(list(stream)), daemon=True)
    waiting.start()
    until_it_reads(ring)
    assert in_thread(lambda: stream.state_dict()["step"]) == 4
    assert in_thread(lambda: (stream.epochs, stream.run)) == (0, stream.run)
    in_thread(lambda: stream.close() or True)
    waiting.join(60)
    assert ended == [[]]


def test_threads_take_turns_in_one_stream(filled):
    stream = filled(numbered(100)).stream(epochs=3)
    found = []
    threads = [threading.Thread(target=lambda: found.extend(numbers(stream)), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == sorted(3 * list(range(100)))


RAISE = """
    try:
        with ring.generator() as generator:
            for n in range(5):
                generator.write((n,))
                print("wrote")
            raise ValueError("mine")
    except ValueError as error:
        print("left", error)
    print("summary", json.dumps(vars(generator.finish())))
"""

RAISE_IN_RUN = """
    def samples():
        for n in range(5):
            yield (n,)
            print("wrote")
        raise ValueError("mine")

    try:
        ringreel.run_generator(samples(), ring)
    except ValueError as error:
        print("left", error, *error.__notes__)
"""


@pytest.mark.parametrize("text", [RAISE, RAISE_IN_RUN], ids=["with", "run_generator"])
def test_generator_leaves_a_full_ring_at_once_after_an_exception(config, script, text):
    """Sealed samples without a place stay in staging, and are delivered once there is room."""
    keys = config(**FULL)
    process = script(PREAMBLE + text, json.dumps(keys))
    process.wait_for("left mine", 60)
    assert process.end(seconds=60) == 0, process.said
    assert process.said.count("wrote\n") == 5
    if text == RAISE:
        assert (summary_of(process)["finished"], summary_of(process)["waiting"]) == (5, 3)
    else:
        assert "5 samples were committed" in process.said and "2 delivered, 3 waiting" in process.said
    status = ringreel.Ring(keys).status()
    assert status["samples_delivered"] + status["samples_waiting"] == 5
