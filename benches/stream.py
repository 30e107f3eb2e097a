"""What a training loop waits for, while a generator writes beside it.

    python benches/stream.py [directory] [samples]

Samples are two parts of 256 x 256 x 256 uint8 (32 MiB), `samples` of them a generation, in `directory` (default: a new
one below TMPDIR; give one in /dev/shm to leave the disk's filesystem out). How fast a stream reads at its best, beside
other formats, is measured by `benches/side_by_side`.
"""

import multiprocessing
import sys
import tempfile
import time

import numpy as np

import ringreel

SHAPE = (256, 256, 256)
STEP = 0.1  # seconds of training that a step is thought to take
STEPS = 600


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
    with tempfile.TemporaryDirectory(dir=base) as directory:
        config = {"RING": f"{directory}/ring", "SWAP_CAP": count, "SAMPLE": ["data", "label"]}
        found, late, generations = waits(config, STEPS)
    print(f"{STEPS} steps of {STEP * 1e3:.0f} ms, {generations} generations, with a generator beside them:")
    for what, seconds in (("wait for the sample", found), ("the machine let them sleep too long", late)):
        percent = (f"p{p} {seconds[min(STEPS - 1, STEPS * p // 100)] * 1e3:.2f} ms" for p in (50, 90, 99, 100))
        print(f"  {what:<36}" + ", ".join(percent))


if __name__ == "__main__":
    main()
