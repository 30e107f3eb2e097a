"""`.rec` files of pictures, for the tests of `ringreel.image`."""

import io

import numpy as np
from PIL import Image

from ringreel import recordio

SIZES = [(40, 52), (48, 37), (36, 36), (75, 50), (33, 64)]  # rows, columns


def picture(seed, rows, columns, channels=3):
    """Smooth structures and sharp edges."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (5, 5, channels), np.uint8)
    smooth = Image.fromarray(coarse.squeeze()).resize((columns, rows), Image.Resampling.BICUBIC)
    pixels = np.array(smooth).reshape(rows, columns, channels)
    for _ in range(3):
        y, x = rng.integers(0, rows - 8), rng.integers(0, columns - 8)
        pixels[y : y + 6, x : x + 7] = rng.integers(0, 256, channels)
    return pixels


def encoded(pixels, kind="png", **options):
    out = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(out, kind, **options)
    return out.getvalue()


def write(path, count=10, kind="png", labels=1, channels=3, **options):
    """Writes `count` pictures, and the index beside them. Returns the pictures."""
    pictures = []
    with recordio.MXIndexedRecordIO(path.with_suffix(".idx"), path, "w") as out:
        for n in range(count):
            pixels = picture(n, *SIZES[n % len(SIZES)], channels)
            label = float(n) if labels == 1 else np.arange(labels, dtype=np.float32) + n
            header = recordio.IRHeader(0, label, n, 0)
            out.write_idx(n, recordio.pack(header, encoded(pixels, kind, **options)))
            pictures.append(pixels)
    return pictures
