"""Tries an installed package: passes samples through a ring by Python, by torch if installed, and by the command.

scripts/dist.sh runs this with the interpreter of the environment that contains the wheel. It needs no compiler and
nothing from the repository.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import ringreel

SAMPLES, CAP = 8, 4
CONFIG = f"DBNAME: tried\nSWAP_CAP: {CAP}\nSAMPLE: [data, label]\nPOLL_SECONDS: 0.05\n"


def samples():
    """Yields samples with known contents."""
    for seed in range(SAMPLES):
        yield (np.full((8, 8, 8), seed, np.float32), np.array([seed % 2], np.int64)), {"seed": seed}


def fill() -> None:
    """Runs the first example of python/README.md: a manager and a generator."""
    over = threading.Event()
    manager = threading.Thread(target=ringreel.run_manager, args=("config.yaml",), kwargs={"stop": over})
    manager.start()
    try:
        ringreel.run_generator(samples(), "config.yaml")
        ring = ringreel.Ring("config.yaml")
        assert len(ring.dataset(timeout=60)) == CAP
    finally:
        over.set()
        manager.join()


def read() -> None:
    """Reads the newest generation as NumPy arrays."""
    found = [(int(sample["data"].max()), sample["data"].shape, sample.meta["seed"])
             for sample in ringreel.Ring("config.yaml").stream(epochs=1)]  # fmt: skip
    assert len(found) == CAP and all(shape == (8, 8, 8) and value == seed for value, shape, seed in found), found


def read_with_torch() -> str:
    """Reads the same through a DataLoader with two workers."""
    import ringreel.torch
    import torch
    from torch.utils.data import DataLoader

    stream = ringreel.torch.RingStream("config.yaml", shuffle=True, epochs=1, as_tuple=True)
    loader = DataLoader(stream, batch_size=2, num_workers=2, collate_fn=ringreel.torch.collate)
    sizes = [tuple(data.shape) for data, _ in loader]
    assert sum(size[0] for size in sizes) == CAP and all(size[1:] == (8, 8, 8) for size in sizes), sizes
    return f"torch {torch.__version__}"


def run_command(*args: str) -> str:
    """Runs the installed command; returns its output."""
    command = Path(sys.executable).with_name("ringreel")
    return subprocess.run([command, *args], check=True, capture_output=True, text=True).stdout


def main() -> None:
    for tool in ("cargo", "rustc"):
        assert shutil.which(tool) is None, f"{tool} is in PATH, but this test must run without it"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("config.yaml").write_text(CONFIG)
        fill()
        read()
        torch = read_with_torch() if importlib.util.find_spec("torch") else "no torch"
        assert run_command("--version").strip() == f"ringreel {ringreel.__version__}"
        run_command("verify", "tried.ring")
        run_command("read", "-c", "config.yaml", "--all", "--json")
        os.chdir("/")
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"ringreel {ringreel.__version__} works: Python {version}, NumPy {np.__version__}, {torch}, and the command")


if __name__ == "__main__":
    main()
