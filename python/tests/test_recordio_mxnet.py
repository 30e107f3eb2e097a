"""`ringreel.recordio` compared with `mxnet.recordio` of MXNet 1.9.1, which runs in a separate interpreter.

RINGREEL_MXNET_PYTHON names that interpreter; the default is that of .venv-mxnet, which scripts/mxnet.sh makes.
"""

import filecmp
import functools
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import segment_files

from ringreel import recordio

MAGIC = b"\x0a\x23\xd7\xce"
MIB = 1 << 20
ROOT = pathlib.Path(__file__).parents[2]


@functools.cache
def mxnet_python():
    """The interpreter that has MXNet. Skips the test if there is no such interpreter."""
    python = os.environ.get("RINGREEL_MXNET_PYTHON") or str(ROOT / ".venv-mxnet" / "bin" / "python")
    if not os.path.exists(python):
        return python, f"there is no {python}; scripts/mxnet.sh makes one"
    done = subprocess.run([python, "-c", "import mxnet.recordio"], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1:]
    return python, None if done.returncode == 0 else f"{python} cannot import mxnet: {last}"


@pytest.fixture(autouse=True)
def needed():
    reason = mxnet_python()[1]
    if reason is not None:
        pytest.skip(f"ringreel.recordio is NOT compared with MXNet: {reason}")


def by_mxnet(code, directory, *args):
    """Runs `code` with MXNet's `recordio`, and returns the JSON value of its last line of output."""
    return run(mxnet_python()[0], f"import mxnet.recordio as recordio\n{code}", directory, *args)


def by_ours(code, directory, *args):
    """Runs `code` with `ringreel.recordio`, and returns the same."""
    return run(sys.executable, f"import ringreel.recordio as recordio\n{code}", directory, *args)


