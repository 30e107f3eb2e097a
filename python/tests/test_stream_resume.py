"""Streams that resume after a kill, in another process, and with another number of workers.

RINGREEL_TEST_CASES sets the number of random cases.
"""

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from itertools import chain, islice

import pytest
from conftest import add, managed, numbered, numbers, zip_equal
from rank_processes import Ranks

import ringreel

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

CASES = int(os.environ.get("RINGREEL_TEST_CASES", "100"))
EPOCHS = 5
#: Numbers of samples of the three generations of each ring.
RINGS = [(1, 1, 1), (7, 5, 9), (20, 33, 12), (2, 40, 3)]


@pytest.fixture(scope="module")
def ranks():
    with Ranks(2) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    """Rings in which a run "log" has read generations 1, 1, 2, 2 and 3."""
    made = []
    for sizes in RINGS:
        path = tmp_path_factory.mktemp("ring") / "ring"
        keys = {"SWAP_CAP": 50, "KEEP": 5, "SEGMENT_SAMPLES": 10, "SAMPLE": ["data"], "LEASE_SECONDS": 5}
        ring = ringreel.Ring({"RING": str(path), "POLL_SECONDS": 0.02, **keys})
        leader = ring.stream(run="log", epochs=EPOCHS, prefetch_bytes=0)
        for n, (size, epochs) in enumerate(zip_equal(sizes, (2, 2, 1))):
            add(ring, numbered(size, start=100 * n))
            assert numbers(next(leader) for _ in range(epochs * size)) == [*range(100 * n, 100 * n + size)] * epochs
        assert list(leader) == []
        made.append(ring)
    return made


def identity(stream, sample):
    """Returns what identifies a sample in a run: number of the epoch, id, place, and padding flag."""
    return [stream.state_dict()["number"], sample.sample_id, sample.generation, sample.position, sample.is_padding]


def in_turn(streams):
    """Reads the streams in turn. Yields pairs of the number of the stream and the sample."""
    left = list(streams)
    while left:
        for stream in list(left):
            sample = next(stream, None)
            if sample is None:
                left.remove(stream)
            else:
                yield streams.index(stream), sample


