"""How fast images come out of a `.rec` file: ringreel.image, MXNet's ImageRecordIter, and PIL in torch's DataLoader.

    python benches/images.py [--mxnet PYTHON] [--torch PYTHON] [--images 640] [--batch 32] [--rounds 7]

JPEG files of 256x256, 341x256, 400x300 and 500x375 pixels, half of them of quality 95 and half of 90, with the
spectrum of photographs (1/f). Each image is decoded, resized to a shorter edge of 256, cropped to 224x224, mirrored or
not, and normalised to float32, with random crops and mirrors. All ways read the same images, from the page cache, side
by side in one run: in each round each makes one pass, in a process that stays. Printed are images a second: the median
of the rounds, the slowest and the fastest round, and the ratio of the medians.

--mxnet names an interpreter with MXNet 1.9.1 (default: that of .venv-mxnet). --torch names one with torch, Pillow and
ringreel (default: this one); there `torchvision-style` decodes with Pillow and does what torchvision's Resize, crop,
flip, ToTensor and Normalize do, in two workers. A way that cannot be measured is named.
"""

import argparse
import io
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
SIZES = [(256, 256), (256, 341), (300, 400), (375, 500)]  # rows, columns

ITERATOR = """
def passes(path, batch, threads):
    batches = ImageRecordIter(
        path_imgrec=path, data_shape=(3, 224, 224), batch_size=batch, preprocess_threads=threads, resize=256,
        rand_crop=True, rand_mirror=True, mean_r=123.68, mean_g=116.78, mean_b=103.94, std_r=58.4, std_g=57.1,
        std_b=57.4, verbose=False,
    )
    def one():
        images = 0
        batches.reset()  # here, or batches would be made ahead between two passes
        for batch in batches:
            ready(batch.data[0])
            images += batch.data[0].shape[0]
        return images
    return one
"""

OURS = "from ringreel.image import ImageRecordIter\nready = lambda array: None\n" + ITERATOR

MXNET = "from mxnet.io import ImageRecordIter\nready = lambda array: array.wait_to_read()\n" + ITERATOR

STREAM = """
import torch
from ringreel.torch import ImageRecordStream

def passes(path, batch, workers):
    stream = ImageRecordStream(
        path, (3, 224, 224), batch, preprocess_threads=1, resize=256, rand_crop=True, rand_mirror=True, mean_r=123.68,
        mean_g=116.78, mean_b=103.94, std_r=58.4, std_g=57.1, std_b=57.4,
    )
    loader = torch.utils.data.DataLoader(stream, None, num_workers=workers, persistent_workers=True)
    return lambda: sum(images.shape[0] for images, labels in loader)
"""

PILLOW = """
import io, random
import numpy as np
import torch
from PIL import Image
from ringreel import recordio

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

class Images(torch.utils.data.Dataset):
    def __init__(self, path):
        self.file = recordio.MXIndexedRecordIO(path[:-3] + "idx", path, "r")

    def __len__(self):
        return len(self.file.keys)

    def __getitem__(self, index):
        header, content = recordio.unpack(self.file.read_idx(self.file.keys[index]))
        image = Image.open(io.BytesIO(content)).convert("RGB")
        width, height = image.size
        short = min(width, height)
        if short != 256:
            image = image.resize((256 * width // short, 256 * height // short), Image.BILINEAR)
        x, y = random.randint(0, image.size[0] - 224), random.randint(0, image.size[1] - 224)
        image = image.crop((x, y, x + 224, y + 224))
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
        return pixels.sub_(MEAN).div_(STD), header.label

def passes(path, batch, workers):
    loader = torch.utils.data.DataLoader(
        Images(path), batch, shuffle=True, num_workers=workers, persistent_workers=True
    )
    return lambda: sum(images.shape[0] for images, labels in loader)
"""

SERVE = """
import json, sys, time
path, batch, parallel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
one = passes(path, batch, parallel)
one()
for line in sys.stdin:
    begin = time.perf_counter()
    images = one()
    print(json.dumps(images / (time.perf_counter() - begin)), flush=True)
"""


def picture(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """An RGB picture with the spectrum of a photograph, and some sharp edges."""
    frequency = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns))
    frequency = np.maximum(frequency, 1 / max(rows, columns))

    def plane() -> np.ndarray:
        spectrum = (rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape)) / frequency**1.3
        values = np.fft.irfft2(spectrum, (rows, columns))
        return (values - values.mean()) / values.std()

    light, colour = plane(), [plane(), 0, plane()]
    pixels = np.stack([128 + 45 * light + 12 * part for part in colour], -1).clip(0, 255).astype(np.uint8)
    for _ in range(6):
        y, x = rng.integers(0, rows - 8), rng.integers(0, columns - 60)
        pixels[y : y + rng.integers(1, 8), x : x + 60] = rng.integers(0, 256, 3)
    return pixels


def write(path: pathlib.Path, count: int) -> None:
    """Writes the `.rec` file and its index."""
    from PIL import Image
    from ringreel import recordio

    rng = np.random.default_rng(0)
    total = 0
    with recordio.MXIndexedRecordIO(path.with_suffix(".idx"), path, "w") as out:
        for number in range(count):
            content = io.BytesIO()
            pixels = picture(rng, *SIZES[number % len(SIZES)])
            Image.fromarray(pixels).save(content, "jpeg", quality=(95, 90)[number // len(SIZES) % 2])
            out.write_idx(number, recordio.pack((0, float(number), number, 0), content.getvalue()))
            total += len(content.getvalue())
    print(f"{count} images of {total / count / 1024:.0f} KiB in the mean")


class Way:
    """A process that makes a pass whenever it is asked to."""

    def __init__(self, name: str, python: str, code: str, path: pathlib.Path, batch: int, parallel: int) -> None:
        self.name = name
        command = [python, "-c", code + SERVE, str(path), str(batch), str(parallel)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rates: list[float] = []

    def measure(self) -> bool:
        """Makes a pass. False if it cannot."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.rates.append(json.loads(self.process.stdout.readline()))
        except (OSError, ValueError):
            print(f"{self.name}: cannot be measured here")
            return False
        return True

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(ways: list[Way], rounds: int) -> None:
    """Measures the ways in turns, and prints them beside the first one."""
    ways = [way for way in ways if way.measure()]
    for way in ways:
        way.rates.clear()
    for _ in range(rounds):
        for way in ways:
            way.measure()
    for way in ways:
        median = statistics.median(way.rates)
        ratio = median / statistics.median(ways[0].rates)
        print(f"{way.name:36} {median:8.0f} images/s ({min(way.rates):.0f} to {max(way.rates):.0f})  x {ratio:.2f}")
        way.close()
    print()


def main() -> None:
    """Measures all ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", default=str(ROOT / ".venv-mxnet/bin/python"))
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "x.rec"
        write(path, given.images)
        for threads in (1, 2):
            both = [("MXNet", given.mxnet, MXNET), ("ringreel", sys.executable, OURS)]
            ways = [Way(f"{name}, threads: {threads}", python, code, path, given.batch, threads)
                    for name, python, code in both]  # fmt: skip
            compare(ways, given.rounds)
        both = [
            ("torchvision-style, workers: 2", given.torch, PILLOW),
            ("ringreel.torch, workers: 2", given.torch, STREAM),
            ("ringreel, threads: 2", given.torch, OURS),
        ]
        compare([Way(name, python, code, path, given.batch, 2) for name, python, code in both], given.rounds)


if __name__ == "__main__":
    main()
