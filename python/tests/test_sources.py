"""Sources of a StreamLoader: files, rings, datasets, and repeatable iterables."""

import gc
import itertools
import json
import logging
import os
import pathlib

import pytest
from conftest import add, numbered, numbers
from test_loader import Counted, flat

from ringreel import StreamLoader, recordio


def test_sources_can_be_lists_sequences_callables_and_datasets(filled):
    class Sequence:  # has no __iter__, and raises no IndexError at its end
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return index

    class Endless:  # has neither
        def __getitem__(self, index):
            if index == 5:
                raise IndexError
            return index

    for source in (range(5), [0, 1, 2, 3, 4], dict.fromkeys(range(5)), Sequence(), Endless(), lambda: range(5)):
        loader = StreamLoader(source, 2, epochs=2)
        assert list(loader) == [[0, 1], [2, 3], [4]] * 2
    loader = StreamLoader(filled(numbered(5)).dataset(), 2)
    assert [numbers(batch) for batch in loader] == [[0, 1], [2, 3], [4]] and len(loader) == 3


def test_iterator_is_refused(filled, tmp_path):
    path = tmp_path / "a.rec"
    recordio.MXRecordIO(path, "w").close()
    reader = recordio.MXRecordIO(path, "r")
    for source in ((n for n in range(3)), iter([1]), reader, filled(numbered(1)).stream(), map(str, [1])):
        with pytest.raises(TypeError, match="read only once: pass a callable"):
            StreamLoader(source, 1)
    reader.close()
    for source in (5, None):
        with pytest.raises(TypeError, match="source: expected a path"):
            StreamLoader(source, 1)
    once = iter([1, 2])
    loader = StreamLoader(lambda: once, 1, epochs=2)
    with pytest.raises(TypeError, match="the same iterator again"):
        list(loader)
    with pytest.raises(TypeError, match="returned int"):
        list(StreamLoader(lambda: 5, 1))


def test_iterator_of_a_callable_is_closed_after_its_epoch():
    source = Counted(5)
    loader = StreamLoader(source, 2, 2, True, epochs=2)
    list(loader)
    assert source.closed == 2
    for _ in loader:
        break
    gc.collect()
    assert source.closed == 3

    class Own:
        closed = 0

        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

        def close(self):
            Own.closed += 1

    list(StreamLoader(Own, 1))
    assert Own.closed == 1


@pytest.mark.parametrize("path", [str, os.fsencode, pathlib.Path])
def test_lines_of_a_text_file_are_items(tmp_path, path):
    file = tmp_path / "lines.txt"
    file.write_bytes("\ufeffeins\r\nzwei\n\nvi\u00ebr \n\u2028f\x0c\u00fcnf".encode())
    loader = StreamLoader(path(file), 2, epochs=2)
    assert list(loader) == [["eins", "zwei"], ["", "vi\u00ebr "], ["\u2028f\x0c\u00fcnf"]] * 2
    file.write_text("1 0.5\n2 0.25\n")
    assert list(StreamLoader(path(file), 2, parse=lambda line: float(line.split()[1]))) == [[0.5, 0.25]]
    file.write_text("")
    assert list(StreamLoader(file, 2)) == []


def test_records_of_a_recordio_file_are_items(tmp_path):
    path = tmp_path / "a.rec"
    with recordio.MXRecordIO(path, "w") as out:
        for n in range(5):
            out.write(b"x" * n)
    loader = StreamLoader(path, 2, 3, True, parse=len)
    assert sorted(flat(loader)) == [0, 1, 2, 3, 4] and sorted(flat(loader)) == [0, 1, 2, 3, 4]
    assert list(StreamLoader(str(path), 5)) == [[b"x" * n for n in range(5)]]


def test_each_epoch_reads_the_newest_generation_of_a_ring(filled):
    ring = filled(numbered(5), KEEP=3)
    loader = StreamLoader(ring, 2, 3, True, epochs=2, collate=numbers)
    first = []
    for batch in loader:
        first += batch
        if len(first) == 2:
            add(ring, numbered(4, start=10))
    assert sorted(first[:5]) == [0, 1, 2, 3, 4] and sorted(first[5:]) == [10, 11, 12, 13]
    assert len(loader) == 4


def test_state_of_a_ring_continues_in_its_generation_if_it_exists(filled, caplog):
    ring = filled(numbered(8), KEEP=1)
    make = lambda: StreamLoader(ring, 2, 5, True, 3, collate=numbers)  # noqa: E731
    whole = list(make())
    loader = make()
    list(itertools.islice(loader, 2))
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["generation"] == 1
    add(ring, numbered(8, start=10))
    loader.load_state_dict(state)
    assert list(loader) == whole[2:] and not caplog.records
    assert min(flat(loader)) == 10
    add(ring, numbered(8, start=20))
    again = make()
    again.load_state_dict(state)
    with caplog.at_level(logging.WARNING, "ringreel"):
        assert sorted(flat(again)) == list(range(20, 28))
    assert "generation 1" in caplog.text and "restarting the epoch with generation 3" in caplog.text


def test_an_error_names_the_line_the_record_or_the_item(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{n}\n" for n in range(1, 30)) + "thirty\n")
    records = tmp_path / "a.rec"
    with recordio.MXRecordIO(records, "w") as out:
        for n in range(3):
            out.write(b"%d" % n)
    cut = tmp_path / "cut.rec"
    cut.write_bytes(records.read_bytes()[:-1])
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\n")

    def two():
        yield from (1, 2)
        raise KeyError("gone")

    for source, parse, error, note in [
        (lines, int, ValueError, f"ringreel: line 30 of {lines}, in epoch 0"),
        (bad, None, UnicodeDecodeError, f"ringreel: line 2 of {bad}, in epoch 0"),
        (tmp_path / "none.txt", None, FileNotFoundError, "line 1 of"),
        (records, lambda r: {b"0": 0, b"1": 1}[r], KeyError, f"ringreel: record 2 of {records}, in epoch 0"),
        (cut, None, recordio.RecordError, f"ringreel: while record 2 of {cut} was read, in epoch 0"),
        ([4, 2, 0], lambda n: 1 / n, ZeroDivisionError, "ringreel: item 2 of the source (list), in epoch 0"),
        (two, None, KeyError, "ringreel: while item 2 of the source test_an_error"),
    ]:
        for shuffle, batch in itertools.product((False, True), (1, 7, 100)):
            with pytest.raises(error) as caught:
                list(StreamLoader(source, batch, 12, shuffle, parse=parse))
            assert len(caught.value.__notes__) == 1 and note in caught.value.__notes__[0]


def test_dataset_continues_with_the_generation_of_the_state(filled, caplog):
    ring = filled(numbered(6), KEEP=5)
    loader = StreamLoader(ring.dataset(), 2, epochs=1)
    batches = iter(loader)
    assert numbers(next(batches)) == [0, 1]
    state = json.loads(json.dumps(loader.state_dict()))
    add(ring, numbered(12)[6:])
    same = StreamLoader(ring.dataset(generation=1), 2, epochs=1)
    same.load_state_dict(state)
    assert [numbers(batch) for batch in same] == [[2, 3], [4, 5]] and not caplog.records
    newer = StreamLoader(ring.dataset(), 2, epochs=1)
    newer.load_state_dict(state)
    assert [numbers(batch) for batch in newer] == [[6, 7], [8, 9], [10, 11]]
    assert "reads generation 2, but the saved 1 batch was from generation 1" in caplog.text