def in_fork(work, *args):
    """Runs `work(*args)` in a forked child, and returns its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)  # a child that hangs fails
            work(*args)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def streams_of(case, ring):
    rank, world, workers = case["rank"], case["world"], case["workers"]
    return [ring.stream(rank * workers + n, world * workers, **case["options"]) for n in range(workers)]


def train(case, ring, directory, kill):
    """Reads as one rank, and saves the state after each sample. `kill` says when and where it dies."""
    streams = streams_of(case, ring)
    given = [0] * len(streams)
    for n, stream in enumerate(streams):
        saved = directory / f"{n}.json"
        if saved.exists():
            found = json.loads(saved.read_text())
            given[n] = found["given"]
            stream.load_state_dict(found["state"])
        lines = (directory / f"{n}.log").read_text().splitlines(True) if given[n] else []
        (directory / f"{n}.log").write_text("".join(lines[: given[n]]))
    logs = [open(directory / f"{n}.log", "a") for n in range(len(streams))]
    place, at = kill
    if place == "any time":
        threading.Timer(at, killed).start()
    for count, (n, sample) in enumerate(in_turn(streams)):
        if (place, at) == ("given", count):
            killed()
        logs[n].write(json.dumps(identity(streams[n], sample)) + "\n")
        logs[n].flush()
        if (place, at) == ("logged", count):
            killed()
        given[n] += 1
        saved = directory / f"{n}.json"
        new = saved.with_suffix(".new")
        new.write_text(json.dumps({"state": streams[n].state_dict(), "given": given[n]}))
        os.replace(new, saved)
        if (place, at) == ("saved", count):
            killed()
    assert all(stream.epochs == EPOCHS for stream in streams)


def uninterrupted(case, ring, directory):
    streams = streams_of(case, ring)
    found = [[] for _ in streams]
    for n, sample in in_turn(streams):
        found[n].append(identity(streams[n], sample))
    (directory / "wanted.json").write_text(json.dumps(found))


def case_of(seed):
    rng = random.Random(seed)
    world, workers = rng.choice([1, 2, 3, 8]), rng.choice([1, 1, 2, 4])
    ring = rng.randrange(len(RINGS))
    options = {
        "equal": rng.choice([None, "drop", "wrap", "pad"]),
        "shuffle": rng.random() < 0.6,
        "seed": rng.randrange(100),
        "prefetch_bytes": rng.choice([0, 1, 300, 100_000, None]),
        "threads": rng.choice([1, 2, 8]),
        "run": "log",
        "epochs": EPOCHS,
    }
    if RINGS[ring][-1] >= world * workers and rng.random() < 0.3:
        options["run"] = None  # a run of its own, which its state names
    samples = sum(RINGS[ring]) * EPOCHS // 3 // world
    kills = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        place = rng.choice(["given", "logged", "saved", "saved", "any time"])
        kills.append((place, rng.random() * 0.03 if place == "any time" else rng.randrange(samples + 1)))
    rank = rng.randrange(world)
    return {"ring": ring, "rank": rank, "world": world, "workers": workers, "options": options, "kills": kills}


def cases_of_process(process, seeds, rings, directory):
    """Kills and resumes. Returns the differences from an uninterrupted run, and the number of kills."""
    wrong, kills = [], 0
    for seed in seeds[process]:
        case = case_of(seed)
        ring, place = rings[case["ring"]], directory / str(seed)
        place.mkdir()
        for kill in [*case["kills"], (None, None)]:
            status = in_fork(train, case, ring, place, kill)
            kills += status == -signal.SIGKILL
            if status == 0:
                break
            if status != -signal.SIGKILL:
                wrong.append((seed, case, f"exit status {status}"))
                break
        status = in_fork(uninterrupted, case, ring, place)
        wanted = json.loads((place / "wanted.json").read_text()) if status == 0 else None
        logs = [(place / f"{n}.log").read_text().splitlines() for n in range(case["workers"])]
        found = [[json.loads(line) for line in log] for log in logs]
        if found != wanted:
            wrong.append((seed, case, found, wanted))
    return wrong, kills


def test_killed_stream_resumes_exactly(ranks, rings, tmp_path):
    """Epochs, samples and order are exact for any number of ranks and workers, at any place of the kill."""
    seeds = [range(first, CASES, 2) for first in range(2)]
    answers = ranks.together(2, cases_of_process, seeds, rings, tmp_path, seconds=600)
    wrong = [each for wrong, _ in answers for each in wrong]
    assert wrong == [], "\n".join(map(str, wrong[:3]))
    kills = sum(kills for _, kills in answers)
    print(f"{CASES} cases, {kills} kills")
    assert kills > CASES // 2


# Another number of workers.


def read_and_die(case, ring, directory):
    """Reads a number of samples in each worker of each rank, and kills the workers."""
    total = case["world"] * case["workers"]
    for worker, count in enumerate(case["counts"]):
        stream = ring.stream(worker, total, **case["options"])
        found = []
        for sample in (next(stream) for _ in range(count)):
            found.append(identity(stream, sample))
        (directory / f"{worker}.json").write_text(json.dumps({"given": found, "state": stream.state_dict()}))
    killed()


def go_on(case, ring, directory):
    """Resumes from all states with another number of workers."""
    total = case["world"] * case["workers"]
    states = [json.loads((directory / f"{worker}.json").read_text())["state"] for worker in range(total)]
    random.Random(case["counts"][0]).shuffle(states)
    streams = [ring.stream(worker, case["total"], **case["options"]) for worker in range(case["total"])]
    for stream in streams:
        stream.load_state_dict(states)
    found = [[] for _ in streams]
    for n, sample in in_turn(streams):
        found[n].append(identity(streams[n], sample))
    (directory / "more.json").write_text(json.dumps(found))


def steps_of(size, total, equal, worker):
    return size // total if equal == "drop" else -(-size // total) if equal else len(range(worker, size, total))


def world_case_of(seed):
    """Returns, per worker, the number of samples up to a random place in the same epoch, or up to its end."""
    rng = random.Random(seed)
    case = case_of(seed)
    total = case["world"] * case["workers"]
    case["options"]["run"] = "log"
    if min(RINGS[case["ring"]]) < total:  # each worker has a share of each epoch
        case["options"]["equal"] = rng.choice(["wrap", "pad"])
    case["total"] = rng.choice([n for n in (1, 2, 3, 4, 6, 8) if n != total])
    sizes = [size for size, epochs in zip_equal(RINGS[case["ring"]], (2, 2, 1)) for _ in range(epochs)]
    case["epoch"] = epoch = rng.randrange(EPOCHS)
    least = rng.random()
    case["counts"] = []
    for worker in range(total):
        steps = [steps_of(size, total, case["options"]["equal"], worker) for size in sizes]
        most = steps[epoch]
        step = min(most, int(least * (most + 1)) + rng.randrange(3))
        case["counts"].append(sum(steps[:epoch]) + step)
    return case


def worlds_of_process(process, seeds, rings, directory):
    wrong, inside = [], 0
    for seed in seeds[process]:
        case = world_case_of(seed)
        ring, place = rings[case["ring"]], directory / f"world {seed}"
        place.mkdir()
        try:
            assert in_fork(read_and_die, case, ring, place) == -signal.SIGKILL
            assert in_fork(go_on, case, ring, place) == 0
            inside += check_world(case, place)
        except AssertionError:
            wrong.append((seed, case, traceback.format_exc()))
    return wrong, inside


def check_world(case, directory):
    """Checks that each epoch is complete, as its mode promises. Returns whether one was interrupted."""
    equal, total = case["options"]["equal"], case["world"] * case["workers"]
    before = [json.loads((directory / f"{worker}.json").read_text())["given"] for worker in range(total)]
    after = json.loads((directory / "more.json").read_text())
    sizes = [size for size, epochs in zip_equal(RINGS[case["ring"]], (2, 2, 1)) for _ in range(epochs)]
    inside = False
    for number, size in enumerate(sizes):
        old = [each for given in before for each in given if each[0] == number]
        new = [[each for each in given if each[0] == number] for given in after]
        counts = Counter(sample for _, sample, _, _, is_padding in chain(old, *new) if not is_padding)
        old_counts = Counter(sample for _, sample, _, _, is_padding in old if not is_padding)
        steps = {len(given) for given in new}
        inside |= 0 < len(old_counts) < size and steps != {0}
        if number < case["epoch"]:
            assert steps == {0}
        if equal is None:
            assert len(counts) == size and set(counts.values()) == {1}, number
        elif equal == "pad":
            assert len(steps) == 1 and len(counts) == size and set(counts.values()) == {1}, number
        elif equal == "drop":
            left_over = total if number < case["epoch"] else case["total"]
            if number == case["epoch"] and steps == {0}:
                left_over = max(total, case["total"])
            assert len(steps) == 1 and set(counts.values()) <= {1} and size - len(counts) < left_over, number
        else:
            assert len(steps) == 1 and len(counts) == size, number
            again = sum(counts.values()) - size
            assert again <= (total - 1 if old else 0) + (case["total"] - 1 if steps != {0} else 0), number
    return inside


def test_other_number_of_workers_shares_the_unread_samples(ranks, rings, tmp_path):
    """From the states of all workers, each sample is read exactly once, and all workers have equal steps."""
    seeds = [range(first, CASES, 2) for first in range(2)]
    answers = ranks.together(2, worlds_of_process, seeds, rings, tmp_path, seconds=600)
    wrong = [each for wrong, _ in answers for each in wrong]
    assert wrong == [], "\n".join(map(str, wrong[:3]))
    inside = sum(inside for _, inside in answers)
    print(f"{CASES} cases, {inside} of them inside an epoch")
    assert inside > CASES // 4


def test_states_around_the_end_of_an_epoch_can_be_combined(rings):
    """Some workers have yielded the last sample of an epoch, others the first sample of the next one."""
    ring = rings[1]  # 7, 7, 5, 5, 9
    for ahead in range(1, 4):
        streams = [ring.stream(worker, 4, equal="wrap", run="log", epochs=EPOCHS) for worker in range(4)]
        given = [[numbers([next(stream), next(stream)])] for stream in streams]
        given[:ahead] = [[numbers([next(stream)])] for stream in streams[:ahead]]
        states = [stream.state_dict() for stream in streams]
        again = [ring.stream(worker, 2, equal="wrap", run="log", epochs=EPOCHS) for worker in range(2)]
        for stream in again:
            stream.load_state_dict(states)
        rest = [sample for _, sample in in_turn(again)]
        in_epoch = [int(sample["data"][0]) for sample in rest[: -(-(7 - ahead) // 2) * 2]]
        assert set(in_epoch) == set(range(ahead, 7)), ahead


def test_one_state_suffices_if_all_workers_read_the_same_number(rings):
    ring = rings[2]
    streams = [ring.stream(worker, 2, run="log", epochs=1) for worker in range(2)]
    read = [numbers([next(stream) for _ in range(3)]) for stream in streams]
    again = [ring.stream(worker, 3, run="log", epochs=1) for worker in range(3)]
    for stream in again:
        stream.load_state_dict(streams[0].state_dict())
    assert sorted(chain(*read, *map(numbers, again))) == list(range(20))


def test_mismatched_states_are_refused(rings):
    ring = rings[2]
    streams = [ring.stream(worker, 2, run="log", epochs=EPOCHS) for worker in range(2)]
    assert streams[0].state_dict() == {}
    [next(stream) for stream in streams]
    states = [stream.state_dict() for stream in streams]
    assert json.loads(json.dumps(states)) == states

    def refused(state, why, error=ringreel.SampleError, **options):
        with pytest.raises(error, match=why):
            ring.stream(**{"rank": 0, "world_size": 2, "run": "log", **options}).load_state_dict(state)

    refused(states[1], "it was saved by worker 1, this is the stream of worker 0")
    refused(states[0], "saved with seed 0 and shuffle false, this stream has seed 1", seed=1)
    refused(states[0], "saved with seed 0 and shuffle false, .* shuffle true", shuffle=True)
    refused(states[0], "saved with equal No, this stream has Drop", equal="drop")
    refused({**states[0], "ring": "f00"}, "it was saved in ring f00")
    refused({**states[0], "version": 99}, "its version is 99, this program's is 1")
    refused([states[0], states[0]], "they are from workers", world_size=3)
    refused({"version": 1}, "state: expected the state of a stream", ValueError)
    refused({"version": "x"}, "state: expected the state of a stream", ValueError)
    stream = ring.stream(0, 2, run="log", epochs=EPOCHS)
    stream.load_state_dict({})
    stream.load_state_dict([])
    assert numbers([next(stream)]) == [0]
    stream.load_state_dict(states)  # uses the state of its own worker
    assert numbers([next(stream)]) == [2]


KILLED = """
    import json, os, pathlib, signal, sys
    import ringreel

    ring = ringreel.Ring(json.loads(sys.argv[1]))
    stream = ring.stream(run="training", shuffle=True, seed=7, prefetch_bytes=0)
    for _ in range(13):
        next(stream)
    pathlib.Path("state.json").write_text(json.dumps(stream.state_dict()))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_run_resumes_exactly_after_promotions(config, script, tmp_path, caplog):
    """RUN_GRACE keeps the generation of a killed run long after its lease has expired."""
    keys = config(SWAP_CAP=8, KEEP=0, SEGMENT_SAMPLES=1, LEASE_SECONDS=0.2)
    ring = ringreel.Ring(keys)
    add(ring, numbered(8))
    whole = list(islice(ring.stream(run="other", shuffle=True, seed=7, prefetch_bytes=0), 16))
    killed = script(KILLED, json.dumps(keys))
    assert killed.end() == -signal.SIGKILL, killed.said
    notes = tmp_path / "ring" / "index" / "notes" / "run.training"
    with managed(keys, caplog):
        # The manager detects that the stream is dead. Without RUN_GRACE it would reclaim the generation.
        for n in itertools.count(1):
            add(ring, numbered(8, start=8 * n))
            if n > 4 and any(note.name.startswith("dead.") for note in notes.iterdir()):
                break
            assert n < 600
            time.sleep(0.1)
        for more in range(1, 4):
            add(ring, numbered(8, start=8 * (n + more)))
    stream = ring.stream(run="training", shuffle=True, seed=7, prefetch_bytes=0)
    stream.load_state_dict(json.loads((tmp_path / "state.json").read_text()))
    rest = list(islice(stream, 3))
    assert [(s.generation, s.position) for s in rest] == [(s.generation, s.position) for s in whole[13:]]
    assert numbers(rest) == numbers(whole[13:])


