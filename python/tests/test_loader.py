"""StreamLoader: every item once, random orders, and resuming."""

import collections
import copy
import itertools
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import numbered, zip_equal

import ringreel
from ringreel import StreamLoader

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "stream-loader" / "lines.py"


def flat(batches):
    return [item for batch in batches for item in batch]


class Counted:
    """A source of `count` numbers that records how many the last pass read, and which passes ended."""

    def __init__(self, count):
        self.count = count
        self.read = 0
        self.closed = 0

    def __call__(self):
        self.read = 0
        try:
            for n in range(self.count):
                self.read += 1
                yield n
        finally:
            self.closed += 1


# Items and batches.


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_item_is_yielded_once_except_a_dropped_last_batch(shuffle, drop_last):
    for count, batch, buffer in itertools.product(
        (0, 1, 2, 11, 12, 40), (1, 3, 12, 50), (1, 2, 3, 12, 39, 40, 41, 999)
    ):
        loader = StreamLoader(range(count), batch, buffer, shuffle, drop_last=drop_last)
        if drop_last and 0 < count < batch:
            with pytest.raises(ringreel.RingreelError, match="drop_last leaves them out"):
                list(loader)
            continue
        batches = list(loader)
        given = count - count % batch if drop_last else count
        assert [len(b) for b in batches] == [batch] * (given // batch) + [given % batch] * bool(given % batch)
        assert len(set(flat(batches))) == given and set(flat(batches)) <= set(range(count))
        assert len(loader) == len(batches), (count, batch, buffer)
        if not shuffle:
            assert flat(batches) == list(range(given))


def test_buffer_has_the_requested_size_and_never_more():
    for shuffle, batch, buffer in itertools.product((False, True), (1, 3, 20), (1, 2, 12, 100)):
        source = Counted(40)
        given = 0
        for items in StreamLoader(source, batch, buffer, shuffle):
            given += len(items)
            # The last item of the batch made room in a full buffer, and no item was read since.
            assert source.read == min(40, given + buffer - 1), (shuffle, batch, buffer)


def test_items_come_at_most_buffer_size_minus_1_places_early():
    seen = collections.defaultdict(set)
    for seed in range(300):
        for place, item in enumerate(flat(StreamLoader(range(10), 1, 3, True, seed))):
            assert place >= item - 2
            seen[item].add(place)
    assert seen[9] == {7, 8, 9} and seen[5] == {3, 4, 5, 6, 7, 8, 9} and seen[0] >= set(range(7))


def test_buffer_of_all_items_gives_uniform_orders():
    orders = collections.Counter(tuple(flat(StreamLoader(range(3), 2, 3, True, seed))) for seed in range(6000))
    assert len(orders) == 6 and all(850 < count < 1150 for count in orders.values()), orders


def test_default_buffer_is_1000_items_with_shuffle_and_1_without():
    source = Counted(3000)
    next(iter(StreamLoader(source, 1, shuffle=True)))
    assert source.read == 1000
    next(iter(StreamLoader(source, 4)))
    assert source.read == 4


def test_yielded_items_are_released():
    class Item:
        alive = 0

        def __init__(self):
            Item.alive += 1

        def __del__(self):
            Item.alive -= 1

    most = 0
    for batch in StreamLoader(lambda: (Item() for _ in range(200)), 4, 10, shuffle=True):
        del batch
        most = max(most, Item.alive)
    assert most <= 4 + 10 + 2


# The order.


def test_order_depends_on_seed_and_epoch():
    def epochs(seed, **keys):
        loader = StreamLoader(range(50), 7, 20, True, seed, **keys)
        return [tuple(flat(loader)) for _ in range(4)]

    assert epochs(5) == epochs(5)
    assert len({*epochs(5), *epochs(6), *epochs(-5)}) == 12
    assert epochs(np.int64(5)) == epochs(5) and epochs(2**80) == epochs(2**80)
    loader = StreamLoader(range(50), 7, 20, True, 5, epochs=4)
    assert tuple(flat(loader)) == sum(epochs(5), ())
    endless = StreamLoader(range(50), 10, 20, True, 5, epochs=None)
    assert tuple(flat(itertools.islice(endless, 20))) == sum(epochs(5), ())


def test_order_is_the_same_in_every_version():
    loader = StreamLoader(range(12), 12, 5, True, seed=7)
    assert [flat(itertools.islice(loader, 1)) for _ in range(2)] == ORDER


ORDER = [[1, 4, 2, 0, 7, 9, 5, 8, 11, 3, 6, 10], [4, 0, 2, 3, 1, 9, 6, 8, 7, 5, 11, 10]]


def test_loaders_and_global_random_states_are_independent():
    alone = [flat(StreamLoader(range(50), 3, 20, True, seed)) for seed in (1, 2)]
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()
    first, second = StreamLoader(range(50), 3, 20, True, 1), StreamLoader(range(50), 3, 20, True, 2)
    mixed = [[], []]
    for one, two in zip_equal(first, second):
        mixed[0] += one
        mixed[1] += two
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert mixed == alone
    random.seed(4)
    assert flat(StreamLoader(range(50), 3, 20, True, 1)) == alone[0]


# Epochs.


def test_next_iteration_is_the_next_epoch_and_reset_restarts():
    loader = StreamLoader(range(20), 3, 10, True)
    first, second = flat(loader), flat(loader)
    assert loader.epoch == 2 and first != second
    loader.reset()
    assert loader.epoch == 0 and [flat(loader), flat(loader)] == [first, second]
    loader.reset()
    next(iter(loader))
    loader.reset()
    assert flat(loader) == first


def test_abandoned_iteration_is_not_resumed():
    epochs = [flat(StreamLoader(range(20), 3, 10, True, epochs=n + 1))[20 * n :] for n in range(5)]
    loader = StreamLoader(range(20), 3, 10, True, epochs=2)
    iter(loader)  # no batch was requested
    assert flat(next(iter(loader)) for _ in range(2)) == epochs[0][:3] + epochs[1][:3]
    assert loader.epoch == 1
    assert flat(loader) == epochs[2] + epochs[3]
    one = StreamLoader(range(20), 3, 10, True)
    assert [flat(both) for both in zip_equal(*zip_equal(one, one))] == epochs[:2]
    assert flat(one) == epochs[2]


def test_zero_epochs_are_empty_and_endless_empty_ones_an_error():
    loader = StreamLoader(range(20), 3, epochs=0)
    assert list(loader) == [] and len(loader) == 0
    with pytest.raises(ringreel.RingreelError, match="has no batch in epoch 0"):
        next(iter(StreamLoader([], 3, epochs=None)))
    for epochs in (1, None):
        loader = StreamLoader([1, 2], 3, drop_last=True, epochs=epochs)
        with pytest.raises(ringreel.RingreelError, match="no batch in epoch 0: it has 2 items, batch_size is 3"):
            next(iter(loader))
    assert list(StreamLoader([], 3, epochs=5)) == []


def test_length_is_known_if_the_source_has_one(tmp_path):
    assert len(StreamLoader(range(40), 3)) == 14 and len(StreamLoader(range(40), 3, drop_last=True)) == 13
    assert len(StreamLoader(range(40), 3, epochs=2)) == 28
    for loader in (StreamLoader(Counted(3), 1), StreamLoader(tmp_path / "a.txt", 1), StreamLoader("a.rec", 1)):
        with pytest.raises(TypeError, match="is unknown"):
            len(loader)
    with pytest.raises(TypeError, match="never ends"):
        len(StreamLoader(range(40), 3, epochs=None))
    assert StreamLoader([], 3) and StreamLoader(Counted(3), 1)


# State.


def test_state_restores_the_following_batches_exactly():
    for shuffle, drop_last, epochs in itertools.product((False, True), (False, True), (1, 3)):
        make = lambda: StreamLoader(range(40), 3, 12, shuffle, 5, drop_last, epochs)  # noqa: B023, E731
        whole = make()
        per_epoch = 13 if drop_last else 14
        batches = [*whole, *whole]  # two iterations
        for stop in [0, 1, 5, per_epoch - 1, per_epoch, per_epoch + 1, 2 * per_epoch - 2]:
            loader = make()
            given, left = [], iter(loader)
            while len(given) < stop:
                try:
                    given.append(next(left))
                except StopIteration:
                    left = iter(loader)
            state = json.loads(json.dumps(loader.state_dict()))
            again = make()
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert list(left) + list(loader) == list(again) + list(again), (shuffle, drop_last, epochs, stop)
            assert given == batches[:stop]


def test_state_after_the_end_starts_the_next_epoch():
    loader = StreamLoader(range(40), 3, 12, True)
    list(loader)
    again = StreamLoader(range(40), 3, 12, True)
    again.load_state_dict(loader.state_dict())
    assert again.epoch == 1 and list(again) == list(loader)


def test_state_after_the_last_batch_yields_nothing():
    loader = StreamLoader(range(6), 3, 4, True)
    assert len(list(itertools.islice(loader, 2))) == 2
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert list(loader) == [] and loader.epoch == 1
    longer = StreamLoader(range(6), 3, 4, True, epochs=2)
    longer.load_state_dict(state)
    assert list(longer) == list(loader)


def test_abandoned_iteration_from_a_state_is_not_resumed():
    loader = StreamLoader(range(40), 3, 12, True)
    list(itertools.islice(loader, 5))
    again = StreamLoader(range(40), 3, 12, True)
    again.load_state_dict(loader.state_dict())
    list(itertools.islice(again, 2))
    assert again.epoch == 0 and list(again) == list(loader) and again.epoch == 2


def test_skipped_items_are_not_parsed():
    parsed = []
    loader = StreamLoader(range(9), 3, parse=lambda n: parsed.append(n) or n)
    loader.load_state_dict({**loader.state_dict(), "batches": 2})
    assert len(list(loader)) == 1 and parsed == [6, 7, 8]


def test_state_of_another_loader_is_refused_and_changes_nothing():
    loader = StreamLoader(range(40), 3, 12, True, 5)
    next(iter(loader))
    state = loader.state_dict()
    for other, what in [
        (StreamLoader(range(40), 4, 12, True, 5), "batch_size=3"),
        (StreamLoader(range(40), 3, 13, True, 5), "buffer_size=12"),
        (StreamLoader(range(40), 3, 12, True, 6), "seed=5"),
        (StreamLoader(range(40), 3, 12, False, 5), "shuffle=True"),
    ]:
        before = other.state_dict()
        with pytest.raises(ValueError, match=what):
            other.load_state_dict(state)
        assert other.state_dict() == before
    for wrong in ({}, None, {**state, "format": "ringreel.StreamLoader/2"}, {**state, "batches": -1}):
        with pytest.raises(ValueError, match="expected"):
            loader.load_state_dict(wrong)
    assert loader.state_dict() == state
    # Without shuffle, seed and buffer size do not matter.
    plain = StreamLoader(range(40), 3, 1, False, 1)
    plain.load_state_dict(StreamLoader(range(40), 3, 9, False, 2).state_dict())


def test_shorter_source_is_an_error():
    loader = StreamLoader(range(40), 3, 12, True)
    list(itertools.islice(loader, 5))
    again = StreamLoader(range(11), 3, 12, True)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(ringreel.RingreelError, match="ended after 4 batches of epoch 0, but 5 had been read"):
        next(iter(again))


def test_state_after_an_error_is_that_of_the_last_batch():
    broken = [True]

    def parse(item):
        if item == 7 and broken:
            raise KeyError("no")
        return item

    loader = StreamLoader(range(12), 3, parse=parse, epochs=2)
    given = []
    with pytest.raises(KeyError):
        given.extend(iter(loader))
    broken.clear()
    loader.load_state_dict(loader.state_dict())
    assert flat(given + list(loader)) == [*range(12), *range(12)]


def test_epoch_whose_first_batch_failed_restarts():
    broken = [True]

    def source():
        if broken:
            raise OSError("away")
        return iter(range(5))

    loader = StreamLoader(source, 2)
    for state in (None, {**loader.state_dict(), "batches": 1}):
        if state is not None:
            broken.append(True)
            loader.load_state_dict(state)
        for _ in range(2):
            with pytest.raises(OSError, match="away"):
                next(iter(loader))
        broken.clear()
        assert flat(loader) == [0, 1, 2, 3, 4][2 if state else 0 :]


def test_pickled_copy_of_a_loader_is_independent():
    loader = StreamLoader(range(40), 3, 12, True, parse=str)
    for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        assert list(other) == list(loader) and loader.epoch == other.epoch
        loader.reset()
    called = StreamLoader(Counted(5), 3)
    assert flat(called) == flat(pickle.loads(pickle.dumps(called))) == [0, 1, 2, 3, 4]


# Errors.


def test_an_error_names_the_epoch_the_batch_and_the_sample(filled):
    def collate(batch):
        if 7 in batch:
            raise RuntimeError("seven")
        return batch

    with pytest.raises(RuntimeError, match="seven") as caught:
        list(StreamLoader(range(9), 2, collate=collate))
    assert caught.value.__notes__ == ["ringreel: collate of batch 3 of epoch 0, the source (range)"]
    ring = filled(numbered(3))
    loader = StreamLoader(ring, 1)
    list(loader)
    for name in os.listdir(os.path.join(ring.path, "read.1")):
        os.truncate(os.path.join(ring.path, "read.1", name), 10)
    with pytest.raises(ringreel.DamagedSampleError) as caught:
        list(loader)
    assert caught.value.__notes__ == [f"ringreel: while sample 0 of {ring.path} was read, in epoch 1"]


def test_invalid_numbers_are_refused():
    for keys, error, message in [
        ({"batch_size": 0}, ValueError, "batch_size: expected 1 or more, found 0"),
        ({"batch_size": 2.0}, TypeError, "batch_size: expected an integer, found 2.0"),
        ({"batch_size": 1, "buffer_size": 0}, ValueError, "buffer_size: expected 1 or more, found 0"),
        ({"batch_size": 1, "epochs": -1}, ValueError, "epochs: expected 0 or more"),
        ({"batch_size": 1, "seed": "x"}, TypeError, "seed: expected an integer, found 'x'"),
    ]:
        with pytest.raises(error, match=message):
            StreamLoader([1], **keys)


# The example.


def example(*args):
    done = subprocess.run([sys.executable, EXAMPLE, *args], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_example_keeps_the_lines_that_a_naive_loader_loses():
    kept = example()
    assert kept[-1] == "40 of 40 lines were read; no line is missing" and len(kept) == 15
    given = [int(word) for line in kept[:-1] for word in line.split()[3:]]
    assert sorted(given) == list(range(1, 41)) != given
    assert kept[-2].startswith("batch 14") and len(kept[-2].split()) == 4


def test_example_drops_one_line_and_a_naive_loader_four():
    dropped = example("--drop-last")
    assert dropped[-1].startswith("39 of 40 lines were read; dropped on request: ") and len(dropped) == 14
    naive = example("--naive")
    assert naive[-1] == "36 of 40 lines were read; lost: 37 38 39 40" and len(naive) == 13
