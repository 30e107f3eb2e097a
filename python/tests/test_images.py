"""Images that `ringreel.recordio` packs, by OpenCV and by Pillow."""

import io
import subprocess
import sys

import numpy as np
import pytest
from conftest import zip_equal

from ringreel import RingreelError, _images, recordio
from ringreel.recordio import IRHeader


def has(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


OPENCV = pytest.param("cv2", marks=pytest.mark.skipif(not has("cv2"), reason="no OpenCV: its images are NOT tested"))


PILLOW = pytest.param("PIL", marks=pytest.mark.skipif(not has("PIL"), reason="no Pillow: its images are NOT tested"))


@pytest.fixture
def without(monkeypatch):
    """Hides modules, as if they were not installed."""

    def hide(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)
        _images._opencv.cache_clear()

    yield hide
    monkeypatch.undo()
    _images._opencv.cache_clear()


@pytest.fixture(params=[OPENCV, PILLOW])
def library(request, without):
    """Runs the test with OpenCV and with Pillow."""
    without(*(["cv2"] if request.param == "PIL" else []))
    return request.param


def picture(channels=3, size=(20, 30)):
    """Returns a smooth image that JPEG preserves. Its channels differ, so that a wrong order is noticed."""
    y, x = np.mgrid[: size[0], : size[1]] / np.array(size).reshape(2, 1, 1)
    planes = [255 * y, 255 * x, 255 * (1 - y), 255 * (1 - x)][:channels]
    return np.stack(planes, 2).astype(np.uint8) if channels > 1 else planes[0].astype(np.uint8)


def test_png_round_trips_bit_for_bit(library):
    for channels in (1, 3, 4):
        image = picture(channels)
        packed = recordio.pack_img(IRHeader(0, [1, 2], 3, 0), image, quality=3, img_fmt=".PNG")
        header, back = recordio.unpack_img(packed)
        assert header.label.tolist() == [1, 2] and header.id == 3
        assert back.dtype == np.uint8 and np.array_equal(back, image) and back.flags.writeable
        colour = recordio.unpack_img(packed, 1)[1]
        assert np.array_equal(colour, np.stack([image] * 3, 2) if channels == 1 else image[:, :, :3])
        grey = recordio.unpack_img(packed, iscolor=0)[1]
        blue, green, red = np.moveaxis(colour.astype(float), 2, 0)
        assert grey.shape == image.shape[:2] and np.abs(grey - (0.114 * blue + 0.587 * green + 0.299 * red)).max() < 1.5


def test_jpeg_error_is_small_and_falls_with_quality(library):
    sizes = []
    for quality in (20, 95):
        packed = recordio.pack_img(IRHeader(0, 0, 0, 0), picture(), quality)
        back = recordio.unpack_img(packed)[1]
        assert packed[24:26] == b"\xff\xd8" and back.shape == (20, 30, 3)
        assert np.abs(back.astype(int) - picture()).max() < (15 if quality == 95 else 50)
        sizes.append(len(packed))
    assert sizes[0] < sizes[1] and recordio.pack_img(IRHeader(0, 0, 0, 0), picture()) == packed
    assert recordio.unpack_img(recordio.pack_img(IRHeader(0, 0, 0, 0), picture(1)))[1].shape == (20, 30)


def test_unchanged_grey_image_keeps_16_bits(library):
    image = (picture(1).astype(np.uint16) << 8) | 3
    packed = recordio.pack_img(IRHeader(0, 0, 0, 0), image, 9, ".png")
    back = recordio.unpack_img(packed, -1)[1]
    assert back.dtype == np.uint16 and np.array_equal(back, image)
    assert np.array_equal(recordio.unpack_img(packed, 0)[1], image >> 8)
    assert np.array_equal(recordio.unpack_img(packed, 1)[1], np.stack([image >> 8] * 3, 2))


def test_bytes_that_are_not_an_image_decode_to_none(library):
    for content in (b"", b"no image", b"\xff\xd8\xff"):
        header, image = recordio.unpack_img(recordio.pack(IRHeader(0, 5, 6, 0), content))
        assert image is None and header.label == 5


@pytest.mark.skipif(not (has("cv2") and has("PIL")), reason="OpenCV or Pillow is missing: they are NOT compared")
def test_pillow_and_opencv_decode_alike(without):
    from PIL import Image

    def saved(image, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        return recordio.pack(IRHeader(0, 0, 0, 0), out.getvalue())

    rgb = Image.fromarray(picture())
    turned = Image.Exif()
    turned[0x0112] = 6
    files = {
        "jpeg": saved(rgb, "JPEG", quality=90),
        "noisy jpeg": saved(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)), "JPEG"),
        "grey jpeg": saved(rgb.convert("L"), "JPEG"),
        "turned jpeg": saved(rgb, "JPEG", exif=turned),
        "png": saved(rgb, "PNG"),
        "palette": saved(rgb.quantize(16), "PNG"),
        "transparent palette": saved(rgb.quantize(16), "PNG", transparency=3),
        "grey": saved(rgb.convert("L"), "PNG"),
        "grey with alpha": saved(rgb.convert("LA"), "PNG"),
        "alpha": saved(Image.fromarray(picture(4)), "PNG"),
        "one bit": saved(rgb.convert("1"), "PNG"),
        "sixteen bits": saved(Image.fromarray(picture(1).astype(np.uint16) * 257), "PNG"),
        "bmp": saved(rgb, "BMP"),
        "cmyk": saved(rgb.convert("CMYK"), "JPEG", quality=90),
    }
    assert recordio.unpack_img(files["png"], 2)[1].shape == (20, 30)  # only OpenCV supports this, so OpenCV was used

    def read():
        return [
            {name: recordio.unpack_img(packed, iscolor)[1] for name, packed in files.items()} for iscolor in (-1, 0, 1)
        ]

    by_opencv = read()
    without("cv2")
    for iscolor, theirs, ours in zip_equal((-1, 0, 1), by_opencv, read()):
        for name, image in theirs.items():
            coloured_jpeg = "jpeg" in name and iscolor != 0  # the two libraries can round differently
            most = 3 if name == "cmyk" else 2 if coloured_jpeg else 1 if iscolor == 0 and "jpeg" not in name else 0
            assert (ours[name].shape, ours[name].dtype) == (image.shape, image.dtype), (name, iscolor)
            assert np.abs(ours[name].astype(int) - image).max() <= most, (name, iscolor)


