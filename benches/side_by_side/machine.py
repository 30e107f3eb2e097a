"""The machine and the versions of a run."""

import datetime
import os
import platform
import subprocess
from pathlib import Path


def _said(*command: str, cwd: Path | None = None) -> str:
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def facts(root: Path) -> dict[str, object]:
    cpu = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "huge_pages": huge.read_text().strip() if huge.exists() else "",
        "python": platform.python_version(),
        "rustc": _said("rustc", "--version"),
        "java": (_said("java", "--version").splitlines() or [""])[0],
        "ringreel": _said("git", "describe", "--always", "--dirty", cwd=root),
        "load": os.getloadavg(),
    }


def filesystem(path: Path) -> str:
    """The type of the filesystem that contains a path."""
    with open("/proc/self/mounts") as mounts:
        places = [line.split()[1:3] for line in mounts]
    real = os.path.realpath(path)
    return max((len(place), kind) for place, kind in places if os.path.commonpath([real, place]) == place)[1]