@pytest.mark.parametrize("suspends", [True, False])
def test_suspended_run_resumes_exactly_after_promotions(config, tmp_path, caplog, suspends):
    """RUN_GRACE keeps the generation of a stream that was suspended, and not that of one that was closed."""
    keys = config(SWAP_CAP=8, KEEP=0, SEGMENT_SAMPLES=1, LEASE_SECONDS=0.2)
    ring = ringreel.Ring(keys)
    add(ring, numbered(8))
    order = {"shuffle": True, "seed": 7, "prefetch_bytes": 0}
    whole = numbers(islice(ring.stream(run="other", **order), 8))
    with ring.stream(run="training", **order) as stream:
        assert numbers(islice(stream, 3)) == whole[:3]
        state = stream.state_dict()
        if suspends:
            stream.suspend()
            assert list(stream) == [] and stream.stats().distinct == 3
    notes, first = tmp_path / "ring" / "index" / "notes" / "run.training", tmp_path / "ring" / "read.1"
    assert any(note.name.endswith("_left") for note in notes.iterdir()) != suspends
    assert first.exists()
    with managed(keys, caplog):
        for n in itertools.count(1):
            add(ring, numbered(8, start=8 * n))
            if n > 4 and (not first.exists() or any(note.name.startswith("dead.") for note in notes.iterdir())):
                break
            assert n < 600
            time.sleep(0.1)
        for more in range(1, 4):
            add(ring, numbered(8, start=8 * (n + more)))
    assert first.exists() == suspends
    if suspends:
        stream = ring.stream(run="training", **order)
        stream.load_state_dict(state)
        assert numbers(islice(stream, 5)) == whole[3:]


@pytest.mark.parametrize(
    "reader", [lambda stream: stream.map(id), lambda stream: ringreel.Mixture([stream, [1]], weights=[1, 0])]
)
def test_readers_of_a_stream_suspend_it(filled, tmp_path, reader):
    ring = filled(numbered(2))

    def has_left(run):
        notes = list((tmp_path / "ring" / "index" / "notes" / f"run.{run}").iterdir())
        assert len(notes) == 1
        return notes[0].name.endswith("_left")

    for run in ("suspended", "closed"):
        items = reader(ring.stream(run=run))
        next(items)
        items.suspend() if run == "suspended" else items.close()
        items.close()
        assert list(items) == []
        assert has_left(run) == (run == "closed")
