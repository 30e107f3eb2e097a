"""`ringreel cat` writes NumPy, NIfTI-1 and PNG files whose readers get exactly the original arrays.

RINGREEL_COMMAND names a command to use instead of the package's.
"""

import os
import shlex
import subprocess
import sys
import zipfile

import numpy as np
import pytest

COMMAND = shlex.split(os.environ.get("RINGREEL_COMMAND", "")) or [sys.executable, "-m", "ringreel"]

NUMBERS = np.random.default_rng(0)


def cat(ring, *args, code=0):
    done = subprocess.run([*COMMAND, "cat", str(ring), *map(str, args)], capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout


def parts():
    """Returns arrays of each element type in many shapes, the same in each run."""
    numbers = np.random.default_rng(1)
    plain = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
    arrays = {f"plain_{np.dtype(text).name}": numbers.integers(0, 2, (3, 4, 5)).astype(text) for text in plain}
    arrays["big_endian"] = numbers.standard_normal((2, 3)).astype(">f4")
    arrays["not_a_number"] = np.array([np.nan, np.inf, -np.inf, -0.0])
    arrays["time"] = np.array(["2026-01-01", "NaT"], "M8[ns]")
    arrays["span"] = np.array([-5, 7], "m8[us]")
    arrays["text"] = np.array([["one", "zwölf"]])
    arrays["bytes"] = np.array([b"one", b"two\0x"])
    arrays["record"] = np.array(
        [(1, 2.5, [1, 2]), (3, np.nan, [3, 4])], [("ä", "<i4"), ("y", "<f8"), ("z", "u1", (2,))]
    )
    arrays["chinese"] = np.zeros(2, [("長", "<f4")])
    arrays["padded"] = np.zeros(2, np.dtype([("a", "u1"), ("b", "<f8")], align=True))
    arrays["scalar"] = np.array(7.5, "f4")
    arrays["empty"] = np.zeros((0, 3), "i2")
    arrays["no_bytes"] = np.zeros(3, "S0")
    return arrays


@pytest.fixture
def ring(filled, tmp_path):
    filled([parts()])
    return tmp_path / "ring"


def same(found, want):
    """Checks that both have the same type (except byte order), shape and bits."""
    want = want.astype(want.dtype.newbyteorder("<"), copy=False)
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    # The bytes between the fields of a padded type are not part of its value.
    for field in want.dtype.names or [...]:
        assert found[field].tobytes() == want[field].tobytes()


def test_npy_keeps_every_element_type(ring, tmp_path):
    for name, want in parts().items():
        cat(ring, "--part", name, "-o", tmp_path / f"{name}.npy")
        same(np.load(tmp_path / f"{name}.npy"), want)


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_npy_file_equals_numpys_except_for_header_padding(ring, tmp_path):
    whole = {name: want for name, want in parts().items() if name != "padded"}
    for name, want in whole.items():
        np.save(tmp_path / "want.npy", want.astype(want.dtype.newbyteorder("<"), copy=False))
        found, written = cat(ring, "--part", name, "--as", "npy"), (tmp_path / "want.npy").read_bytes()
        # Version and literal. NumPy pads the header for a longer first axis.
        (head, elements), (its_head, its_elements) = found.split(b" \n", 1), written.split(b" \n", 1)
        assert (found[:8], elements) == (written[:8], its_elements), name
        assert head[10:].strip(b"\0 ") == its_head[10:].strip(b"\0 ")
        assert (len(found) - len(elements)) % 64 == 0


def test_npz_holds_the_whole_sample(ring, tmp_path):
    cat(ring, "-o", tmp_path / "sample.npz")
    assert zipfile.ZipFile(tmp_path / "sample.npz").testzip() is None
    with np.load(tmp_path / "sample.npz") as found:
        assert sorted(found.files) == sorted(parts())
        for name, want in parts().items():
            same(found[name], want)


def test_bfloat16_keeps_its_bits(filled, tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes", reason="SKIPPED: bfloat16: ml_dtypes is not installed").bfloat16
    want = NUMBERS.standard_normal((4, 3)).astype(bfloat16)
    filled([{"data": want}])
    cat(tmp_path / "ring", "-o", tmp_path / "x.npy")
    assert (np.load(tmp_path / "x.npy").view(bfloat16) == want).all()


def test_nibabel_reads_the_image_with_its_axes_in_order(filled, tmp_path):
    nibabel = pytest.importorskip("nibabel", reason="SKIPPED: NIfTI-1: nibabel is not installed")
    plain = [f"{kind}{size}" for kind, sizes in {"u": "1248", "i": "1248", "f": "48"}.items() for size in sizes]
    shapes = [(5,), (4, 3), (2, 3, 4), (2, 3, 4, 5), (2, 1, 3, 1, 2, 1, 2)]
    sample = {text: NUMBERS.integers(0, 100, shapes[n % 5]).astype(text) for n, text in enumerate(plain)}
    sample |= {text: (NUMBERS.standard_normal((3, 4, 2)) * (1 + 2j)).astype(text) for text in ["c8", "c16"]}
    sample |= {"half": NUMBERS.standard_normal((3, 2)).astype("f2"), "mask": NUMBERS.integers(0, 2, (3, 4, 5)) > 0}
    filled([sample])
    becomes = {"half": "f4", "mask": "u1"}
    for name, want in sample.items():
        cat(tmp_path / "ring", "--part", name, "-o", tmp_path / f"{name}.nii")
        image = nibabel.load(tmp_path / f"{name}.nii")
        found = np.asanyarray(image.dataobj)
        assert found.dtype == np.dtype(becomes.get(name, want.dtype)), name
        assert found.shape == want.shape and (found == want).all(), name
        assert (image.affine == np.eye(4)).all()
        assert image.header["descrip"].item().decode().endswith(f" {name}")


def test_record_of_a_foreign_file_is_unchanged(tmp_path):
    payload = bytes(range(256))
    (tmp_path / "a.rec").write_bytes(b"\x0a\x23\xd7\xce\x00\x01\x00\x00" + payload)
    assert cat(tmp_path / "a.rec") == payload
    cat(tmp_path / "a.rec", "-n", 1, code=2)


def test_pillow_reads_the_image(filled, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="SKIPPED: PNG: pillow is not installed")
    shapes = {"gray": (5, 7), "rgb": (5, 7, 3)}
    sample = {name: NUMBERS.integers(0, 256, shape).astype("u1") for name, shape in shapes.items()}
    filled([sample])
    for name, want in sample.items():
        cat(tmp_path / "ring", "--part", name, "-o", tmp_path / f"{name}.png")
        assert (np.asarray(image.open(tmp_path / f"{name}.png")) == want).all()
