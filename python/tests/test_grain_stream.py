"""ringreel.grain.RingIterDataset: fresh generations under Grain, with ranks, workers and states."""

import collections
import gc
import inspect
import itertools
import json
import os
import pathlib
import pickle
import signal
import socket
import threading

import numpy as np
import pytest
from conftest import add, numbered, numbers, options_of, until
from test_worker_watch import is_running

import ringreel
import ringreel.grain
from ringreel.grain import RingSource

COUNT = 23
WAIT = 60  # seconds, so that a failure does not hang


@pytest.fixture
def ring(filled):
    return filled(numbered(COUNT), KEEP=5, RUN_GRACE=3600)


@pytest.fixture
def dataset_of(grain):
    """Makes a dataset whose waits end."""
    return lambda ring, **arguments: ringreel.grain.RingIterDataset(ring, **{"timeout": WAIT, **arguments})


@pytest.fixture
def workers_of(grain):
    """Reads a dataset in worker processes."""

    def make(dataset, workers, **arguments):
        options = grain.multiprocessing.MultiprocessingOptions(num_workers=workers)
        return dataset.mp_prefetch(options, **arguments)

    return make


def grow(ring, number):
    """Writes another generation, whose samples begin with 1000 times its number."""
    add(ring, numbered(COUNT, start=1000 * number))


def generation(number):
    """Returns the numbers of its samples."""
    return list(range(1000 * number, 1000 * number + COUNT))


def rows(batches):
    """Returns the numbers of the samples, batch by batch."""
    return [batch["data"][:, 0].tolist() for batch in batches]


def noisy(item, rng):
    item["data"] = item["data"] + rng.integers(1 << 20)
    return item


# Items and arguments.


def test_item_is_a_dict_of_writable_arrays(filled, dataset_of):
    sample = {"data": np.arange(50_000.0), "label": np.array(7, np.int8), "raw": b"abc\0"}
    ring = filled([sample] * 3, SEGMENT_SAMPLES=3)
    for item in dataset_of(ring, epochs=2):
        assert type(item) is dict and list(item) == list(sample) and item["raw"] == b"abc\0"
        assert item["data"].flags.writeable and (item["data"] == sample["data"]).all()
        item["data"][:] = 9
    assert [list(item) for item in dataset_of(ring, parts=["label", "data"], epochs=1)] == [["label", "data"]] * 3
    assert [list(item) for item in dataset_of(ring, parts="raw", epochs=1)] == [["raw"]] * 3


def test_first_item_checks_parts_that_no_sample_key_names(filled, config, dataset_of):
    ring = filled([{"data": 1, "label": 2}])
    nameless = {key: value for key, value in config().items() if key not in ("SAMPLE", "SWAP_CAP")}
    assert [list(item) for item in dataset_of(nameless, epochs=1)] == [["data", "label"]]
    with pytest.raises(ValueError, match="no part 'x'; the parts of .*ring are data, label"):
        next(iter(dataset_of(nameless, parts=["label", "x"])))
    with pytest.raises(ValueError, match="no part 'x'; the parts of .*ring are data, label"):
        dataset_of(ring, parts=["label", "x"])


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"epochs": -1}, ValueError, "epochs"),
        ({"seed": "a"}, TypeError, "seed"),
        ({"equal": "no"}, ValueError, "equal: expected one of"),
        ({"rank": 1}, ValueError, "rank and world_size: expected both or neither"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank: expected 0 or more and less than world_size=2"),
        ({"run": "a", "replay": "b"}, ValueError, "run and replay"),
        ({"pad_value": {"x": 1}}, ValueError, "pad_value"),
        ({"parts": []}, ValueError, "parts: expected at least one name"),
    ],
)
def test_wrong_argument_is_refused_at_construction(ring, dataset_of, arguments, error, message):
    with pytest.raises(error, match=message):
        dataset_of(ring, **arguments)


def test_missing_ring_raises_a_timeout(config, dataset_of):
    with pytest.raises(ringreel.RingTimeoutError):
        next(iter(dataset_of(config(), timeout=0.1)))


def test_damaged_sample_is_skipped(filled, dataset_of, caplog):
    ring = filled(numbered(4), SEGMENT_SAMPLES=1)
    os.remove(os.path.join(ring.path, "read.1", "000002.rec"))
    assert numbers(dataset_of(ring, epochs=1)) == [0, 1, 3]
    assert "sample skipped" in caplog.text


# Generations.


