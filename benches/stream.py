"""What a training loop waits for: a stream with reading ahead, against a NumPy array mapped from the same bytes.

    python benches/stream.py [directory] [samples] [rounds]

Samples are two parts of 256 x 256 x 256 uint8 (32 MiB), in the page cache, in `directory` (default: a new one below
TMPDIR; give one in /dev/shm to leave the disk's filesystem out). The consumer adds up every byte. Medians of rounds that
take turns; ratios are against the mapped arrays of the same round.
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ringreel

SHAPE = (256, 256, 256)
STEP = 0.1  # seconds of training that a step is thought to take
STEPS = 600


def touch(array: np.ndarray) -> int:
    return int(array.reshape(-1).view(np.uint64).sum())


def mapped(directory: Path, count: int) -> float:
    started = time.perf_counter()
    for n in range(count):
        for part in ("data", "label"):
            touch(np.load(directory / f"{n}.{part}.npy", mmap_mode="r"))
    return time.perf_counter() - started


def streamed(ring: ringreel.Ring, count: int, epochs: int) -> tuple[float, list[float]]:
    """Seconds to the first sample, and seconds of each epoch."""
    started = time.perf_counter()
    times, first = [], 0.0
    with ring.stream(epochs=epochs) as stream:
        for n in range(epochs * count):
            sample = next(stream)
            if n == 0:
                first = time.perf_counter() - started
            touch(sample["data"])
            touch(sample["label"])
            del sample
            if (n + 1) % count == 0:
                times.append(time.perf_counter() - started)
                started = time.perf_counter()
    return first, times


def generate(config: dict, pause: float) -> None:
    """Writes a sample every `pause` seconds, until it is ended."""
    parts = {part: np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8) for part in ("data", "label")}
    with ringreel.Ring(config).generator() as generator:
        due = time.perf_counter()
        while True:
            generator.write(parts)
            due += pause
            time.sleep(max(0.0, due - time.perf_counter()))


def waits(config: dict, steps: int) -> tuple[list[float], list[float], int]:
    """Seconds that each step waits for its sample; seconds by which it began too late, which is the machine's own
    doing; both sorted. And how many generations were read.

    A step takes STEP, and a generator is a little faster: there is always a newer generation.
    """
    process = multiprocessing.get_context("spawn").Process(target=generate, args=(config, STEP * 0.8), daemon=True)
    process.start()
    found, late, generations = [], [], set()
    try:
        with ringreel.Ring(config).stream() as stream:
            next(stream)
            for _ in range(steps):
                due = time.perf_counter() + STEP
                time.sleep(STEP)
                started = time.perf_counter()
                late.append(started - due)
                sample = next(stream)
                found.append(time.perf_counter() - started)
                generations.add(sample.generation)
                del sample
    finally:
        process.terminate()
        process.join()
    return sorted(found), sorted(late), len(generations)


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else None
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    with tempfile.TemporaryDirectory(dir=base) as name:
        directory = Path(name)
        config = {"RING": str(directory / "ring"), "SWAP_CAP": count, "SAMPLE": ["data", "label"]}
        rng = np.random.default_rng(0)
        with ringreel.Ring(config).generator() as generator:
            for n in range(count):
                parts = {part: rng.integers(0, 256, SHAPE, np.uint8) for part in ("data", "label")}
                for part, array in parts.items():
                    np.save(directory / f"{n}.{part}.npy", array)
                generator.write(parts)
            generator.finish(seal=True)
        size = 2 * np.prod(SHAPE) * count
        ways: dict[str, list[float]] = {"mapped NumPy": [], "stream, first pass": [], "stream, later passes": []}
        ways |= {"stream, later passes, nothing read ahead": []}
        opening = []
        for turn in range(rounds + 1):
            plain = mapped(directory, count)
            first, times = streamed(ringreel.Ring(config), count, 3)
            _, bare = streamed(ringreel.Ring({**config, "PREFETCH_BYTES": 0}), count, 2)
            if turn:  # the first round warms up
                opening.append(first)
                for way, seconds in zip(ways, (plain, times[0], statistics.mean(times[1:]), bare[1]), strict=True):
                    ways[way].append(seconds)
        print(f"{count} samples of {size // count >> 20} MiB in {directory}, medians of {rounds} rounds")
        for way, seconds in ways.items():
            ratio = statistics.median(a / b for a, b in zip(ways["mapped NumPy"], seconds, strict=True))
            rate = size / statistics.median(seconds) / 1e9
            print(f"  {way:<44} {rate:6.2f} GB/s {ratio:6.2f} x")
        print(f"  first sample after opening: {statistics.median(opening) * 1e3:.1f} ms (most: {max(opening) * 1e3:.1f})")
        found, late, generations = waits({**config, "RING": str(directory / "fed")}, STEPS)
    print(f"  {STEPS} steps of {STEP * 1e3:.0f} ms, {generations} generations, with a generator beside them:")
    for what, seconds in (("wait for the sample", found), ("the machine let them sleep too long", late)):
        percent = (f"p{p} {seconds[min(STEPS - 1, STEPS * p // 100)] * 1e3:.2f} ms" for p in (50, 90, 99, 100))
        print(f"    {what:<36}" + ", ".join(percent))


if __name__ == "__main__":
    main()