@pytest.mark.skipif(not has("PIL"), reason="no Pillow: its refusals are NOT tested")
def test_images_that_pillow_cannot_handle_are_refused(without):
    without("cv2")
    header = IRHeader(0, 0, 0, 0)
    packed = recordio.pack_img(header, picture(), img_fmt=".png")
    with pytest.raises(RingreelError, match="iscolor=2: without OpenCV only -1, 0 and 1"):
        recordio.unpack_img(packed, 2)
    with pytest.raises(RingreelError, match="not as .webp: install OpenCV"):
        recordio.pack_img(header, picture(), img_fmt=".webp")
    for image in (
        picture().astype(float),
        picture()[:, :, :2],
        picture(1)[0],
        picture()[:0],
        picture().astype(np.uint16),
    ):
        with pytest.raises(RingreelError, match="Pillow cannot encode an array of"):
            recordio.pack_img(header, image, img_fmt=".png")


def test_import_error_says_what_to_install(without):
    without("cv2", "PIL", "PIL.Image")
    for use in (lambda: recordio.pack_img((0, 0, 0, 0), picture()), lambda: recordio.unpack_img(bytes(30))):
        with pytest.raises(ImportError, match="pip install opencv-python-headless.*pip install pillow"):
            use()


def test_module_imports_neither_opencv_nor_pillow(tmp_path):
    code = "import sys, ringreel.recordio; print({'cv2', 'PIL', 'mxnet'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
