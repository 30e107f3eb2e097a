"""`ringreel pack` compared with `im2rec.py` of MXNet 1.9.1: equal lists and records; of re-encoded images, equal
pixels (PNG) or nearly equal ones (JPEG).

im2rec runs in the separate interpreter of test_recordio_mxnet.py, with OpenCV.
"""

import functools
import io
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from test_recordio_mxnet import mxnet_python

from ringreel import recordio

Image = pytest.importorskip("PIL.Image", reason="SKIPPED: ringreel pack is NOT compared with im2rec: no Pillow")


@functools.cache
def im2rec():
    """Returns the path of im2rec.py, and why it is not available."""
    python, reason = mxnet_python()
    if reason is not None:
        return None, reason
    code = "import cv2, mxnet, os; print(os.path.join(os.path.dirname(mxnet.__file__), 'tools', 'im2rec.py'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode != 0:
        return None, f"{python}: {done.stderr.strip().splitlines()[-1:]}"
    path = done.stdout.strip()
    return path, None if pathlib.Path(path).exists() else f"there is no {path}"


@pytest.fixture(autouse=True)
def needed():
    reason = im2rec()[1]
    if reason is not None:
        pytest.skip(f"ringreel pack is NOT compared with im2rec: {reason}")


def theirs(directory, *args):
    """Runs im2rec.py."""
    command = [mxnet_python()[0], im2rec()[0], *args]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def ours(directory, *args, status=0):
    """Runs ringreel pack."""
    command = [sys.executable, "-m", "ringreel", "pack", *args]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done


def gradient(height, width, channels):
    y, x = np.mgrid[:height, :width]
    planes = [x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) % 256, (x * y) % 256]
    return np.stack(planes[:channels], -1).astype(np.uint8)


def noise(height, width, channels, seed):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(path, **options)


PNGS = {
    "gradient.png": gradient(61, 83, 3),
    "noise.png": noise(40, 31, 3, 1),
    "gray.png": gradient(33, 57, 1),
    "rgba.png": noise(37, 52, 4, 2),
    "half.png": noise(64, 48, 3, 3),  # with --resize 24 both sides become half as long
    "tall.png": noise(60, 7, 3, 4),
    "one.png": noise(1, 1, 3, 5),
    "AN EMPTY ü.PNG": np.zeros((20, 30, 3), np.uint8),
}
JPEGS = {"photo.jpg": gradient(120, 77, 3), "Ä 1.JPG": noise(16, 24, 3, 6), "gray.jpeg": gradient(45, 64, 1)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with images in four directories, one of them invalid, and other files."""
    root = tmp_path_factory.mktemp("photos")
    for directory in (".", "b", "a/x", "Ö z"):
        for name, pixels in PNGS.items():
            save(root / directory / name, pixels)
        for name, pixels in JPEGS.items():
            save(root / directory / name, pixels, quality=92)
    turned = Image.fromarray(gradient(30, 50, 3))
    exif = turned.getexif()
    exif[0x112] = 6
    turned.save(root / "turned.jpg", exif=exif)
    (root / "b" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image at all")
    (root / "b" / "notes.txt").write_text("no image")
    (root / "a" / "no end").write_bytes(b"")
    (root / ".png").write_bytes(b"")
    return root


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--no-shuffle",
        "--recursive --no-shuffle",
        "--recursive --chunks 3 --train-ratio 0.6 --test-ratio 0.25",
        "--recursive --train-ratio 0.7 --chunks 2 --no-shuffle",
    ],
)
def test_lists_are_equal_byte_for_byte(tmp_path, photos, options):
    for run, name in ((theirs, "theirs"), (ours, "ours")):
        (tmp_path / name).mkdir()
        run(tmp_path, "--list", *options.split(), f"{name}/list", str(photos))
    made = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    assert made and made == {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()}


def packed(tmp_path, photos, *options, status=1, edit=None):
    """Returns the records of both programs by key, and the paths of the list."""
    ours(tmp_path, "--list", "--recursive", "theirs", str(photos))
    text = (tmp_path / "theirs.lst").read_text()
    text = edit(text) if edit else text
    (tmp_path / "theirs.lst").write_text(text)
    (tmp_path / "ours.lst").write_text(text)
    theirs(tmp_path, *options, "--num-thread", "2", "theirs", str(photos))
    ours(tmp_path, *options, "--num-thread", "2", "ours", str(photos), status=status)
    both = []
    for name in ("theirs", "ours"):
        file = recordio.MXIndexedRecordIO(tmp_path / f"{name}.idx", tmp_path / f"{name}.rec", "r")
        both.append({key: file.read_idx(key) for key in file.keys})
        file.close()
    assert list(both[0]) == list(both[1])
    return *both, {int(line.split("\t")[0]): line.split("\t")[-1] for line in text.splitlines()}


def test_records_of_unchanged_files_are_equal_byte_for_byte(tmp_path, photos):
    packed(tmp_path, photos, "--pass-through", status=0)
    for end in ("rec", "idx"):
        assert (tmp_path / f"ours.{end}").read_bytes() == (tmp_path / f"theirs.{end}").read_bytes()


def more_labels(text):
    """A list in which each second image has three labels."""
    lines = text.splitlines()
    lines[::2] = [line.replace("\t", "\t-2.5\t1e3\t", 1) for line in lines[::2]]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("options", [[], ["--pack-label"]])
def test_labels_are_equal(tmp_path, photos, options):
    packed(tmp_path, photos, "--pass-through", *options, status=0, edit=more_labels)
    assert (tmp_path / "ours.rec").read_bytes() == (tmp_path / "theirs.rec").read_bytes()


def differences(tmp_path, photos, *options):
    """Returns the largest and the mean difference of a channel per image. Checks headers, sizes and channels."""
    theirs, ours, paths = packed(tmp_path, photos, *options)
    assert "b/broken.jpg" not in {paths[key] for key in ours}
    found = {}
    for key in theirs:
        (header, image), (our_header, our_image) = recordio.unpack(theirs[key]), recordio.unpack(ours[key])
        assert str(header) == str(our_header)
        image, our_image = Image.open(io.BytesIO(image)), Image.open(io.BytesIO(our_image))
        assert (image.format, image.mode, image.size) == (our_image.format, our_image.mode, our_image.size)
        difference = np.abs(np.asarray(image).astype(int) - np.asarray(our_image))
        found[paths[key]] = (difference.max(), difference.mean())
    print(options, max(most for most, _ in found.values()), max(mean for _, mean in found.values()))
    return found


def is_png(path):
    return path.lower().endswith(".png")


@pytest.mark.parametrize(
    "options",
    ["", "--color 0", "--color -1 --resize 150", "--resize 24", "--resize 31 --center-crop"],
)
def test_pixels_of_png_images_are_equal(tmp_path, photos, options):
    """JPEG images are decoded by different decoders; libjpeg-turbo upsamples colours differently."""
    found = differences(tmp_path, photos, "--encoding", ".png", "--quality", "1", *options.split())
    assert {path: most for path, (most, _) in found.items() if is_png(path) and most > 0} == {}
    assert max(mean for _, mean in found.values()) < 1


@pytest.mark.parametrize("options", ["", "--resize 40 --color 0", "--quality 80 --center-crop"])
def test_pixels_of_encoded_jpegs_differ_little(tmp_path, photos, options):
    found = differences(tmp_path, photos, *options.split())
    smooth = [mean for path, (_, mean) in found.items() if "gra" in path or "photo" in path or "EMPTY" in path]
    assert max(smooth) < 1
    assert max(mean for _, mean in found.values()) < 4  # noise, whose colours have half the resolution