def run(python, code, directory, *args):
    done = subprocess.run([python, "-c", code, *map(str, args)], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


DIGEST = """
import hashlib, json, random, struct, sys

def digest(records):
    "A hash of records and their lengths, and how many there were."
    state, count = hashlib.sha256(), 0
    for record in records:
        state.update(struct.pack("<Q", len(record)) + record)
        count += 1
    return [state.hexdigest(), count]
"""
exec(DIGEST)


def some_records(seed, count):
    """Returns records of 0 bytes to 1 MiB, most of them short, half of them with magic numbers at every alignment."""
    rng = random.Random(seed)
    for n in range(count):
        most = rng.choices((0, 64, 4096, 65536, MIB), (2, 60, 27, 10.4, 0.6))[0]
        size = MIB if most == MIB and n % 2 else rng.randrange(most + 1)
        kind = rng.randrange(6)
        if kind == 0:
            yield MAGIC * (size // 4)
        elif kind == 1:  # at one alignment
            yield (rng.randbytes(n % 4) + MAGIC * (size // 4 + 1))[:size]
        elif kind == 2:  # here and there
            gaps = [rng.randbytes(rng.randrange(9)) for _ in range(min(size // 8, 500))]
            yield (MAGIC.join(gaps) + rng.randbytes(size))[:size]
        else:
            yield rng.randbytes(size)


EXCHANGE = """
def each(file):
    while True:
        record = file.read()
        if record is None:
            return
        yield record

seed, count = int(sys.argv[1]), int(sys.argv[2])
read = digest(each(recordio.MXRecordIO("ours.rec", "r")))
file = recordio.MXIndexedRecordIO("ours.idx", "ours.rec", "r")
keys = random.Random(seed).sample(range(count), count)
by_key = digest(file.read_idx(key) for key in keys)
out = recordio.MXIndexedRecordIO("theirs.idx", "theirs.rec", "w")
file.reset()
for key, record in enumerate(each(file)):
    out.write_idx(key, record)
out.close()
print(json.dumps([read, by_key]))
"""


def test_ten_thousand_records_round_trip_both_ways(tmp_path):
    """Each module reads the other's records, in order and by key, and the files are equal."""
    seed, count = 20, 10_000
    lengths = []
    with recordio.MXIndexedRecordIO(tmp_path / "ours.idx", tmp_path / "ours.rec", "w") as out:
        for key, record in enumerate(some_records(seed, count)):
            out.write_idx(key, record)
            lengths.append(len(record))
    assert min(lengths) == 0 and max(lengths) == MIB and lengths.count(MIB) > 5
    keys = random.Random(seed).sample(range(count), count)
    ours = recordio.MXIndexedRecordIO(tmp_path / "ours.idx", tmp_path / "ours.rec", "r")
    want = [digest(some_records(seed, count)), digest(ours.read_idx(key) for key in keys)]  # noqa: F821
    assert by_mxnet(DIGEST + EXCHANGE, tmp_path, seed, count) == want

    theirs = recordio.MXIndexedRecordIO(tmp_path / "theirs.idx", tmp_path / "theirs.rec", "r")
    assert all(theirs.read() == record for record in some_records(seed, count)) and theirs.read() is None
    assert digest(theirs.read_idx(key) for key in keys) == want[1]  # noqa: F821
    assert theirs.keys == list(range(count)) and theirs.idx == ours.idx
    for name in ("idx", "rec"):
        assert filecmp.cmp(tmp_path / f"ours.{name}", tmp_path / f"theirs.{name}", shallow=False), name


def test_payloads_of_magic_numbers_are_framed_alike(tmp_path):
    code = f"""if True:
        import json
        out = recordio.MXRecordIO({{!r}}, "w")
        for lead in range(9):
            for magics in range(4):
                for tail in range(9):
                    out.write(b"\\x07" * lead + {MAGIC!r} * magics + b"\\x09" * tail)
        out.close()
        print(json.dumps(None))
    """
    by_ours(code.format("ours.rec"), tmp_path)
    by_mxnet(code.format("theirs.rec"), tmp_path)
    assert (tmp_path / "ours.rec").read_bytes() == (tmp_path / "theirs.rec").read_bytes()


HEADERS = """
import json, sys
import numpy as np

labels = [0, 3, -2.5, 1e30, True, np.float32(0.1), np.float64(0.1), np.int64(7), [1, 2, 3], (0.1,), [], [0] * 1000,
          np.array(5.0), np.arange(6).reshape(2, 3), np.array([float("nan"), float("inf")]), np.bool_(True)]
found = []
for label in labels:
    for flag, id, id2 in [(0, 0, 0), (9, 2**64 - 1, 2**63)]:
        packed = recordio.pack(recordio.IRHeader(flag, label, id, id2), b"content")
        header, content = recordio.unpack(packed)
        many = header.flag > 0
        label_again = header.label.tobytes().hex() if many else repr(header.label)
        dtype = str(header.label.dtype) if many else type(header.label).__name__
        found.append([packed.hex(), header.flag, label_again, dtype, header.id, header.id2, content.decode(),
                      type(header).__name__, list(header._fields)])
found.append(recordio.pack((1, 2, 3, 4), b"").hex())
print(json.dumps(found))
"""


def test_headers_are_packed_and_unpacked_alike(tmp_path):
    theirs = by_mxnet(HEADERS, tmp_path)
    assert by_ours(HEADERS, tmp_path) == theirs
    for packed, *rest in theirs[:-1]:
        header, content = recordio.unpack(bytes.fromhex(packed))
        assert [header.flag, header.id, header.id2, content.decode()] == [rest[0], *rest[3:6]]


BEHAVIOUR = """
import json, pickle

said = []

def say(*values):
    said.append([value.decode() if isinstance(value, bytes) else value for value in values])

def state(file):
    say(file.flag, file.is_open, file.writable, file.pid is None)

out = recordio.MXIndexedRecordIO("b.idx", "b.rec", "w")
state(out)
for n in range(6):
    say(out.tell())
    out.write_idx(n, b"record %d" % (10 ** n))
out.write_idx("17", b"by text")
out.write_idx(3, b"again")
out.write_idx(-1, b"")
say(out.tell(), out.keys, sorted(out.idx.items()), out.idx_path, out.key_type.__name__, out.fidx.name, out.fidx.closed)
out.close()
out.close()
state(out)
say(open("b.idx").read(), open("b.rec", "rb").read().hex(), out.fidx.closed)

file = recordio.MXRecordIO("b.rec", "r")
state(file)
say(file.read(), file.read())
file.reset()
say(file.read())
file.open()
say(file.read())
copied = pickle.loads(pickle.dumps(file))
say(copied.read(), copied.read())
state(copied)
file.close()
state(file)
again = pickle.loads(pickle.dumps(file))
state(again)
file.open()
say(*[file.read() for _ in range(12)])

file = recordio.MXIndexedRecordIO("b.idx", "b.rec", "r")
say(file.keys, sorted(file.idx.items()), file.fidx.name, file.fidx.closed)
say(file.read_idx(4), file.read(), file.read_idx(3), file.read(), file.read_idx(0), file.read())
file.seek(2)
say(file.read(), file.read())
copied = pickle.loads(pickle.dumps(file))
say(copied.keys, sorted(copied.idx.items()), copied.key_type.__name__, copied.read(), copied.read_idx(5), copied.read())
file.close()
say(file.fidx.closed, file.keys)
say(file.read_idx(1), file.is_open)
for use in (lambda: file.read_idx(99), lambda: file.seek("x"), lambda: recordio.MXRecordIO("b.rec", "a")):
    try:
        use()
    except (KeyError, ValueError) as error:
        say(type(error).__name__)
texts = recordio.MXIndexedRecordIO("b.idx", "b.rec", "r", key_type=str)
say(texts.keys, texts.read_idx("17"), pickle.loads(pickle.dumps(texts)).read_idx("-1"))
print(json.dumps(said))
"""


def test_same_program_prints_the_same(tmp_path):
    assert by_ours(BEHAVIOUR, tmp_path) == by_mxnet(BEHAVIOUR, tmp_path)


DIFFERENCES = """
import json, os, pickle, struct

def whole(flag, payload):
    return struct.pack("<II", 0xCED7230A, flag << 29 | len(payload)) + payload + bytes(-len(payload) % 4)

def read(data):
    with open("d.rec", "wb") as out:
        out.write(data)
    try:
        return [record.decode("latin-1") for record in iter(recordio.MXRecordIO("d.rec", "r").read, None)]
    except RuntimeError:
        return "refused"

said = {
    "the end of the file within a record": read(whole(0, b"abcd") + whole(1, b"abcd")),
    "a part in the wrong place": read(whole(1, b"abcd") + whole(0, b"efgh")),
    "a flag above 3": read(whole(5, b"abcd") + whole(0, b"efgh")),
    "a magic that was not escaped": read(whole(0, b"abcd\\x0a\\x23\\xd7\\xce")),
    "padding that is not zero": read(whole(0, b"a")[:-1] + b"x"),
}

out = recordio.MXIndexedRecordIO("d.idx", "d.rec", "w")
out.write_idx(0, b"zero")
out.write_idx(1, b"one")
out.close()
file = recordio.MXIndexedRecordIO("d.idx", "d.rec", "r")
while file.read() is not None:
    pass
said["a record by key, after the end"] = repr(file.read_idx(0))
file.reset()
pickle.dumps(file)
said["open after it was pickled"] = file.is_open

def fork(work):
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(begin, repr(work()).encode())
        except Exception as error:
            os.write(begin, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(end, 1000).decode()

file.reset()
said["reading on in a forked child"] = fork(file.read)
out = recordio.MXIndexedRecordIO("f.idx", "f.rec", "w")
out.write_idx(0, b"once")
fork(out.close)
out.close()
said["records, after a forked child closed the writer too"] = os.path.getsize("f.rec") // 12
said["lines of its index"] = len(open("f.idx").readlines())

out = recordio.MXRecordIO("w.rec", "w")
out.write(b"precious")
try:
    copied = pickle.loads(pickle.dumps(out))
    said["a writer that is pickled"] = "emptied" if os.path.getsize("w.rec") == 0 else "kept"
except RuntimeError:
    said["a writer that is pickled"] = "refused"
print(json.dumps(said))
"""


def test_differences_from_mxnet_are_intended(tmp_path):
    merged = "abcd\x0a\x23\xd7\xceefgh"
    assert by_mxnet(DIFFERENCES, tmp_path) == {
        "the end of the file within a record": ["abcd"],
        "a part in the wrong place": [merged],
        "a flag above 3": [merged],
        "a magic that was not escaped": ["abcd\x0a\x23\xd7\xce"],
        "padding that is not zero": ["a"],
        "a record by key, after the end": "None",
        "open after it was pickled": False,
        "reading on in a forked child": "RuntimeError",
        "records, after a forked child closed the writer too": 2,
        "lines of its index": 2,
        "a writer that is pickled": "emptied",
    }
    assert by_ours(DIFFERENCES, tmp_path) == {
        "the end of the file within a record": "refused",
        "a part in the wrong place": "refused",
        "a flag above 3": "refused",
        "a magic that was not escaped": "refused",
        "padding that is not zero": "refused",
        "a record by key, after the end": "b'zero'",
        "open after it was pickled": True,
        "reading on in a forked child": "b'zero'",
        "records, after a forked child closed the writer too": 1,
        "lines of its index": 1,
        "a writer that is pickled": "refused",
    }


PICKLES = """
import json, pickle, sys

class Renamed(pickle.Unpickler):
    def find_class(self, module, name):
        return getattr(recordio, name) if module.endswith(".recordio") else super().find_class(module, name)

out = recordio.MXIndexedRecordIO("p.idx", "p.rec", "w")
for n in range(4):
    out.write_idx(n, b"%d" % n)
out.close()
files = [recordio.MXRecordIO("p.rec", "r"), recordio.MXIndexedRecordIO("p.idx", "p.rec", "r")]
for file in files:
    file.read()
with open(sys.argv[1], "wb") as to:
    pickle.dump([*files, out], to)
if sys.argv[2]:
    with open(sys.argv[2], "rb") as of:
        plain, indexed, closed = Renamed(of).load()
    print(json.dumps([plain.read().decode(), plain.read().decode(), indexed.read_idx(3).decode(), indexed.keys,
                      closed.is_open, closed.keys]))
else:
    print(json.dumps(None))
"""


def test_pickles_of_either_are_read_by_the_other(tmp_path):
    by_mxnet(PICKLES, tmp_path, "theirs", "")
    want = ["0", "1", "3", [0, 1, 2, 3], False, [0, 1, 2, 3]]
    assert by_ours(PICKLES, tmp_path, "ours", "theirs") == want
    assert by_mxnet(PICKLES, tmp_path, "theirs", "ours") == want


def test_mxnet_reads_each_tensor_of_a_segment_as_a_record(filled, tmp_path):
    rng = np.random.default_rng(0)
    samples = []
    for n in range(6):
        label = rng.integers(0, 255, 5000, np.uint8)
        label[n : n + 400] = np.frombuffer(MAGIC * 100, np.uint8)
        samples.append({"data": rng.random((20, 30, 7), np.float32), "label": label})
    ring = filled(samples, SEGMENT_SAMPLES=2)
    files = segment_files(ring)
    assert len(files) == 3
    code = """if True:
        import hashlib, json, sys
        found = []
        for path in sys.argv[1:]:
            file = recordio.MXRecordIO(path, "r")
            for record in iter(file.read, None):
                found.append(hashlib.sha256(record).hexdigest())
        print(json.dumps(found))
    """
    theirs, ours = by_mxnet(code, tmp_path, *files), by_ours(code, tmp_path, *files)
    tensors = [hashlib.sha256(part.tobytes()).hexdigest() for sample in samples for part in sample.values()]
    assert [record for record in theirs if record in tensors] == tensors and theirs == ours
    # header, footer and trailer per file; head, tensors and padding per sample
    assert len(theirs) >= 3 * 3 + 6 * 3