def test_generations_beside_a_generator_are_read_whole(filled, dataset_of):
    """With KEEP=0, a source loses its generation at the next promotion; a stream pins what it reads."""
    ring = filled(numbered(COUNT), KEEP=0, SEGMENT_SAMPLES=1)
    source = RingSource(ring)
    read, written = [], 0
    for item in dataset_of(ring, epochs=8, prefetch_bytes=0):
        read += numbers([item])
        if read[-1] // 1000 == written < 7:
            written += 1
            grow(ring, written)
    assert read == list(itertools.chain(*map(generation, range(8))))
    with pytest.raises(ringreel.ReclaimedError):
        source[0]


def test_generators_that_wait_for_readers_go_on(filled, dataset_of):
    ring = filled(numbered(COUNT), REUSE={"min": 1})
    summaries = []

    def generate():
        with ring.generator() as generator:
            for n in range(1, 6):
                for sample in numbered(COUNT, start=1000 * n):
                    generator.write(sample)
        summaries.append(generator.summary)

    thread = threading.Thread(target=generate, daemon=True)
    thread.start()
    # The next generation is full, and the generator reports that it waits for a pass over the first one.
    until(lambda: any(member["generating"]["waited_readers_seconds"] for member in ring.status()["generators"]))
    assert thread.is_alive() and ring.status()["newest"] == 1
    samples = iter(dataset_of(ring, repeat=False))
    assert numbers(itertools.islice(samples, 5 * COUNT)) == list(itertools.chain(*map(generation, range(5))))
    thread.join(WAIT)
    assert not thread.is_alive() and summaries[0].finished == 5 * COUNT and summaries[0].waited_readers_seconds > 0
    samples.close()


def test_each_iteration_continues_with_the_newest_generation(ring, dataset_of):
    dataset = dataset_of(ring, epochs=1)
    peeked = numbers(itertools.islice(dataset, 3))
    assert peeked == [0, 1, 2]
    for n in range(1, 4):
        grow(ring, n)
        assert numbers(dataset) == generation(n)


def test_limit_of_passes_holds_across_iterations(filled, dataset_of):
    ring = filled(numbered(COUNT), REUSE={"max": 2}, ON_STALE="stop")
    dataset = dataset_of(ring, epochs=1)
    assert numbers(dataset) == numbers(dataset) == generation(0)
    with pytest.raises(ringreel.StaleError):
        next(iter(dataset))


def test_run_can_be_replayed(ring, dataset_of):
    dataset = dataset_of(ring, run="r", shuffle=True, seed=5, epochs=2)
    read = numbers(dataset)
    grow(ring, 1)
    replay = dataset_of(ring, replay="r")
    assert numbers(replay) == numbers(replay) == read
    iterator = iter(replay)
    begun = numbers(itertools.islice(iterator, 30))
    resumed = iter(dataset_of(ring, replay="r"))
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert begun + numbers(resumed) == read


# Ranks.


def test_two_ranks_share_each_epoch(ring, dataset_of):
    ranks = [iter(dataset_of(ring, rank=n, world_size=2, run="r", epochs=2)) for n in range(2)]
    read = [numbers([next(rank)]) for rank in ranks]
    grow(ring, 1)
    read = [begun + numbers(rank) for begun, rank in zip(read, ranks, strict=True)]
    assert sorted(itertools.chain(*read)) == generation(0) + generation(1)
    assert all(len(set(share)) == len(share) in (COUNT - 1, COUNT + 1) for share in read)


