"""Measures how long a training loop waits for samples while a generator writes.

    python benches/stream.py [directory] [samples]

Samples are two parts of 256 x 256 x 256 uint8 (32 MiB), `samples` of them per generation, in `directory` (default: a
new one below TMPDIR; use one in /dev/shm to exclude the disk's filesystem). `benches/side_by_side` measures the maximum
speed of a stream and compares it with other formats.
"""

import multiprocessing
import sys
import tempfile
import time

import numpy as np

import ringreel

SHAPE = (256, 256, 256)
STEP = 0.1  # simulated seconds of training per step
STEPS = 600


def generate(config: dict, pause: float) -> None:
    """Writes a sample every `pause` seconds until the process is ended."""
    parts = {part: np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8) for part in ("data", "label")}
    with ringreel.Ring(config).generator() as generator:
        due = time.perf_counter()
        while True:
            generator.write(parts)
            due += pause
            time.sleep(max(0.0, due - time.perf_counter()))


def waits(config: dict, steps: int) -> tuple[list[float], list[float], int]:
    """Returns the seconds that each step waits for its sample; the seconds by which it began too late because of the
    machine; both sorted; and the number of generations read.

    A step takes STEP, and a generator is slightly faster, so a newer generation always exists.
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
    print(f"{STEPS} steps of {STEP * 1e3:.0f} ms, {generations} generations, while a generator writes:")
    for what, seconds in (("wait for the sample", found), ("sleep overrun of the machine", late)):
        percent = (f"p{p} {seconds[min(STEPS - 1, STEPS * p // 100)] * 1e3:.2f} ms" for p in (50, 90, 99, 100))
        print(f"  {what:<36}" + ", ".join(percent))


if __name__ == "__main__":
    main()
