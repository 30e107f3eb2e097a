"""Measures torch's DataLoader on .npy files and on a ring, with and without ringreel.torch.collate.

    python benches/dataloader.py [--dir DIRECTORY] [--samples 24] [--size 256] [--workers 2 0] [--batch 1 4]
        [--rounds 5]

Samples are two parts of size x size x size uint8. All ways read the same samples from the page cache in one run: each
way has one loader with persistent workers, and makes one pass in each round. The process that receives the batches
reads every byte of them. The program prints samples per second: the median, slowest and fastest round, and the ratio
of the median to that of the .npy files. One pass of each way before the rounds is not counted: workers start in it,
and checksums are compared for the first time (with VERIFY: always, in every pass).
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import ringreel
import ringreel.torch

PARTS = ("data", "label")


class Files(Dataset):
    """Samples in .npy files, one per part."""

    def __init__(self, directory: str, samples: int) -> None:
        self.directory, self.samples = directory, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(np.load(f"{self.directory}/{index}.{name}.npy")) for name in PARTS}


def write(directory: str, samples: int, size: int) -> dict[str, object]:
    """Writes the samples to files and to a ring; returns the ring's configuration."""
    os.mkdir(f"{directory}/npy")
    config = {"RING": f"{directory}/ring", "SAMPLE": list(PARTS), "SWAP_CAP": samples}
    rng = np.random.default_rng(0)
    with ringreel.Ring(config).generator() as generator:
        for index in range(samples):
            sample = {name: rng.integers(0, 256, (size, size, size), np.uint8) for name in PARTS}
            for name, array in sample.items():
                np.save(f"{directory}/npy/{index}.{name}.npy", array)
            generator.write(sample)
        generator.finish(promote=True)
    return config


def taken(tensor: torch.Tensor) -> int:
    """Reads every byte; returns their sum."""
    return int(tensor.numpy().reshape(-1).view(np.uint64).sum())


def new_memory() -> float:
    """Bytes per second when copying into newly allocated memory."""
    source = torch.ones(64 << 20, dtype=torch.uint8)
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        source.clone()
        taken.append(time.perf_counter() - begin)
    return source.numel() / statistics.median(taken)


def one_pass(loader: DataLoader) -> tuple[float, int]:
    """Samples per second, and the sum of their bytes."""
    found = samples = 0
    begin = time.perf_counter()
    for batch in loader:
        found += sum(taken(tensor) for tensor in batch.values())
        samples += len(batch["data"])
    return samples / (time.perf_counter() - begin), found % 2**64


def loaders(config: dict[str, object], files: Files, workers: int, batch: int) -> Iterator[tuple[str, DataLoader]]:
    ring = ringreel.torch.RingDataset(config)
    checked = ringreel.torch.RingDataset({**config, "VERIFY": "always"})
    ours = ringreel.torch.collate
    for name, dataset, collate in (
        (".npy files, default_collate", files, None),
        ("ring, default_collate", ring, None),
        ("ring, ringreel.torch.collate", ring, ours),
        ("the same, VERIFY: always", checked, ours),
    ):
        yield name, DataLoader(dataset, batch, num_workers=workers, collate_fn=collate, persistent_workers=workers > 0)


def filesystem(path: str) -> str:
    """The type of the filesystem that contains a path."""
    with open("/proc/self/mounts") as mounts:
        places = [line.split()[1:3] for line in mounts]
    path = os.path.realpath(path)
    inside = [(len(place), kind) for place, kind in places if os.path.commonpath([path, place]) == place]
    return max(inside)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", help="directory for the data (default: a temporary directory)")
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="dataloader.") as directory:
        config = write(directory, args.samples, args.size)
        files = Files(f"{directory}/npy", args.samples)
        size = sum(tensor.numel() for tensor in files[0].values())
        print(f"{args.samples} samples of {size / 2**20:.4g} MiB on {filesystem(directory)}, {os.cpu_count()} cores")
        warm = files[0]["data"]
        begin = time.perf_counter()
        for _ in range(20):
            taken(warm)
        speed = 20 * warm.numel() / (time.perf_counter() - begin)
        print(f"reading bytes in memory: {speed / 1e9:.1f} GB/s, so at most {speed / size:.0f} samples/s")
        print(f"copying into new memory, as default_collate does with each batch: {new_memory() / 1e9:.1f} GB/s")
        for workers in args.workers:
            for batch in args.batch:
                compare(list(loaders(config, files, workers, batch)), workers, batch, args.rounds)


def compare(ways: list[tuple[str, DataLoader]], workers: int, batch: int, rounds: int) -> None:
    print(f"workers: {workers}, samples in a batch: {batch}")
    sums = {one_pass(loader)[1] for _, loader in ways}
    speeds: dict[str, list[float]] = {name: [] for name, _ in ways}
    for _ in range(rounds):
        for name, loader in ways:
            speed, found = one_pass(loader)
            speeds[name].append(speed)
            sums.add(found)
    if len(sums) != 1:
        raise SystemExit("the ways return different samples")
    base = statistics.median(speeds[ways[0][0]])
    for name, found in speeds.items():
        middle = statistics.median(found)
        print(f"  {name:30} {middle:7.1f}  ({min(found):.1f} to {max(found):.1f})  {middle / base:5.2f} x", flush=True)


if __name__ == "__main__":
    main()