@pytest.mark.parametrize("equal, steps", [("drop", COUNT // 2), ("wrap", COUNT // 2 + 1), ("pad", COUNT // 2 + 1)])
def test_equal_gives_ranks_the_same_number_of_steps(ring, dataset_of, equal, steps):
    read = [list(dataset_of(ring, rank=n, world_size=2, run="r", epochs=1, equal=equal)) for n in range(2)]
    assert [len(share) for share in read] == [steps] * 2
    if equal == "pad":
        assert [bool(item["is_padding"]) for share in read for item in share].count(True) == 1
        assert read[1][-1]["is_padding"] and (read[1][-1]["data"] == -100).all()


def test_part_named_is_padding_is_refused_with_pad(filled, dataset_of):
    ring = filled([{"data": 1, "is_padding": 2}])
    with pytest.raises(ValueError, match='samples have a part "is_padding"'):
        dataset_of(ring, equal="pad")
    assert list(next(iter(dataset_of(ring, equal="pad", parts=["data"])))) == ["data", "is_padding"]


def test_rank_is_taken_from_the_environment_and_kept_in_copies(ring, dataset_of, monkeypatch):
    dataset = dataset_of(ring, run="r", epochs=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert numbers(dataset) == generation(0)[1::3]
    copy = pickle.loads(pickle.dumps(dataset))
    monkeypatch.delenv("RANK")
    assert numbers(itertools.islice(copy, 2)) == [1, 4]


JAX_RANK = """
import sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, int(sys.argv[1]))
from ringreel.grain import RingIterDataset
dataset = RingIterDataset({"RING": sys.argv[3]}, run="r", epochs=1, timeout=60)
print("read", [int(item["data"][0]) for item in dataset])
"""


def test_rank_is_that_of_the_jax_process(grain, ring, script):
    pytest.importorskip("jax", reason="jax is not installed: ranks of JAX are NOT tested")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    ranks = [script(JAX_RANK, n, port, ring.path) for n in range(2)]
    for n, rank in enumerate(ranks):
        assert rank.end() == 0, rank.said
        assert f"read {generation(0)[n::2]}" in rank.said


def test_ranks_without_a_run_are_warned_about(ring, dataset_of, caplog):
    dataset = dataset_of(ring, rank=0, world_size=2, epochs=1)
    for _ in range(2):
        assert numbers(dataset) == generation(0)[::2]
    assert caplog.text.count("no run is named") == 1


# Workers.


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_deliver_each_item_once_and_in_order(ring, dataset_of, workers_of, workers):
    """Also in later iterations, and after one that was left at its first item."""
    dataset = dataset_of(ring, shuffle=True, seed=1, epochs=1)
    first = numbers(dataset_of(ring, shuffle=True, seed=1, epochs=1, run="other"))
    pipeline = workers_of(dataset, workers)
    assert numbers(pipeline) == first != sorted(first) == generation(0)
    grow(ring, 1)
    iterator = iter(pipeline)
    assert next(iterator)["data"][0] // 1000 == 1
    iterator.close()
    grow(ring, 2)
    assert collections.Counter(numbers(pipeline)) == collections.Counter(generation(2))
    until(lambda: not ring.status()["readers"])


@pytest.mark.parametrize("workers", [0, 2])
def test_first_iteration_begins_with_the_first_epoch_of_its_run(ring, dataset_of, workers_of, workers):
    for n in range(2):
        assert numbers(workers_of(dataset_of(ring, run="r", epochs=1), workers)) == generation(0)
        grow(ring, n + 1)


def test_workers_of_two_ranks_deliver_each_item_once(ring, dataset_of, workers_of):
    def rank(n, workers):
        return numbers(workers_of(dataset_of(ring, rank=n, world_size=2, run=f"r{workers}", epochs=1), workers))

    plain, shared = ([rank(n, workers) for n in range(2)] for workers in (0, 2))
    assert shared == plain == [generation(0)[0::2], generation(0)[1::2]]


def test_workers_after_an_iteration_without_them_agree(ring, dataset_of, workers_of):
    dataset = dataset_of(ring, epochs=1)
    assert numbers(itertools.islice(dataset, 1)) == [0]
    for n in range(1, 4):
        grow(ring, n)
        assert numbers(workers_of(dataset, 2)) == generation(n)
        dataset = pickle.loads(pickle.dumps(dataset)) if n == 2 else dataset


def test_random_transformations_are_the_same_with_workers(ring, dataset_of, workers_of):
    def read(workers):
        dataset = dataset_of(ring, epochs=1).seed(3).random_map(noisy)
        return numbers(workers_of(dataset, workers).map_with_index(lambda n, item: {"data": item["data"] - n}))

    assert read(2) == read(0) != generation(0)


def test_slice_that_is_no_share_is_refused(ring, dataset_of, workers_of):
    for sl in (slice(0, 5, 2), slice(2, None, 2), slice(-1, None, 2)):
        with pytest.raises(ValueError, match=r"sl: expected slice\(worker, None, workers\)"):
            dataset_of(ring).set_slice(sl)
    with pytest.raises(ValueError, match="sequential_slice: expected False"):
        next(iter(workers_of(dataset_of(ring), 2, sequential_slice=True)))


def test_slices_of_slices_are_shares(ring, dataset_of):
    read = []
    for outer, inner in itertools.product(range(2), range(3)):
        dataset = dataset_of(ring, run="r", epochs=1)
        dataset.set_slice(slice(outer, None, 2))
        dataset.set_slice(slice(inner, None, 3))
        read.append(numbers(dataset))
        assert read[-1] == generation(0)[outer::2][inner::3]
    assert sorted(itertools.chain(*read)) == generation(0)


KILLED = """
import multiprocessing, sys, time
import grain
from absl import flags
from ringreel.grain import RingIterDataset

if __name__ == "__main__":
    flags.FLAGS(["program"])
    dataset = RingIterDataset({"RING": sys.argv[1]}, run="r", timeout=60)
    samples = iter(dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=1)))
    next(samples)
    print("workers", *[child.pid for child in multiprocessing.active_children()], flush=True)
    time.sleep(600)
"""


def test_workers_of_a_killed_process_end(grain, ring, script):
    program = script(KILLED, ring.path)
    program.wait_for("workers")
    workers = [int(pid) for pid in program.said.split("workers")[1].split()]
    assert workers and all(map(is_running, workers))
    try:
        program.end(signal.SIGKILL)
        until(lambda: not any(map(is_running, workers)))
    finally:
        for pid in filter(is_running, workers):
            os.kill(pid, signal.SIGKILL)


# States.


def pipeline(kind, ring):
    """Returns a pipeline, over two epochs."""
    import grain

    dataset = ringreel.grain.RingIterDataset(ring, shuffle=True, seed=2, epochs=2, timeout=WAIT)
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    return {
        "plain": lambda: dataset.batch(1),
        "batch": lambda: dataset.map(dict).batch(4),
        "threads": lambda: grain.experimental.ThreadPrefetchIterDataset(dataset.batch(4), prefetch_buffer_size=2),
        "workers": lambda: dataset.mp_prefetch(options).batch(4),
        "batch in workers": lambda: dataset.seed(1).random_map(noisy).batch(4).mp_prefetch(options),
    }[kind]()


RESUME = f"""
import json, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from absl import flags
from test_grain_stream import pipeline, rows

if __name__ == "__main__":
    flags.FLAGS(["program"])
    kind, ring, states = sys.argv[1:]
    for state in json.load(open(states)):
        iterator = iter(pipeline(kind, {{"RING": ring}}))
        iterator.set_state(state)
        print("rest", json.dumps(rows(iterator)), flush=True)
"""


@pytest.mark.parametrize("kind", ["plain", "batch", "threads", "workers", "batch in workers"])
def test_state_continues_exactly_in_another_process(ring, script, grain, tmp_path, kind):
    """After any number of batches, from before the first to after the last, and past later generations."""
    iterator, read, states = iter(pipeline(kind, ring)), [], []
    for batch in itertools.count():
        states.append(json.loads(json.dumps(iterator.get_state())))
        item = next(iterator, None)
        if item is None:
            break
        read += rows([item])
        if batch == 0:
            grow(ring, 1)
            grow(ring, 2)
    assert len(set(itertools.chain(*read))) > COUNT
    # Processes take seconds to start. The state after one batch is that of a worker that has not returned any.
    tested = {1, len(read) // 2} if "workers" in kind else {0, len(read), *range(1, len(read), 5)}
    (tmp_path / "states.json").write_text(json.dumps([states[n] for n in sorted(tested)]))
    program = script(RESUME, kind, ring.path, tmp_path / "states.json")
    assert program.end(seconds=120) == 0, program.said
    rests = [json.loads(line[5:]) for line in program.said.splitlines() if line.startswith("rest ")]
    assert [(n, rest) for n, rest in zip(sorted(tested), rests, strict=True)] == [(n, read[n:]) for n in sorted(tested)]


def test_iterator_goes_back_to_an_earlier_state(ring, dataset_of):
    iterator = iter(dataset_of(ring, shuffle=True, epochs=1))
    first = iterator.get_state()
    begun = numbers(itertools.islice(iterator, 4))
    state = iterator.get_state()
    rest = numbers(iterator)
    assert next(iterator, None) is None
    for from_state, items in [(state, rest), (first, begun + rest), (iterator.get_state(), [])]:
        iterator.set_state(from_state)
        assert numbers(iterator) == items


def test_grains_checkpoint_handler_saves_and_restores(grain, ring, dataset_of, tmp_path):
    epath = pytest.importorskip("etils.epath")
    iterator = iter(dataset_of(ring, epochs=1).batch(3))
    begun = rows(itertools.islice(iterator, 2))
    handler = grain.checkpoint.CheckpointHandler()
    handler.save(epath.Path(tmp_path), iterator)
    grow(ring, 1)
    restored = handler.restore(epath.Path(tmp_path), iter(dataset_of(ring, epochs=1).batch(3)))
    assert list(itertools.chain(*begun, *rows(restored))) == generation(0)


def test_killed_reader_of_the_saved_state_keeps_its_generation(filled, dataset_of, script):
    ring = filled(numbered(COUNT), KEEP=0, RUN_GRACE=3600)
    program = script(
        """
        import json, sys, time
        from ringreel.grain import RingIterDataset
        samples = iter(RingIterDataset({"RING": sys.argv[1]}, epochs=1, timeout=60))
        print([int(next(samples)["data"][0]) for _ in range(5)])
        print("state", json.dumps(samples.get_state()), flush=True)
        time.sleep(600)
        """,
        ring.path,
    )
    program.wait_for("state")
    program.end(signal.SIGKILL)
    for n in range(1, 4):
        grow(ring, n)
    resumed = iter(dataset_of(ring, epochs=1))
    resumed.set_state(json.loads(program.said.split("state ")[1]))
    assert numbers(resumed) == generation(0)[5:]


def test_state_of_another_worker_or_pipeline_is_refused(ring, dataset_of, workers_of):
    iterator = iter(dataset_of(ring, rank=1, world_size=2, run="r"))
    item = numbers([next(iterator)])
    state = iterator.get_state()
    for arguments in ({"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 3}, {}):
        other = iter(dataset_of(ring, run="r", **arguments))
        with pytest.raises(ValueError, match="it is that of share 1 of 2 .* resume with the same number of ranks"):
            other.set_state(state)
    assert numbers([next(other)]) == [0], "a refused state changes nothing"
    for wrong in ({}, None, {**state, "x": 1}, iter(workers_of(dataset_of(ring), 2)).get_state()):
        with pytest.raises(ValueError, match="expected the state of a RingIterDataset's iterator"):
            other.set_state(wrong)
    same = iter(dataset_of(ring, rank=1, world_size=2, run="r", seed=4))
    assert item == numbers([next(same)]) == [1]
    with pytest.raises(ringreel.SampleError, match="seed"):
        same.set_state(state)
    assert numbers([next(same)]) == [3], "a refused state changes nothing"


def test_state_of_another_ring_is_refused(ring, dataset_of, config, tmp_path):
    iterator = iter(dataset_of(ring))
    next(iterator)
    other = ringreel.Ring(config(RING=str(tmp_path / "other")))
    add(other, numbered(4))
    with pytest.raises(ringreel.SampleError, match="ring"):
        iter(dataset_of(other)).set_state(iterator.get_state())


def test_state_without_an_item_of_a_later_iteration_is_refused(ring, dataset_of):
    """It says neither where the iteration begins nor, of one worker of several, where the others are."""
    dataset = dataset_of(ring, epochs=1)
    numbers(dataset)
    state = iter(dataset).get_state()
    with pytest.raises(ValueError, match="before the first item of a later iteration"):
        iter(dataset_of(ring, epochs=1)).set_state(state)


# The end.


def test_stream_is_closed_at_the_end_by_close_and_when_collected(ring, dataset_of):
    def readers():
        return len(ring.status()["readers"])

    iterator = iter(dataset_of(ring, epochs=1).batch(2))
    next(iterator)
    assert readers() == 1
    list(iterator)
    assert readers() == 0, "the end of the iteration"
    iterator = iter(dataset_of(ring).batch(2))
    next(iterator)
    assert readers() == 1
    iterator.close()
    assert readers() == 0, "close"
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)
    with pytest.raises(ValueError, match="closed iterator"):
        iterator.get_state()
    iterator = iter(dataset_of(ring).batch(2))
    next(iterator)
    assert readers() == 1
    del iterator
    gc.collect()
    assert readers() == 0, "collection"


def test_held_out_samples_are_left_out(grain, filled):
    ring = filled(numbered(6))
    rule = ringreel.HoldOut(choose=lambda sample: int(sample["data"].flat[0]) % 2 == 0)
    items = list(ringreel.grain.RingIterDataset(ring, epochs=1, hold_out=rule))
    assert [int(item["data"].flat[0]) for item in items] == [1, 3, 5]


def test_options_of_datasets_are_those_of_ring_stream(grain):
    given, ours = options_of(ringreel.Ring.stream), options_of(ringreel.grain.RingIterDataset.__init__)
    assert ours == {**given, "config": inspect.Parameter.empty, "parts": None}
