"""Images in file formats, as ``ringreel.recordio`` packs them: by OpenCV if installed, or by Pillow.

Arrays have OpenCV's layout: rows, columns and, except for grey images, channels in the order blue,
green, red, alpha.
"""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np

from ringreel._errors import RingreelError

_JPEG = (".jpg", ".jpeg")
_PNG = (".png",)
# The variant of OpenCV without windows suffices.
_INSTALL = "install OpenCV (pip install opencv-python-headless)"


def decode(data: bytes, iscolor: int) -> np.ndarray[Any, Any] | None:
    """Returns the image in ``data``, or None if it is not one. See ``ringreel.recordio.unpack_img``."""
    cv2 = _opencv()
    if cv2 is None:
        return _decode_by_pillow(data, iscolor)
    return cv2.imdecode(np.frombuffer(data, np.uint8), iscolor) if len(data) else None


def encode(img: Any, quality: int, img_fmt: str) -> bytes:
    """Returns the file of an image. See ``ringreel.recordio.pack_img``."""
    cv2 = _opencv()
    if cv2 is None:
        return _encode_by_pillow(np.asarray(img), quality, img_fmt.lower())
    setting: list[int] = []
    if img_fmt.lower() in _JPEG:
        setting = [cv2.IMWRITE_JPEG_QUALITY, quality]
    elif img_fmt.lower() in _PNG:
        setting = [cv2.IMWRITE_PNG_COMPRESSION, quality]
    done, data = cv2.imencode(img_fmt, img, setting)
    if not done:
        raise RingreelError(f"OpenCV could not encode this image as {img_fmt}")
    return bytes(data)


@functools.cache
def _opencv() -> Any:
    """Returns the module cv2, or None if only Pillow is installed."""
    try:
        import cv2

        return cv2
    except ImportError as opencv:
        try:
            import PIL.Image  # noqa: F401
        except ImportError:
            raise ImportError(f"images need OpenCV or Pillow: {_INSTALL}, or Pillow (pip install pillow)") from opencv
        return None


def _decode_by_pillow(data: bytes, iscolor: int) -> np.ndarray[Any, Any] | None:
    from PIL import Image, ImageOps

    if iscolor not in (-1, 0, 1):
        raise RingreelError(f"iscolor={iscolor}: without OpenCV only -1, 0 and 1 are supported: {_INSTALL}")
    try:
        image: Any = Image.open(io.BytesIO(data))
        if iscolor == 0 and image.format == "JPEG":
            image.draft("L", image.size)  # the file's luminance channel, which OpenCV also returns
        image.load()
    except (OSError, SyntaxError, ValueError):
        return None
    if iscolor == -1:
        return _as_stored(image, data)
    # OpenCV applies the EXIF orientation except with -1.
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if iscolor == 0:
        return np.array(image.convert("RGB" if image.mode in ("P", "CMYK") else image.mode).convert("L"))
    return _from_rgb(np.asarray(image.convert("RGB")))


def _as_stored(image: Any, data: bytes) -> np.ndarray[Any, Any]:
    """Returns everything that the file has. Pillow drops the lower 8 bits of a 16-bit colour PNG."""
    if image.format == "PNG" and data[24] == 16 and data[25] != 0:
        raise RingreelError(f"Pillow cannot decode a colour PNG with 16 bits: {_INSTALL}")
    if image.mode.startswith("I"):
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("1", "L"):
        return np.array(image.convert("L"))
    seen_through = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    return _from_rgb(np.asarray(image.convert("RGBA" if seen_through else "RGB")))


def _from_rgb(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the array with the channels red and blue exchanged."""
    order = [2, 1, 0, 3][: array.shape[2]]
    return np.ascontiguousarray(array[:, :, order])


def _encode_by_pillow(array: np.ndarray[Any, Any], quality: int, img_fmt: str) -> bytes:
    from PIL import Image

    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    channels = array.shape[2] if array.ndim == 3 else 1
    deep = array.dtype == np.uint16 and channels == 1 and img_fmt in _PNG
    shaped = array.ndim in (2, 3) and channels in (1, 3, 4) and array.size > 0
    if not shaped or not (deep or array.dtype == np.uint8):
        raise RingreelError(
            f"Pillow cannot encode an array of {array.dtype} and shape {array.shape} as {img_fmt}: "
            f"pass uint8, rows x columns (x 3 or 4 channels); or {_INSTALL}"
        )
    if channels > 1:
        array = _from_rgb(array[:, :, :3] if img_fmt in _JPEG else array)
    image, out = Image.fromarray(array), io.BytesIO()
    if img_fmt in _JPEG:
        image.save(out, "JPEG", quality=min(max(quality, 1), 100))
    elif img_fmt in _PNG:
        image.save(out, "PNG", compress_level=min(max(quality, 0), 9))
    else:
        raise RingreelError(f"without OpenCV an image can be encoded as .jpg or .png, not as {img_fmt}: {_INSTALL}")
    return out.getvalue()
