"""Streams: shares of ranks and workers, equal steps, runs, and every kind of end."""

import functools
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import add, numbered, numbers, until, zip_equal
from rank_processes import Ranks

import ringreel

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

FILL = -7


@pytest.fixture(scope="module")
def ranks():
    with Ranks(8) as ranks:
        yield ranks


def told(sample):
    """Returns the sample's number, or None for a padding sample."""
    values = set(sample["data"].tolist())
    assert len(values) == 1
    if sample.is_padding:
        assert values == {FILL} and sample["data"].dtype == np.int64 and sample["data"].shape == (3,)
        return None
    return values.pop()


def epochs_of(stream):
    """Reads a stream to its end. Returns generation and sample numbers by number of the epoch."""
    found = {}
    for sample in stream:
        state = stream.state_dict()
        generation, given = found.setdefault(state["number"], (sample.generation, []))
        assert generation == sample.generation == state["epoch"]["generation"]
        given.append(told(sample))
        assert state["step"] == len(given)
    return found


def at_once(*works):
    """Returns the results of these functions, each called in a separate thread."""
    found = [None] * len(works)

    def do(n):
        found[n] = works[n]()

    threads = [threading.Thread(target=do, args=(n,)) for n in range(len(works))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found


# Shares.

WORLDS = (1, 2, 3, 8)
WORKERS = (1, 2, 4)  # a loader without workers reads as one worker


def shares_of_rank(rank, ring, equal, epochs):
    """Reads the shares of a rank's workers, for each number of ranks and workers, shuffled and not."""
    found = {}
    for world in [world for world in WORLDS if rank < world]:
        for workers in WORKERS:
            for shuffle in (False, True):
                run = f"{equal}-{world}-{workers}-{shuffle}"
                options = {"shuffle": shuffle, "seed": 5, "equal": equal, "pad_value": FILL, "run": run}
                if equal == "drop" and len(ring.dataset()) < world * workers:
                    continue  # an error
                options["epochs"] = epochs
                shares = [(rank * workers + worker, world * workers) for worker in range(workers)]
                streams = [ring.stream(*share, **options) for share in shares]
                found[world, workers, shuffle] = at_once(*[functools.partial(epochs_of, stream) for stream in streams])
    return found


@pytest.mark.parametrize("equal", [None, "drop", "wrap", "pad"])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_ranks_and_workers_have_equal_steps_and_share_all_samples(ranks, rings, size, equal):
    epochs = 2
    by_rank = ranks.together(8, shares_of_rank, rings(size), equal, epochs)
    orders = {}
    for case in by_rank[0]:
        world, workers, shuffle = case
        streams = [stream for found in by_rank[:world] for stream in found[case]]
        total = world * workers
        assert len(streams) == total
        for number in range(epochs):
            shares = [stream[number][1] if number in stream else [] for stream in streams]
            assert all(stream[number][0] == 1 for stream in streams if number in stream)
            steps = [len(share) for share in shares]
            wanted = {None: size // total, "drop": size // total}.get(equal, -(-size // total))
            assert min(steps) == wanted and max(steps) == (-(-size // total) if equal is None else wanted), case
            # The order in which ranks in step read them.
            order = [share[step] for step in range(max(steps)) for share in shares if step < len(share)]
            given = [one for one in order if one is not None]
            assert len(order) - len(given) == (-size % total if equal == "pad" else 0), case
            counts = Counter(given)
            if equal == "wrap":
                assert set(counts) == set(range(size)) and len(given) - size == -size % total, case
                assert given[size:] == [given[n % size] for n in range(len(given) - size)]
                given = given[:size]
            elif equal == "drop":
                assert set(counts) <= set(range(size)) and size - len(given) < total, case
            else:
                assert sorted(given) == list(range(size)), case
            assert len(set(given)) == len(given), case
            if not shuffle:
                assert given == list(range(len(given))), case
            # The order is the same for every number of ranks and workers.
            longest = orders.setdefault((shuffle, number), given)
            length = min(len(longest), len(given))
            assert given[:length] == longest[:length], case
            orders[shuffle, number] = max(longest, given, key=len)
    if size == 100:
        first, second = orders[True, 0], orders[True, 1]
        assert first != second and list(range(len(first))) not in (first, second)


def waits_in_vain(rank, ring, world, equal):
    """Returns the error of a rank whose two workers get no sample."""
    said = []

    def read(worker):
        try:
            next(ring.stream(rank * 2 + worker, world * 2, equal=equal, run="vain", timeout=0.2))
        except ringreel.RingTimeoutError as error:
            said.append(str(error))

    at_once(lambda: read(0), lambda: read(1))
    return said


@pytest.mark.parametrize("equal", [None, "drop", "wrap", "pad"])
def test_ring_without_samples_is_awaited_until_the_timeout(ranks, config, tmp_path, equal):
    held_out = ringreel.Ring(config(RING=str(tmp_path / "held out"), VALIDATION=2, SWAP_CAP=2))
    add(held_out, numbered(2))
    filling = ringreel.Ring(config(RING=str(tmp_path / "filling"), SWAP_CAP=5))
    add(filling, numbered(2), promote=False)
    rings = {ringreel.Ring(config()): "no generator or manager has started yet", filling: "2 of 5 samples are written"}
    for ring, why in {**rings, held_out: "samples beyond the 2 that are held out"}.items():
        for said in ranks.together(3, waits_in_vain, ring, 3, equal):
            assert len(said) == 2 and all(why in each for each in said), said


def test_fewer_samples_than_workers_are_an_error_with_drop(filled):
    """A stream that would never yield a sample raises an error with the numbers and the solutions."""
    ring = filled(numbered(24))
    for options in ({}, {"epochs": 1}, {"run": "r"}):
        stream = ring.stream(3, 32, equal="drop", **options)
        for _ in range(2):
            with pytest.raises(ringreel.SampleError, match="holds 24 samples for 32 workers") as raised:
                next(stream)
            assert all(way in str(raised.value) for way in ("SWAP_CAP", "fewer ranks", '"wrap"', '"pad"'))
    assert len(list(ring.stream(3, 32, equal="wrap", epochs=1))) == 1


def test_a_later_small_generation_is_skipped_with_drop(filled):
    ring = filled(numbered(6), KEEP=3)
    stream = ring.stream(0, 3, equal="drop", epochs=3)
    assert told(next(stream)) == 0 and told(next(stream)) == 3
    add(ring, numbered(2, start=10))
    add(ring, numbered(6, start=20))
    assert [told(sample) for sample in stream][-2:] == [20, 23]


def test_seed_determines_the_order(rings):
    ring = rings(100)
    orders = [numbers(ring.stream(shuffle=True, seed=seed, epochs=1)) for seed in (0, 1, -1, 0, (1 << 64) - 1)]
    assert orders[0] == orders[3] and orders[2] == orders[4]
    assert len({tuple(order) for order in orders}) == 3 and all(sorted(order) == list(range(100)) for order in orders)


def test_padding_samples_have_the_shapes_and_types_of_real_ones(filled):
    parts = {
        "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bytes": b"abc",
        "small": np.arange(4, dtype=np.uint8),
        "bools": np.array([True, False]),
        "scalar": np.array(3, np.int16),
    }
    ring = filled([parts])
    given, padding = (next(ring.stream(rank, 2, equal="pad", pad_value=-100)) for rank in (0, 1))
    assert (given.is_padding, padding.is_padding) == (False, True) and list(padding) == list(given)
    assert all(np.array_equal(given[name], parts[name]) for name in parts if name != "bytes")
    assert (padding["floats"] == -100).all() and padding["floats"].shape == (2, 3)
    assert padding["bytes"] == bytes(3) and given["bytes"] == b"abc"
    assert padding["small"].tolist() == [0] * 4 and padding["small"].dtype == np.uint8
    assert padding["bools"].dtype == bool and not padding["bools"].any()  # clamped to the type's range
    assert padding["scalar"].shape == () and padding["scalar"] == -100


def test_pad_value_by_part_leaves_the_other_parts_at_their_default(filled):
    ring = filled([{"input_ids": np.arange(3), "labels": np.arange(2), "mask": np.ones(2, np.uint8)}])

    def padding(ring, pad_value):
        sample = next(ring.stream(1, 2, equal="pad", pad_value=pad_value))
        return {name: array.tolist() for name, array in sample.items()}

    wanted = {"input_ids": [0] * 3, "labels": [-100] * 2, "mask": [7] * 2}
    assert padding(ring, {"input_ids": 0, "mask": 7}) == wanted
    assert padding(ring, {}) == {**wanted, "input_ids": [-100] * 3, "mask": [0] * 2}  # clamped to the type's range
    with pytest.raises(ValueError, match=r"^pad_value: no part 'ids'; SAMPLE names input_ids, labels, mask$"):
        ring.stream(pad_value={"ids": 0})
    unnamed = ringreel.Ring({"RING": ring.path})
    assert padding(unnamed, {"input_ids": 0, "mask": 7}) == wanted
    with pytest.raises(ringreel.SampleError, match='no part "ids"; the parts are input_ids, labels, mask'):
        next(unnamed.stream(pad_value={"ids": 0}))


@pytest.mark.parametrize("shuffle", [False, True])
def test_prefetch_and_threads_do_not_change_the_samples(filled, shuffle):
    sizes = np.random.default_rng(3).integers(1, 20_000, 60)
    ring = filled([{"data": np.full(size, n)} for n, size in enumerate(sizes)], SEGMENT_SAMPLES=7)
    found = []
    for prefetch_bytes in (0, 1, 100_000, 1 << 30, None):
        for threads in (1, 8):
            options = {"prefetch_bytes": prefetch_bytes, "threads": threads, "shuffle": shuffle, "equal": "wrap"}
            found.append([(sample.sample_id, sample.position) for sample in ring.stream(1, 4, epochs=3, **options)])
    assert len(found[0]) == 45 and all(each == found[0] for each in found)


# Runs.


def read_in_step(rank, ring, slow, directory, epochs, equal):
    """Reads as one of three ranks. Returns number and generation of the epoch, and generation and number of the sample.

    The slow rank pauses after its first sample until the test lets it continue. All ranks report their position.
    """
    found = []
    stream = ring.stream(rank, 3, run="in-step", epochs=epochs, repeat=False, equal=equal, timeout=60)
    for sample in stream:
        state = stream.state_dict()
        found.append((state["number"], state["epoch"]["generation"], sample.generation, told(sample)))
        (directory / f"{rank} is in {sample.generation}").touch()
        if rank == slow and len(found) == 1:
            until((directory / "go on").exists, 60)
    return found, stream.epochs


@pytest.mark.parametrize("equal", ["drop", None])
def test_rank_that_pauses_reads_the_same_generations(ranks, config, tmp_path, equal):
    """Ten generations are promoted while the rank pauses. The generations that it still has to read are kept."""
    ring = ringreel.Ring(config(SWAP_CAP=6, LEASE_SECONDS=10))
    add(ring, numbered(6, start=10))
    slow, epochs = 1, 11
    for rank in range(3):
        ranks.begin(rank, read_in_step, rank, ring, slow, tmp_path, epochs, equal)
    until((tmp_path / f"{slow} is in 1").exists)
    for generation in range(2, epochs + 1):
        add(ring, numbered(6, start=10 * generation))
        for rank in {0, 1, 2} - {slow}:
            until((tmp_path / f"{rank} is in {generation}").exists)
    fast = [ranks.answer(rank) for rank in sorted({0, 1, 2} - {slow})]
    assert not (tmp_path / f"{slow} is in 2").exists()
    (tmp_path / "go on").touch()
    for rank, (found, finished) in zip_equal([slow, 0, 2], [ranks.answer(slow), *fast]):
        assert finished == epochs
        wanted = [(n, n + 1, n + 1, 10 * (n + 1) + rank + step) for n in range(epochs) for step in (0, 3)]
        assert found == wanted, rank


def test_rank_that_pauses_too_long_gets_newer_samples_in_equal_steps(ranks, config, tmp_path):
    """The disk has room for a few generations only, so those that the rank would read too late are reclaimed."""
    ring = ringreel.Ring(config(SWAP_CAP=6, LEASE_SECONDS=10))
    add(ring, numbered(6, start=10))
    slow, epochs = 2, 22
    for rank in range(3):
        ranks.begin(rank, read_in_step, rank, ring, slow, tmp_path, epochs, "drop")
    until((tmp_path / f"{slow} is in 1").exists)
    for generation in range(2, epochs + 1):
        add(ring, numbered(6, start=10 * generation))
        for rank in (0, 1):
            until((tmp_path / f"{rank} is in {generation}").exists)
    (tmp_path / "go on").touch()
    answers = [ranks.answer(rank) for rank in range(3)]
    in_log = [(number, number + 1) for number in range(epochs) for _ in range(2)]
    for found, finished in answers:
        assert finished == epochs and [(number, generation) for number, generation, _, _ in found] == in_log
    late = [number for number, generation, read, _ in answers[slow][0] if read != generation]
    kept = [number for number, generation, read, _ in answers[slow][0] if read == generation]
    assert 0 < len(set(late)) <= 5 and max(late) < min(set(kept) - {0})
    assert all(read == epochs for number, _, read, _ in answers[slow][0] if number in late)


def read_slowly(rank, ring, directory):
    """Returns the number of steps by epoch."""
    steps = Counter()
    stream = ring.stream(rank, 2, run="stopped", epochs=3, equal="drop", repeat=False, timeout=60)
    for sample in stream:
        steps[stream.state_dict()["number"]] += 1
        (directory / f"{rank} is in {sample.generation}").touch()
        if list(steps.values()) == [1]:
            until((directory / "go on").exists, 60)
    return dict(steps)


def test_rank_stopped_for_longer_than_its_lease_has_equal_steps(ranks, config, tmp_path):
    """The rank's generation is not kept, so it continues with newer samples, in step."""
    ring = ringreel.Ring(config(SWAP_CAP=6, LEASE_SECONDS=0.3, RUN_GRACE=0, KEEP=0))
    add(ring, numbered(6))
    pid = ranks.pid(1)
    for rank in range(2):
        ranks.begin(rank, read_slowly, rank, ring, tmp_path)
    for rank in range(2):
        until((tmp_path / f"{rank} is in 1").exists)
    os.kill(pid, signal.SIGSTOP)
    try:
        (tmp_path / "go on").touch()
        for generation in (2, 3):
            add(ring, numbered(6, start=10 * generation))
            until((tmp_path / f"0 is in {generation}").exists)
        with ring.generator() as generator:  # a process that lives long enough to detect the dead rank
            until(lambda: generator.write((0,)) and not os.path.exists(os.path.join(ring.path, "read.1")))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ranks.answer(0) == ranks.answer(1) == {0: 3, 1: 3, 2: 3}


def test_ranks_of_a_run_follow_the_first_ranks_generations(filled):
    ring = filled(numbered(3), KEEP=5)
    first = ring.stream(0, 2, run="one", epochs=4)
    assert numbers([next(first), next(first)]) == [0, 2]
    add(ring, numbered(3, start=10))
    assert numbers(first) == [10, 12, 10, 12, 10, 12]
    add(ring, numbered(3, start=20))
    assert numbers(ring.stream(1, 2, run="one", epochs=4)) == [1, 11, 11, 11]
    assert numbers(ring.stream(1, 2, run="another", epochs=1)) == [21]
    assert numbers(ring.stream(1, 2, epochs=1)) == [21]


def test_a_replay_reads_what_a_run_has_read_in_its_order(filled):
    ring = filled(numbered(5), KEEP=5)
    stream = ring.stream(run="first", shuffle=True, seed=3, epochs=3)
    read = numbers([next(stream) for _ in range(5)])
    add(ring, numbered(4, start=10))
    read += numbers(stream)
    add(ring, numbered(4, start=20))
    assert len(read) == 13 and sorted(read[:5]) == list(range(5)) and max(read) == 13
    assert numbers(ring.stream(replay="first")) == read
    shares = [numbers(ring.stream(rank, 2, replay="first")) for rank in (0, 1)]
    assert sorted(shares[0] + shares[1]) == sorted(read)
    with pytest.raises(ringreel.SampleError, match='no log of a run "nobodys"'):
        next(ring.stream(replay="nobodys"))
    with pytest.raises(ValueError, match="run and replay: expected at most one"):
        ring.stream(replay="first", run="second")


# Ends.

ENDS = {
    "break": "for sample in stream:\n    break",
    "exception": "for sample in stream:\n    raise LookupError('on purpose')",
    "sys.exit": "for sample in stream:\n    sys.exit(3)",
    "left alone": "next(stream)",
    "in a cycle": "next(stream)\ncycle = [stream]\ncycle.append(cycle)\ndel stream, cycle",
    "closed": "next(stream)\nstream.close()\nassert list(stream) == []",
    "with": "with stream:\n    next(stream)\nassert list(stream) == []",
    "in a thread": "threading.Thread(target=lambda: [next(stream) for _ in range(5)]).start()",
    "in a daemon": "threading.Thread(target=lambda: list(stream), daemon=True).start()\ntime.sleep(0.1)",
    "a daemon waits": "stream = ring.stream(repeat=False)\n"
    "threading.Thread(target=lambda: list(stream), daemon=True).start()\ntime.sleep(0.2)",
}


@pytest.mark.parametrize("prefetch_bytes", [0, 1 << 30])
def test_interpreter_exits_whatever_a_stream_does(filled, script, prefetch_bytes):
    """The interpreter exits at once, without output."""
    ring = filled([{"data": np.full(200_000, n)} for n in range(8)], LEASE_SECONDS=60)
    begin = f"""
import sys, threading, time
import ringreel
ring = ringreel.Ring({{"RING": {ring.path!r}, "LEASE_SECONDS": 60}})
stream = ring.stream(prefetch_bytes={prefetch_bytes}, threads=4)
"""
    started = {end: script(f"{begin}{text}\nprint('end')\n") for end, text in ENDS.items()}
    for end, process in started.items():
        status = process.end()
        assert status == {"exception": 1, "sys.exit": 3}.get(end, 0), (end, process.said)
        if end == "exception":
            assert process.said.splitlines()[-1] == "LookupError: on purpose"
        else:
            assert process.said == ("" if end == "sys.exit" else "end\n"), end
    left = sorted(reader["pid"] for reader in ring.status()["readers"])
    assert left == sorted(
        process.child.pid for end, process in started.items() if "daemon" in end
    )  # not ended explicitly


def test_closed_stream_leaves_the_members_and_ends(filled):
    ring = filled(numbered(4), LEASE_SECONDS=30)
    for prefetch_bytes in (0, 1 << 30):
        with ring.stream(prefetch_bytes=prefetch_bytes) as stream:
            next(stream)
            assert len(ring.status()["readers"]) == 1
        assert ring.status()["readers"] == [] and list(stream) == []
        stream.close()


INTERRUPTED = """
    import json, sys
    import ringreel

    ring = ringreel.Ring(json.loads(sys.argv[1]))
    stream = ring.stream(**json.loads(sys.argv[2]))
    for _ in range(int(sys.argv[3])):
        next(stream)
    print("waits")
    try:
        next(stream)
    except KeyboardInterrupt:
        print("interrupted")
    print("went on with", int(next(stream)["data"][0]))
"""


@pytest.mark.parametrize("prefetch_bytes", [0, 1 << 30])
@pytest.mark.parametrize("what", ["the ring", "fresh samples", "another pass"])
def test_ctrl_c_ends_a_wait_and_the_stream_can_continue(config, script, what, prefetch_bytes):
    keys = config(SWAP_CAP=2, KEEP=5, **({"REUSE": {"max": 2}} if what == "another pass" else {}))
    ring = ringreel.Ring(keys)
    if what != "the ring":
        add(ring, numbered(2))
    options = {"prefetch_bytes": prefetch_bytes, "repeat": what != "fresh samples"}
    first = {"the ring": 0, "fresh samples": 2, "another pass": 4}[what]
    process = script(INTERRUPTED, json.dumps({**keys, "POLL_SECONDS": 2}), json.dumps(options), first)
    process.wait_for("waits")
    time.sleep(0.1)
    assert process.child.poll() is None
    process.child.send_signal(signal.SIGINT)
    process.wait_for("interrupted")
    add(ring, numbered(2, start=10))
    assert process.end() == 0 and process.said.endswith("went on with 10\n"), process.said


FAILING = """
    import json, sys
    import ringreel

    def samples():
        yield {"data": 0}
        raise ValueError("boom")

    try:
        ringreel.run_generator(samples(), json.loads(sys.argv[1]))
    except ValueError:
        print("failed")
"""


def test_waiting_stream_logs_why_a_generator_failed(config, script, caplog):
    keys = config(SWAP_CAP=5)
    ring = ringreel.Ring(keys)
    add(ring, numbered(5))
    process = script(FAILING, json.dumps(keys))
    process.wait_for("failed")
    (failure,) = ring.status()["failures"]
    assert failure["role"] == "generator" and "boom" in failure["message"] and failure["pid"] == process.child.pid
    stream = ring.stream(repeat=False, timeout=0.5)
    assert len([next(stream) for _ in range(5)]) == 5
    with caplog.at_level(logging.INFO, "ringreel"), pytest.raises(ringreel.RingTimeoutError) as error:
        next(stream)
    said = str(error.value)
    assert f"generator {failure['name']} failed" in said and "ValueError: boom" in said and "1 of 5 samples" in said
    assert "waiting for fresh samples" in caplog.text and "boom" in caplog.text


def test_wait_for_the_first_generation_logs_why_a_generator_failed(config, script):
    keys = config(SWAP_CAP=5)
    script(FAILING, json.dumps(keys)).wait_for("failed")
    with pytest.raises(ringreel.RingTimeoutError, match="1 of 5 samples are written.*boom"):
        next(ringreel.Ring(keys).stream(timeout=0.5))


def test_stale_ring_ends_the_training_if_configured(config, script):
    keys = config(SWAP_CAP=5, ON_STALE="stop", REUSE={"max": 2}, KEEP=5)
    ring = ringreel.Ring(keys)
    add(ring, numbered(5))
    stream = ring.stream()
    assert len([next(stream) for _ in range(10)]) == 10
    with pytest.raises(ringreel.StaleError, match="generation 1 was read 2 times, and REUSE max is 2") as error:
        next(stream)
    assert "no generator is alive" in str(error.value) or "is not known" in str(error.value)
    add(ring, numbered(5, start=10))
    assert numbers([next(stream)]) == [10]  # the stream continues when new samples arrive
    script(FAILING, json.dumps(keys)).wait_for("failed")
    stream = ring.stream()
    assert len([next(stream) for _ in range(10)]) == 10
    with pytest.raises(ringreel.StaleError, match="generator .* failed .*boom"):
        next(stream)


def test_ring_without_live_generators_ends_the_training(config):
    ring = ringreel.Ring(config(SWAP_CAP=2, ON_STALE="stop", STALE_AFTER=0.5))
    add(ring, numbered(2))
    with pytest.raises(ringreel.StaleError, match="no generator has been alive for"):
        for _ in ring.stream(timeout=30):
            time.sleep(0.01)


def read_what_is_new(rank, ring):
    found = []
    with pytest.raises(ringreel.RingTimeoutError) as error:
        for sample in ring.stream(rank, 3, run="bounded", timeout=3):
            found.append(told(sample))
    return found, str(error.value)


def test_no_sample_is_served_more_often_than_reuse_allows(ranks, config):
    """Ranks wait at the end of the last pass of each generation."""
    ring = ringreel.Ring(config(SWAP_CAP=7, REUSE={"max": 2}, KEEP=5, LEASE_SECONDS=1))
    add(ring, numbered(7))
    for rank in range(3):
        ranks.begin(rank, read_what_is_new, rank, ring)
    for generation in (2, 3):
        said = f"generation {generation - 1} was read 2 times"
        until(lambda said=said: sum(said in reader["doing"] for reader in ring.status()["readers"]) == 3)
        add(ring, numbered(7, start=10 * generation))
    answers = [ranks.answer(rank) for rank in range(3)]
    assert all("generation 3 was read 2 times, and REUSE max is 2" in error for _, error in answers)
    counts = Counter(number for found, _ in answers for number in found)
    assert set(counts) == {*range(7), *range(20, 27), *range(30, 37)} and set(counts.values()) == {2}


def test_resumed_stream_serves_no_more_than_reuse_allows(filled):
    ring = filled(numbered(3), REUSE={"max": 2})
    first = ring.stream(run="named")
    assert numbers([next(first) for _ in range(5)]) == [0, 1, 2, 0, 1]
    second = ring.stream(run="named", timeout=0.3)
    second.load_state_dict(first.state_dict())
    assert numbers([next(second)]) == [2]
    with pytest.raises(ringreel.RingTimeoutError, match="generation 1 was read 2 times, and REUSE max is 2"):
        next(second)


def test_stream_names_a_kept_generation_that_is_missing(filled, caplog):
    ring = filled(numbered(4), KEEP=5)
    shutil.rmtree(os.path.join(ring.path, "read.1"))
    with ThreadPoolExecutor() as beside, ring.stream(equal=None) as stream:
        first = beside.submit(next, stream)
        until(lambda: "read.1 is missing, although KEEP covers it" in caplog.text)
        add(ring, numbered(4, start=10))
        assert numbers([first.result(60)]) == [10]
        assert stream.missing == [1]
