"""`ringreel.recordio`: the interface of `mxnet.recordio`, with strict reading. No test here needs MXNet."""

import contextlib
import copy
import gc
import multiprocessing
import os
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest
from conftest import zip_equal

from ringreel import RingreelError, recordio
from ringreel.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, RecordError

MAGIC = b"\x0a\x23\xd7\xce"


def framed(flag, payload):
    """Returns the bytes of one frame in a file."""
    return struct.pack("<II", 0xCED7230A, flag << 29 | len(payload)) + payload + bytes(-len(payload) % 4)


def payloads(seed, count, most=3000):
    """Returns records of all kinds: empty, short, longer than one read, full of magic numbers."""
    rng = random.Random(seed)
    for n in range(count):
        size = rng.choice((0, 1, rng.randrange(16), rng.randrange(300), rng.randrange(most)))
        if n % 3 == 0:
            yield b"".join(rng.choice((MAGIC, rng.randbytes(rng.randrange(5)))) for _ in range(size // 4))
        else:
            yield rng.randbytes(size)


@pytest.fixture
def written(tmp_path):
    """Writes records with the keys 0, 1, ... Returns the paths of index and file, and the records."""

    def write(records, name="x"):
        idx, rec = tmp_path / f"{name}.idx", tmp_path / f"{name}.rec"
        with MXIndexedRecordIO(idx, rec, "w") as out:
            for key, record in enumerate(records):
                out.write_idx(key, record)
        return idx, rec, records

    return write


def open_in(directory):
    """Returns the open files in this directory. Threads of earlier tests may hold other files open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(path for path in found if path.startswith(f"{directory}/"))


def in_a_fork(work):
    """Returns the result of `work` in a forked child, or its exception's text. The child exits normally."""
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(end)
            try:
                said = repr(work())
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(begin, said.encode())
            status = 0
        finally:
            gc.collect()
            os._exit(status)
    os.close(begin)
    with open(end, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, said
    return said


# Reading and writing


def test_records_round_trip(tmp_path):
    records = [*payloads(1, 400), bytes(700_000), MAGIC * 200_000, b"\x01" + MAGIC * 100_000, b""]
    path = tmp_path / "a.rec"
    out = MXRecordIO(path, "w")
    offsets = [out.write(record) for record in records]
    out.close()
    file = MXRecordIO(path, "r")
    for at, record in zip_equal(offsets, records):
        assert file.tell() == at
        assert file.read() == record
    assert file.read() is None and file.read() is None
    assert file.tell() == path.stat().st_size
    file.reset()
    assert list(file) == records and list(file) == []


def test_bytes_match_the_format(tmp_path):
    with MXRecordIO(tmp_path / "a.rec", "w") as out:
        for record in (b"abcde", b"", MAGIC, b"1234" + MAGIC + b"5"):
            out.write(record)
    split = framed(1, b"") + framed(3, b"") + framed(1, b"1234") + framed(3, b"5")
    assert (tmp_path / "a.rec").read_bytes() == framed(0, b"abcde") + framed(0, b"") + split


def test_records_are_bytes_and_any_buffer_can_be_written(tmp_path):
    given = [b"ab", bytearray(b"cd"), memoryview(b"ef"), np.frombuffer(b"gh", np.uint8)]
    with MXRecordIO(tmp_path / "a.rec", "w") as out:
        for each in given:
            out.write(each)
        with pytest.raises(TypeError):
            out.write("text")
    read = list(MXRecordIO(tmp_path / "a.rec", "r"))
    assert read == [b"ab", b"cd", b"ef", b"gh"] and all(type(record) is bytes for record in read)


def test_attributes_are_those_of_mxnet(tmp_path):
    idx, rec = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    out = MXIndexedRecordIO(idx, rec, "w")
    assert (out.uri, out.flag, out.is_open, out.writable, out.pid) == (rec, "w", True, True, os.getpid())
    assert (out.idx_path, out.idx, out.keys, out.key_type, out.fidx.closed) == (idx, {}, [], int, False)
    out.write_idx(5, b"five")
    out.write_idx("7", b"seven")
    assert (out.idx, out.keys, out.tell()) == ({5: 0, 7: 12}, [5, 7], 28)
    out.close()
    out.close()
    assert (out.is_open, out.pid, out.fidx.closed) == (False, None, True)
    assert pathlib.Path(idx).read_bytes() == b"5\t0\n7\t12\n"
    file = MXIndexedRecordIO(idx, rec, "r")
    assert (file.idx, file.keys, file.writable, file.fidx.name) == ({5: 0, 7: 12}, [5, 7], False, idx)
    assert "a.rec (flag 'r')" in repr(file)
    file.close()
    assert "closed" in repr(file) and file.fidx.closed


def test_paths_can_be_objects_text_bytes_and_file_addresses(tmp_path):
    path = tmp_path / "ä b.rec"
    MXRecordIO(path, "w").write(b"x")
    for uri in (path, str(path), os.fsencode(path), f"file://{path}"):
        assert list(MXRecordIO(uri, "r")) == [b"x"]
    with pytest.raises(RingreelError, match="s3://bucket/x: only local files"):
        MXRecordIO("s3://bucket/x", "r")


def test_dropped_writer_has_written_its_records(tmp_path):
    out = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    out.write_idx(0, b"x")
    del out
    gc.collect()
    assert MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r").read_idx(0) == b"x"


def test_writer_that_is_open_at_exit_has_written_its_records(tmp_path):
    code = """if True:
        import sys
        from ringreel.recordio import MXIndexedRecordIO
        out = MXIndexedRecordIO("a.idx", "a.rec", "w")
        out.write_idx(0, b"x")
        sys.modules["kept"] = out
        out.me = out
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r").read_idx(0) == b"x"


def test_reopening_starts_at_the_first_record(written):
    idx, rec, _ = written([b"0", b"1"])
    file = MXIndexedRecordIO(idx, rec, "r")
    assert file.read() == b"0"
    file.open()
    assert file.read() == b"0" and file.keys == [0, 1]
    out = MXIndexedRecordIO(idx, rec, "w")
    out.write_idx(3, b"gone")
    out.reset()
    out.write_idx(4, b"kept")
    out.close()
    file.reset()
    assert file.keys == [4] and list(file) == [b"kept"]


def test_close_releases_the_files(written):
    idx, rec, _ = written([b"0"])
    assert open_in(rec.parent) == []
    file, out = MXIndexedRecordIO(idx, rec, "r"), MXIndexedRecordIO(f"{idx}2", f"{rec}2", "w")
    assert open_in(rec.parent) == sorted([str(idx), f"{idx}2", str(rec), f"{rec}2"])
    file.close()
    out.close()
    assert open_in(rec.parent) == []


def test_misuse_is_an_error_that_names_the_file(written):
    idx, rec, _ = written([b"0"])
    file, out = MXIndexedRecordIO(idx, rec, "r"), MXRecordIO(rec.with_name("b.rec"), "w")
    for use in (lambda: file.write(b""), lambda: file.write_idx(0, b"")):
        with pytest.raises(RingreelError, match=r"x\.rec: not open for writing: its flag is 'r'"):
            use()
    for use in (out.read, lambda: list(out)):
        with pytest.raises(RingreelError, match=r"b\.rec: not open for reading: its flag is 'w'"):
            use()
    file.close()
    out.close()
    for use in (file.read, file.tell, lambda: out.write(b""), out.tell):
        with pytest.raises(RingreelError, match=r"\.rec: not open: call open\(\) first"):
            use()
    for flag in ("rb", "a", "", None):
        with pytest.raises(ValueError, match=f"Invalid flag {flag}"):
            MXRecordIO(rec, flag)
    with pytest.raises(FileNotFoundError) as caught:
        MXRecordIO(rec.with_name("no.rec"), "r")
    assert caught.value.filename == str(rec.with_name("no.rec"))
    with pytest.raises(FileNotFoundError):
        MXRecordIO(rec.parent / "no" / "x.rec", "w")
    with pytest.raises(IsADirectoryError) as caught:
        MXRecordIO(rec.parent, "r").read()
    assert caught.value.filename == str(rec.parent)


def test_record_of_half_a_gigabyte_is_refused_and_not_written(tmp_path):
    with MXRecordIO(tmp_path / "a.rec", "w") as out:
        out.write(b"before")
        with pytest.raises(RecordError, match=r"a\.rec: bytes of a record: 536870912 is over the limit of 536870911"):
            out.write(np.zeros(1 << 29, np.uint8))
        out.write(b"after")
    assert list(MXRecordIO(tmp_path / "a.rec", "r")) == [b"before", b"after"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full: a full disk is NOT tested here")
def test_full_disk_is_an_error_that_names_the_file_and_ends_writing(tmp_path):
    out = MXRecordIO("/dev/full", "w")
    with pytest.raises(OSError, match="No space left") as caught:
        out.write(bytes(1 << 20))
    assert caught.value.filename == "/dev/full"
    with pytest.raises(RingreelError, match="an earlier write failed"):
        out.write(b"x")
    out.close()
    out = MXRecordIO("/dev/full", "w")
    out.write(b"still in memory")
    with pytest.raises(OSError, match="No space left"):
        out.close()
    assert not out.is_open
    out = MXIndexedRecordIO("/dev/full", tmp_path / "a.rec", "w")
    out.write_idx(0, b"x")
    with pytest.raises(OSError, match="No space left") as caught:
        out.close()
    assert caught.value.filename == "/dev/full"


# By key


def test_read_continues_after_a_record_read_by_key(written):
    idx, rec, records = written([*payloads(2, 500), bytes(600_000), b"end"])
    file = MXIndexedRecordIO(idx, rec, "r")
    for key in random.Random(0).choices(range(len(records)), k=2000):
        assert file.read_idx(key) == records[key]
        if key % 3 == 0:
            assert file.read() == (records[key + 1] if key + 1 < len(records) else None)
        if key % 7 == 0:
            file.seek(key)
            assert file.tell() == file.idx[key] and file.read() == records[key]


def test_reader_can_seek_after_the_end(written):
    idx, rec, records = written([b"0", b"1"])
    file = MXIndexedRecordIO(idx, rec, "r")
    assert list(file) == records
    assert file.read_idx(0) == b"0"
    assert list(file) == [b"1"]
    file.seek(1)
    assert file.read() == b"1"


def test_seek_reopens_a_closed_reader(written):
    idx, rec, _ = written([b"0", b"1"])
    file = MXIndexedRecordIO(idx, rec, "r")
    file.close()
    assert file.read_idx(1) == b"1" and file.is_open
    file.close()
    file.seek(0)
    assert file.read() == b"0"


def test_missing_key_is_a_key_error(written):
    idx, rec, _ = written([b"0"])
    file = MXIndexedRecordIO(idx, rec, "r")
    for use in (file.read_idx, file.seek):
        with pytest.raises(KeyError, match=r"x\.idx: no key 7"):
            use(7)


def test_keys_have_the_requested_type(tmp_path):
    idx, rec = tmp_path / "a.idx", tmp_path / "a.rec"
    with MXIndexedRecordIO(idx, rec, "w", key_type=str) as out:
        for key in ("cat", "7", "x y", "-1"):
            out.write_idx(key, key.encode())
        for key in ("a\tb", "a\n", ""):
            with pytest.raises(RecordError, match="cannot be a key"):
                out.write_idx(key, b"never written")
    file = MXIndexedRecordIO(idx, rec, "r", str)
    assert file.keys == ["cat", "7", "x y", "-1"] and file.read_idx("x y") == b"x y"
    assert len(list(MXRecordIO(rec, "r"))) == 4
    with pytest.raises(
        RecordError, match=r"a\.idx: line 1: the key \"cat\" is not of type int: pass another"
    ) as caught:
        MXIndexedRecordIO(idx, rec, "r")
    assert isinstance(caught.value.__cause__, ValueError)
    idx.write_text("1.5\t0\n")
    assert MXIndexedRecordIO(idx, rec, "r", float).keys == [1.5]


def test_key_can_repeat_and_can_be_any_integer(tmp_path):
    idx, rec = tmp_path / "a.idx", tmp_path / "a.rec"
    with MXIndexedRecordIO(idx, rec, "w") as out:
        for key, record in [(3, b"old"), (-7, b"minus"), (10**30, b"big"), (3, b"new")]:
            out.write_idx(key, record)
    file = MXIndexedRecordIO(idx, rec, "r")
    assert file.keys == [3, -7, 10**30, 3] == out.keys and file.idx == out.idx
    assert [file.read_idx(key) for key in file.keys] == [b"new", b"minus", b"big", b"new"]


BAD_INDICES = [
    ("0\t0\n\n1\t8\n", r"line 2 \(byte 4\) is not key, TAB, offset", 4),
    ("0 0\n", r"line 1 \(byte 0\) is not key, TAB, offset", 0),
    ("0\t0\n1\tx\n", r"line 2 \(byte 4\) has an offset", 4),
    ("0\t-8\n", r"line 1 \(byte 0\) has an offset", 0),
    ("0\t0\t5\n", r"line 1 \(byte 0\) has an offset", 0),
]


@pytest.mark.parametrize(("text", "message", "offset"), BAD_INDICES)
def test_invalid_index_is_refused_and_its_line_named(written, text, message, offset):
    idx, rec, _ = written([b"0"])
    idx.write_text(text)
    with pytest.raises(RecordError, match=rf"x\.idx: {message}") as caught:
        MXIndexedRecordIO(idx, rec, "r")
    assert (caught.value.path, caught.value.offset, caught.value.kind) == (str(idx), offset, "BadLine")


def test_index_with_crlf_or_without_a_final_line_end_is_read(written):
    idx, rec, _ = written([b"0", b"1"])
    idx.write_bytes(b"0\t0\r\n1\t12")
    assert MXIndexedRecordIO(idx, rec, "r").read_idx(1) == b"1"


def test_index_of_another_file_gives_no_wrong_record(written):
    idx, rec, _ = written([b"first", b"second"])
    for offset, kind in ((4, "BadMagic"), (8, "BadMagic"), (32, "Truncated"), (10**15, "Truncated")):
        idx.write_text(f"0\t{offset}\n")
        file = MXIndexedRecordIO(idx, rec, "r")
        with pytest.raises(RecordError, match=rf"x\.rec: byte {offset}: ") as caught:
            file.read_idx(0)
        assert (caught.value.offset, caught.value.kind) == (offset, kind)
    file.seek(0)
    with pytest.raises(RecordError, match="byte 1000000000000000: truncated"):
        file.read()


def test_missing_index_leaves_no_file_open(written):
    idx, rec, _ = written([b"0"])
    idx.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        MXIndexedRecordIO(idx, rec, "r")
    assert caught.value.filename == str(idx)
    del caught
    gc.collect()
    assert open_in(rec.parent) == []


# Strictness

FOREIGN = {
    "a torn header": (framed(0, b"abcd") + MAGIC[:2], 1, "Truncated", 12),
    "a torn payload": (framed(0, b"abcd") + framed(0, b"abcdefgh")[:-4], 1, "Truncated", 12),
    "padding that is missing": (framed(0, b"abcde")[:-3], 0, "Truncated", 0),
    "a length beyond the end": (struct.pack("<II", 0xCED7230A, (1 << 29) - 1) + b"abcd", 0, "Truncated", 0),
    "no magic": (framed(0, b"abcd") + b"x" * 16, 1, "BadMagic", 12),
    "a first part without a last": (framed(1, b"abcd"), 0, "Truncated", 12),
    "a first part, then a whole record": (framed(1, b"abcd") + framed(0, b"efgh"), 0, "BadFlag", 12),
    "a last part alone": (framed(3, b"abcd"), 0, "BadFlag", 0),
    "a flag above 3": (framed(5, b"abcd") + framed(0, b"efgh"), 0, "BadFlag", 0),
    "parts cut anywhere": (framed(1, b"abc") + framed(3, b"efgh"), 0, "UnalignedPart", 0),
    "a magic that was not escaped": (framed(0, b"abcd" + MAGIC + b"efgh"), 0, "UnescapedMagic", 12),
    "padding that is not zero": (framed(0, b"a")[:-1] + b"x", 0, "DirtyPadding", 9),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_invalid_framing_is_refused_with_kind_and_offset(tmp_path, case):
    data, good, kind, offset = FOREIGN[case]
    path = tmp_path / "a.rec"
    path.write_bytes(data)
    file = MXRecordIO(path, "r")
    assert [file.read() for _ in range(good)] == [b"abcd"] * good
    for _ in range(2):
        with pytest.raises(RecordError, match=rf"a\.rec: byte {offset}: ") as caught:
            file.read()
        assert (caught.value.path, caught.value.offset, caught.value.kind) == (str(path), offset, kind)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.offset, again.kind) == (str(caught.value), offset, kind)


def test_damage_far_into_a_file_is_named_with_its_offset(tmp_path):
    path = tmp_path / "a.rec"
    with MXRecordIO(path, "w") as out:
        offsets = [out.write(bytes(100_000)) for _ in range(20)]
    with path.open("r+b") as file:
        file.seek(offsets[13])
        file.write(b"junk")
    file = MXRecordIO(path, "r")
    with pytest.raises(RecordError, match=f"byte {offsets[13]}: not a record"):
        list(file)
    assert file.tell() == offsets[13]


def test_wrong_length_costs_no_memory(tmp_path):
    (tmp_path / "a.rec").write_bytes(struct.pack("<II", 0xCED7230A, (1 << 29) - 8) + bytes(1 << 20))
    code = """if True:
        import resource, ringreel.recordio
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try: ringreel.recordio.MXRecordIO("a.rec", "r").read()
        except ValueError: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 50_000  # KiB


# Threads, processes, pickles


def together(works):
    """Runs functions in threads at the same time. Raises an exception of any of them."""
    failures, barrier = [], threading.Barrier(len(works))

    def run(work):
        barrier.wait()
        try:
            work()
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_threads_get_the_records_that_they_request(written):
    records = [struct.pack("<I", n) * random.Random(n).choice((1, 20, 3000, 90_000)) for n in range(200)]
    idx, rec, _ = written(records)
    file = MXIndexedRecordIO(idx, rec, "r")

    def read(seed):
        for key in random.Random(seed).choices(range(len(records)), k=600):
            assert file.read_idx(key) == records[key]

    together([lambda seed=seed: read(seed) for seed in range(6)])


def test_threads_that_read_in_sequence_get_each_record_once(tmp_path):
    with MXRecordIO(tmp_path / "a.rec", "w") as out:
        for n in range(5000):
            out.write(struct.pack("<I", n) * (1 + n % 50 * 20))
    file, got = MXRecordIO(tmp_path / "a.rec", "r"), []
    together([lambda: got.extend(struct.unpack_from("<I", record)[0] for record in file) for _ in range(4)])
    assert sorted(got) == list(range(5000))


def test_threads_that_write_do_not_mix_their_records(tmp_path):
    idx, rec = tmp_path / "a.idx", tmp_path / "a.rec"
    out = MXIndexedRecordIO(idx, rec, "w")

    def write(worker):
        for n in range(300):
            key = worker * 1000 + n
            out.write_idx(key, struct.pack("<I", key) * random.Random(key).choice((1, 100, 30_000)))

    together([lambda worker=worker: write(worker) for worker in range(4)])
    out.close()
    file = MXIndexedRecordIO(idx, rec, "r")
    assert sorted(file.keys) == [worker * 1000 + n for worker in range(4) for n in range(300)]
    assert all(set(struct.iter_unpack("<I", file.read_idx(key))) == {(key,)} for key in file.keys)


@pytest.mark.parametrize("children", [1, 6])
def test_forked_children_and_their_parent_read_independently(written, children):
    """The parent reads, in order and by key, while children do the same with the inherited object."""
    records = [struct.pack("<I", n) * random.Random(n).choice((1, 20, 3000, 60_000)) for n in range(400)]
    idx, rec, _ = written(records)
    file = MXIndexedRecordIO(idx, rec, "r")
    for n in range(100):
        assert file.read() == records[n]

    def use(seed):
        rng = random.Random(seed)
        assert list(file) == records[100:]
        for key in rng.choices(range(len(records)), k=300):
            assert file.read_idx(key) == records[key]
            assert file.read() == (records[key + 1] if key + 1 < len(records) else None)
        file.reset()
        assert list(file) == records
        file.close()

    started = []
    for seed in range(children):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                use(seed)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        started.append(child)
    use(children)
    assert [os.waitpid(child, 0)[1] for child in started] == [0] * children


def test_fork_while_threads_read_leaves_a_working_reader(written):
    records = [struct.pack("<I", n) * 30_000 for n in range(50)]
    idx, rec, _ = written(records)
    file = MXIndexedRecordIO(idx, rec, "r")
    stop = threading.Event()

    def read(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            key = rng.randrange(50)
            assert file.read_idx(key) == records[key]

    def fork():
        try:
            for n in range(12):
                assert in_a_fork(lambda n=n: file.read_idx(n) == records[n]) == "True"
        finally:
            stop.set()

    together([fork, lambda: read(1), lambda: read(2)])


def test_writer_in_a_forked_child_is_an_error_and_changes_nothing(tmp_path):
    idx, rec = tmp_path / "a.idx", tmp_path / "a.rec"
    out = MXIndexedRecordIO(idx, rec, "w")
    out.write_idx(0, b"parent")
    uses = [lambda: out.write(b"x"), lambda: out.write_idx(1, b"x"), out.tell, out.reset, out.open]
    uses += [lambda: out.fidx.write("9\t9\n")]
    for use in uses:
        assert f"process {os.getpid()}" in in_a_fork(use)
    assert in_a_fork(out.close) == "None"
    out.write_idx(1, b"parent again")
    out.close()
    assert list(MXRecordIO(rec, "r")) == [b"parent", b"parent again"]
    assert idx.read_text() == "0\t0\n1\t16\n"


def test_forked_child_writes_none_of_its_parents_data_at_exit(tmp_path):
    code = """if True:
        import os, sys
        from ringreel.recordio import MXIndexedRecordIO
        with MXIndexedRecordIO("a.idx", "a.rec", "w") as out:
            out.write_idx(0, b"parent")
            child = os.fork()
            if child == 0:
                sys.exit()
            os.waitpid(child, 0)
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "a.rec").read_bytes() == framed(0, b"parent") and (tmp_path / "a.idx").read_text() == "0\t0\n"


def read_in_another_process(pickled, keys):
    file = pickle.loads(pickled)
    return [file.read_idx(key) for key in keys], file.read(), file.pid == os.getpid()


def test_reader_can_be_pickled_into_another_process(written):
    idx, rec, _ = written([b"0", b"1", b"2"])
    file = MXIndexedRecordIO(idx, rec, "r")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        done = pool.apply(read_in_another_process, (pickle.dumps(file), [2, 0]))
    assert done == ([b"2", b"0"], b"1", True)


@pytest.mark.parametrize("copied", [lambda file: pickle.loads(pickle.dumps(file)), copy.copy, copy.deepcopy])
def test_copy_starts_at_the_first_record_and_is_independent(written, copied):
    idx, rec, _ = written([b"0", b"1", b"2"])
    for file in (MXRecordIO(rec, "r"), MXIndexedRecordIO(idx, rec, "r", key_type=str)):
        file.mine = "kept"
        file.read()
        other = copied(file)
        assert type(other) is type(file) and other.mine == "kept" and other.flag == "r" and other.pid == os.getpid()
        assert (other.read(), file.read(), other.read(), file.read()) == (b"0", b"1", b"1", b"2")
        if isinstance(file, MXIndexedRecordIO):
            assert other.keys == ["0", "1", "2"] and other.read_idx("2") == b"2"
        file.close()
        assert other.read_idx("1") == b"1" if isinstance(file, MXIndexedRecordIO) else other.read() == b"2"
        closed = copied(file)
        assert not closed.is_open and closed.pid is None
        closed.open()
        assert closed.read() == b"0"


def test_open_writer_is_not_pickled_and_closed_one_empties_nothing(written):
    idx, rec, _ = written([b"0", b"1"])
    out = MXIndexedRecordIO(idx.with_name("b.idx"), rec.with_name("b.rec"), "w")
    out.write_idx(0, b"kept")
    for copied in (pickle.dumps, copy.copy):
        with pytest.raises(RingreelError, match=r"b\.rec: open for writing: close it before"):
            copied(out)
    out.close()
    other = pickle.loads(pickle.dumps(out))
    assert not other.is_open and other.keys == [0]
    state = {**out.__getstate__(), "is_open": True}  # as MXNet pickles an open writer
    with pytest.raises(RingreelError, match="opening it would empty it"):
        MXIndexedRecordIO.__new__(MXIndexedRecordIO).__setstate__(state)
    assert list(MXRecordIO(out.uri, "r")) == [b"kept"]


def test_subclass_can_change_the_records(tmp_path):
    class Twice(MXIndexedRecordIO):
        def write(self, buf):
            super().write(buf + buf)

    with Twice(tmp_path / "a.idx", tmp_path / "a.rec", "w") as out:
        out.write_idx(0, b"a")
        out.write_idx(1, b"b")
    file = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")
    assert (file.read_idx(1), file.read_idx(0)) == (b"bb", b"aa")


# Headers


def test_a_header_has_mxnets_names_and_bytes():
    header = IRHeader(9, 2.5, 7, 8)
    assert repr(header) == "HEADER(flag=9, label=2.5, id=7, id2=8)" and header._fields == ("flag", "label", "id", "id2")
    packed = recordio.pack(header, b"xyz")
    assert packed == struct.pack("<IfQQ", 0, 2.5, 7, 8) + b"xyz"
    assert recordio.unpack(packed) == (IRHeader(0, 2.5, 7, 8), b"xyz")
    assert recordio.pack((9, 2.5, 7, 8), b"xyz") == packed
    assert pickle.loads(pickle.dumps(header)) == header


LABELS = [(3, None), (True, None), (np.float32(2), None), ([1, 2, 3], [1, 2, 3]), ((4,), [4]), (np.array(5.0), [5])]
LABELS += [(np.arange(4).reshape(2, 2), [0, 1, 2, 3]), ([], None), ("3", [3])]


@pytest.mark.parametrize(("label", "many"), LABELS, ids=repr)
def test_labels_are_a_number_in_the_header_or_an_array_after_it(label, many):
    packed = recordio.pack(IRHeader(0, label, 1, 2), b"content")
    header, content = recordio.unpack(packed)
    assert content == b"content" and (header.id, header.id2) == (1, 2)
    if many is None:
        assert header.flag == 0 and header.label == (label or 0) and len(packed) == 24 + 7
    else:
        assert header.flag == len(many) and header.label.dtype == np.float32 and header.label.tolist() == many
        assert packed[4:8] == bytes(4) and len(packed) == 24 + 4 * len(many) + 7


def test_record_too_short_for_its_header_is_refused():
    packed = recordio.pack(IRHeader(0, [1, 2, 3], 0, 0), b"")
    for length in range(24):
        with pytest.raises(RecordError, match=f"a record of {length} bytes? is too short for an IRHeader"):
            recordio.unpack(packed[:length])
    for length in range(24, 36):
        with pytest.raises(ValueError, match=f"has 3 labels, but only {length - 24} bytes? follow"):
            recordio.unpack(packed[:length])
    assert recordio.unpack(packed)[1] == b""


def test_every_public_name_is_documented():
    assert sorted(recordio.__all__) == recordio.__all__
    for name in recordio.__all__:
        value = getattr(recordio, name)
        assert value.__doc__, name
        for member, function in vars(value).items() if isinstance(value, type) else ():
            if not member.startswith("_") and callable(function):
                assert function.__doc__, f"{name}.{member}"
