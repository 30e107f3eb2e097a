"""InputSplit: every record in exactly one share, positions, and damage."""

import itertools
import json
import logging
import pickle
import types

import pytest

import ringreel
from ringreel import InputSplit, StreamLoader, _length, recordio


@pytest.fixture
def folder(tmp_path):
    """A folder of three files with 41 records of different lengths."""
    for name, numbers in (("c", range(2)), ("a", range(2, 30)), ("b", range(30, 41))):
        with recordio.MXIndexedRecordIO(tmp_path / f"{name}.idx", tmp_path / f"{name}.rec", "w") as out:
            for n in numbers:
                out.write_idx(n, record(n))
    return tmp_path


def record(n):
    return b"%d " % n * (n * 7 % 50)


ALL = [record(n) for n in (*range(2, 41), 0, 1)]


@pytest.mark.parametrize("by", ["bytes", "records"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_every_record_is_in_one_share(folder, monkeypatch, by, prefetch):
    for world, workers, use_index in itertools.product(range(1, 9), range(5), (False, True)):
        if by == "bytes" and use_index:
            continue
        found = []
        for rank, worker in itertools.product(range(world), range(max(workers, 1))):
            info = types.SimpleNamespace(id=worker, num_workers=workers) if workers else None
            monkeypatch.setattr(_length, "worker_info", lambda info=info: info)
            split = InputSplit(folder, rank, world, by, use_index=use_index, prefetch=prefetch)
            found.append(list(split))
            assert split.records == (len(found[-1]) if by == "records" else None)
        assert list(itertools.chain(*found)) == ALL, (world, workers)
        lengths = [len(records) for records in found]
        assert by == "bytes" or max(lengths) - min(lengths) <= 1


def test_each_iteration_starts_again_and_copies_are_equal(folder):
    split = InputSplit([folder / "b.rec", folder / "a.rec"], 1, 2)
    assert split.files == [str(folder / "a.rec"), str(folder / "b.rec")]
    first = list(split)
    next(iter(split))
    assert list(split) == list(pickle.loads(pickle.dumps(split))) == first
    assert repr(split) == f"<ringreel.InputSplit of {folder / 'b.rec'}, ...>"


def test_state_continues_after_the_last_record(folder):
    for rank, prefetch, by in itertools.product(range(3), (0, 2), ("bytes", "records")):
        make = lambda: InputSplit(folder, rank, 3, by, prefetch=prefetch)  # noqa: B023, E731
        whole = list(make())
        for stop in range(len(whole) + 1):
            split = make()
            given = list(itertools.islice(split, stop))
            again = make()
            again.load_state_dict(json.loads(json.dumps(split.state_dict())))
            assert again.state_dict() == split.state_dict() or stop == 0
            assert given + list(again) == whole and list(again) == whole


def test_state_of_another_split_is_refused(folder):
    split = InputSplit(folder, 0, 2)
    next(iter(split))
    with pytest.raises(ValueError, match="by_records=False, but by_records is True"):
        InputSplit(folder, 0, 2, by="records").load_state_dict(split.state_dict())
    with pytest.raises(ValueError, match="expected the format"):
        split.load_state_dict({})
    other = InputSplit(folder, 0, 3)
    other.load_state_dict(split.state_dict())
    with pytest.raises(ringreel.RingreelError, match="saved with 2 shares"):
        next(iter(other))
    other = InputSplit(folder, 1, 2)
    other.load_state_dict(split.state_dict())
    with pytest.raises(ringreel.SampleError, match="is not a position of this split"):
        next(iter(other))


def test_damage_is_an_error_or_skipped(folder, caplog):
    path = folder / "a.rec"
    data = bytearray(path.read_bytes())
    data[0] ^= 0xFF
    path.write_bytes(data)
    for prefetch in (0, 2):
        with pytest.raises(recordio.RecordError) as caught:
            list(InputSplit(folder, prefetch=prefetch))
        assert (caught.value.kind, caught.value.path, caught.value.offset) == ("BadMagic", str(path), 0)
        caplog.clear()
        split = InputSplit(folder, on_damage="skip", prefetch=prefetch)
        with caplog.at_level(logging.WARNING, "ringreel"):
            assert list(split) == ALL[1:]
        assert split.damage == (1, (8 + len(ALL[0]) + 3) // 4 * 4)
        assert f"{path}: skipping bytes 0 to {split.damage[1]}: " in caplog.text


def test_loader_shuffles_the_records_of_a_split(folder):
    found = []
    for rank in range(3):
        loader = StreamLoader(InputSplit(folder, rank, 3), 4, 10, shuffle=True)
        found += itertools.chain(*loader)
    assert sorted(found) == sorted(ALL) and found != ALL
    with pytest.raises(TypeError, match="InputSplit: it shares its items itself"):
        ringreel.Shard(InputSplit(folder))


def test_invalid_arguments_are_refused(folder):
    for paths, keys, error, message in [
        ([], {}, ValueError, "paths: expected at least one path"),
        ([5], {}, TypeError, "paths: expected paths, found 5"),
        ("a", {"by": "files"}, ValueError, "by: expected 'bytes' or 'records', found 'files'"),
        ("a", {"on_damage": "stop"}, ValueError, "on_damage: expected 'fail' or 'skip', found 'stop'"),
        ("a", {"prefetch": -1}, ValueError, "prefetch: expected 0 or more"),
        ("a", {"rank": 0}, ValueError, "expected both or neither"),
    ]:
        with pytest.raises(error, match=message):
            InputSplit(paths, **keys)
    with pytest.raises(FileNotFoundError):
        list(InputSplit(folder / "none.rec"))
    with pytest.raises(ringreel.SampleError, match="is the same file as"):
        list(InputSplit([folder / "a.rec", folder]))
