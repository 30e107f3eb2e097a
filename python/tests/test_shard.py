"""Shares of any source: each item once, equal steps, and warnings where a process cannot know its share."""

import collections
import copy
import itertools
import json
import logging
import pickle
import types

import pytest
from conftest import numbered, zip_equal

import ringreel
from ringreel import PADDING, Shard, StreamLoader, _length, recordio

COUNTS = (0, 1, 7, 24, 41)
WORLDS = range(1, 9)
WORKERS = range(5)


class Places:
    """Sets the loader worker of this process."""

    def __init__(self, monkeypatch):
        self.info = None
        monkeypatch.setattr(_length, "worker_info", lambda: self.info)

    def all(self, world, workers):
        """Goes through all ranks and their workers."""
        for rank in range(world):
            for worker in range(max(workers, 1)):
                self.info = types.SimpleNamespace(id=worker, num_workers=workers) if workers else None
                yield rank
        self.info = None


@pytest.fixture
def places(monkeypatch):
    return Places(monkeypatch)


def sources(directory, count):
    """Returns sources of `count` items of every kind, by name, and the function that makes an item a number."""
    halves = [range(count // 2), range(count // 2, count)]
    for name, numbers in zip_equal("ab", halves):
        (directory / f"{name}.txt").write_text("".join(f"{n}\n" for n in numbers))
        with recordio.MXRecordIO(directory / f"{name}.rec", "w") as out:
            for n in numbers:
                out.write(b"%d" % n)

    class Indexed:  # as torch's datasets: no __iter__, and no IndexError at the end
        def __len__(self):
            return count

        def __getitem__(self, index):
            return index

    return {
        "list": list(range(count)),
        "indexed": Indexed(),
        "generator of unknown length": lambda: (n for n in range(count)),
        "file": directory / "a.txt" if not count else _whole(directory, count),
        "files": ringreel.Files([directory / "a.txt", directory / "b.txt"]),
        "pattern": str(directory / "[ab].txt"),
        ".rec": str(directory / "[ab].rec"),
    }


def _whole(directory, count):
    path = directory / "whole.text"
    path.write_text("".join(f"{n}\n" for n in range(count)))
    return path


def expected(count, shares, equal):
    """Returns how often each item is given out by all shares together, and the number of padding items."""
    given = collections.Counter(range(count))
    left = count % shares
    if equal == "drop":
        given = collections.Counter(range(count - left))
    extra = shares - left if left else 0
    if equal == "wrap":
        given.update(n % count for n in range(extra))
    return given, extra if equal == "pad" else 0


@pytest.mark.parametrize("equal", [None, "drop", "wrap", "pad"])
@pytest.mark.parametrize("world", WORLDS)
def test_every_item_is_in_one_share_and_steps_are_equal(tmp_path, places, world, equal):
    for count in COUNTS:
        for (name, source), workers in itertools.product(sources(tmp_path, count).items(), WORKERS):
            shares = world * max(workers, 1)
            found = []
            for rank in places.all(world, workers):
                shard = Shard(source, rank, world, equal)
                found.append([item if item is PADDING else int(item) for item in shard])
                if workers < 3:  # batches of the same items
                    loader = StreamLoader(source, 2, rank=rank, world_size=world, equal=equal)
                    batches = [[n if n is PADDING else int(n) for n in batch] for batch in loader]
                    assert list(itertools.chain(*batches)) == found[-1], (name, count, workers)
            given = collections.Counter(itertools.chain(*found))
            padding = given.pop(PADDING, 0)
            assert (given, padding) == expected(count, shares, equal), (name, count, workers)
            lengths = {len(items) for items in found}
            assert max(lengths) - min(lengths) <= (1 if equal is None else 0), (name, count, workers)


@pytest.mark.parametrize("equal", [None, "drop", "wrap", "pad"])
def test_shuffled_loaders_share_every_item_once_in_each_epoch(places, equal):
    for count, world, workers in itertools.product((0, 5, 41), (1, 2, 5), (0, 1, 3)):
        shares = world * max(workers, 1)
        by_epoch = collections.defaultdict(list)
        steps = set()
        for rank in places.all(world, workers):
            loader = StreamLoader(lambda: iter(range(count)), 3, 8, True, 1, rank=rank, world_size=world, equal=equal)  # noqa: B023
            for epoch in range(2):
                batches = list(loader)
                by_epoch[epoch] += itertools.chain(*batches)
                steps.add(len(batches))
        for items in by_epoch.values():
            given = collections.Counter(items)
            padding = given.pop(PADDING, 0)
            assert (given, padding) == expected(count, shares, equal)
        assert equal is None or len(steps) == 1


def test_length_is_that_of_the_share(places):
    for count, world, workers, equal in itertools.product((0, 5, 41), (1, 3), (0, 2), (None, "drop", "wrap", "pad")):
        for rank in places.all(world, workers):
            loader = StreamLoader(range(count), 2, rank=rank, world_size=world, equal=equal)
            assert len(loader) == len(list(loader)), (count, world, workers, equal)


def test_filtered_items_are_left_out_before_the_items_are_dealt(places):
    lines = [*(str(n) for n in range(23)), "", " # no"]
    for world, workers, equal in itertools.product((1, 3, 8), (0, 2), (None, "drop", "wrap", "pad")):
        for keys in ({"filter": lambda line: int(line) % 2 == 0}, {"filter": "parse"}):
            parse = lambda line: int(line) if int(line) % 2 == 0 else None  # noqa: E731
            counts = []
            for rank in places.all(world, workers):
                options = {"rank": rank, "world_size": world, "equal": equal, "skip_blank": True, "comment": "#"}
                loader = StreamLoader(lines, 2, parse=parse, **options, **keys)
                counts.append([item for batch in loader for item in batch])
            given = collections.Counter(itertools.chain(*counts))
            given.pop(PADDING, 0)
            evens = expected(12, world * max(workers, 1), equal)[0]
            assert given == collections.Counter({2 * n: often for n, often in evens.items()})
            assert equal is None or len({len(items) for items in counts}) == 1


def test_parse_that_leaves_out_dealt_items_is_an_error_with_equal():
    keys = {"parse": lambda n: n if n % 2 else None, "rank": 0, "world_size": 2}
    assert list(StreamLoader(range(8), 2, **keys)) == []
    with pytest.raises(ringreel.RingreelError, match="parse returned None for item 0 of .*filter='parse'"):
        list(StreamLoader(range(8), 2, equal="drop", **keys))
    assert list(StreamLoader(range(8), 2, equal="drop", **{**keys, "world_size": 1})) == [[1, 3], [5, 7]]


def test_padding_is_not_parsed_and_can_be_chosen():
    keys = {"rank": 1, "world_size": 2, "equal": "pad"}
    assert list(StreamLoader([1], 2, parse=str, **keys)) == [[PADDING]]
    assert list(StreamLoader([1], 2, parse=str, padding=-1, **keys)) == [[-1]]
    assert list(Shard([1], padding=-1, **keys)) == [-1]
    assert list(StreamLoader([1], 2, parse=str, padding=None, **keys)) == [[None]]
    assert pickle.loads(pickle.dumps(PADDING)) is PADDING and copy.deepcopy([PADDING])[0] is PADDING
    assert repr(PADDING) == "<ringreel.PADDING>"


def test_indexed_source_reads_only_the_items_of_the_share():
    class Dataset:
        read = ()

        def __len__(self):
            return 9

        def __getitem__(self, index):
            self.read = (*self.read, index)
            return index

    dataset = Dataset()
    assert list(Shard(dataset, rank=1, world_size=4)) == [1, 5] and dataset.read == (1, 5)


def test_rank_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(Shard(range(7))) == [1, 4] and list(StreamLoader(range(7), 2)) == [[1, 4]]
    assert list(Shard(range(7), rank=0, world_size=1)) == list(range(7))
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(ValueError, match="rank 3 of world size 3, as the environment says, is not a rank"):
        list(Shard(range(7)))


def test_invalid_shares_are_refused():
    for keys, error, message in [
        ({"rank": 1}, ValueError, "expected both or neither"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank: expected less than world_size=2, found 2"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank: expected 0 or more"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size: expected 1 or more"),
        ({"rank": 0.0, "world_size": 2}, TypeError, "rank: expected an integer"),
        ({"comment": ""}, ValueError, "comment: expected text that is not empty"),
        ({"comment": 1}, TypeError, "comment: expected text, or None, found 1"),
        ({"equal": "even"}, ValueError, "equal: expected one of None, 'drop', 'wrap', 'pad', found 'even'"),
    ]:
        with pytest.raises(error, match=message):
            Shard([1], **keys)
        with pytest.raises(error, match=message):
            StreamLoader([1], 1, **keys)


def test_items_are_not_divided_twice():
    shard = Shard(range(8), rank=1, world_size=2)
    for source in (shard, StreamLoader(range(8), 2)):
        with pytest.raises(TypeError, match=f"found {type(source).__name__}: it shares its items itself"):
            Shard(source)
    assert list(StreamLoader(shard, 3)) == [[1, 3, 5], [7]]
    halves = StreamLoader(StreamLoader(range(8), 2, rank=0, world_size=2), 1)
    assert list(halves) == [[[0, 2]], [[4, 6]]] and len(halves) == 2
    with pytest.raises(ValueError, match="shares its items itself: pass rank, world_size and equal to it"):
        StreamLoader(shard, 3, equal="drop")


@pytest.mark.parametrize("equal", [None, "drop", "wrap", "pad"])
def test_state_restores_the_batches_of_a_share(equal):
    for world, shuffle, stop in itertools.product((2, 3), (False, True), range(5)):
        for rank in range(world):

            def make(rank=rank, world=world, shuffle=shuffle):
                parse = None if equal else lambda n: None if n % 7 == 0 else n
                keys = {"rank": rank, "world_size": world, "equal": equal, "padding": -1, "parse": parse}
                return StreamLoader(lambda: iter(range(41)), 3, 8, shuffle, 5, epochs=2, **keys)

            whole = list(make())
            loader = make()
            given = list(itertools.islice(loader, stop))
            again = make()
            again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            assert given + list(again) == whole


def test_state_of_one_rank_is_that_of_all_with_equal():
    make = lambda rank: StreamLoader(range(41), 3, 8, True, rank=rank, world_size=2, equal="wrap")  # noqa: E731
    first = make(0)
    list(itertools.islice(first, 3))
    other = make(1)
    other.load_state_dict(first.state_dict())
    assert list(other) == list(make(1))[3:]


def test_state_of_another_number_of_shares_is_an_error(places):
    loader = StreamLoader(range(41), 3, rank=0, world_size=2)
    next(iter(loader))
    for other in (StreamLoader(range(41), 3, rank=0, world_size=3), StreamLoader(range(41), 3)):
        other.load_state_dict(loader.state_dict())
        with pytest.raises(ringreel.RingreelError, match="saved with 2 shares"):
            list(other)
    with pytest.raises(ValueError, match="equal=None, but equal is 'drop'"):
        StreamLoader(range(41), 3, rank=0, world_size=2, equal="drop").load_state_dict(loader.state_dict())


def test_state_of_an_earlier_version_is_accepted():
    loader = StreamLoader(range(8), 3)
    list(itertools.islice(loader, 3))
    state = {key: value for key, value in loader.state_dict().items() if key not in ("left_out", "shares", "equal")}
    for batches in range(4):
        loader.load_state_dict({**state, "batches": batches})
        assert list(loader) == [[0, 1, 2], [3, 4, 5], [6, 7]][batches:]


def test_error_names_the_line_of_its_file(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text("1\n2\n")
    paths[1].write_text("3\nx\n")
    for keys in ({"parse": int}, {"filter": int}):
        with pytest.raises(ValueError, match="invalid literal") as caught:
            list(StreamLoader(ringreel.Files(paths), 1, **keys))
        assert caught.value.__notes__ == [f"ringreel: line 2 of {paths[1]}, in epoch 0"]
    paths[1].write_bytes(b"\xff\n")
    with pytest.raises(UnicodeDecodeError) as caught:
        list(Shard(ringreel.Files(paths)))
    # Python 3.13 and later note the codec, too.
    assert caught.value.__notes__[-1] == f"ringreel: line 1 of {paths[1]}"


def test_copy_in_an_unknown_process_logs_a_warning(script, tmp_path):
    program = """
        import logging, os, ringreel
        logging.basicConfig(format="%(message)s")
        for shard in (ringreel.Shard(range(4)), ringreel.Shard(range(4), rank=0, world_size=1)):
            if os.fork() == 0:
                print(list(shard), list(shard))
                os._exit(0)
            os.wait()
        print(list(shard))
    """
    child = script(program)
    assert child.end() == 0
    assert child.said.count("it yields all items there, too. Pass rank and world_size") == 1
    assert child.said.count("the Shard of the source (range) was made in process") == 1


def test_shares_of_a_ring_log_a_warning(filled, caplog):
    ring = filled(numbered(5))
    loader = StreamLoader(ring, 1, rank=1, world_size=2, collate=lambda batch: int(batch[0]["data"][0]))
    with caplog.at_level(logging.WARNING, "ringreel"):
        assert [*loader, *loader] == [1, 3, 1, 3]
        list(Shard(ring.dataset(), 0, 2))
    assert caplog.text.count("in 2 shares, which may read different generations. Use Ring.stream") == 1


def test_shares_of_a_set_log_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "ringreel"):
        shard = Shard({1, 2}, 0, 2)
        assert len(list(shard)) == len(list(shard)) == 1
        list(Shard({1, 2}))
    assert caplog.text.count("the order of a set differs between processes") == 1


def test_unknown_filter_is_refused():
    for filter, parse in (("parse", None), ("lines", str)):
        with pytest.raises(ValueError, match="filter: expected a callable, None, or 'parse' with a parse function"):
            StreamLoader([1], 1, parse=parse, filter=filter)
