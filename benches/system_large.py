"""Rings of unusual size: the peak memory and the time of each role (a part of benches/system.py)."""

import binascii
import itertools
import json
import os
import subprocess
import time


def measure(scene, role, *arguments):
    """Runs a command to its end; returns its time and its peak memory."""
    begun = time.monotonic()
    child = subprocess.Popen(
        [scene.ringreel, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"{role}: {said[-2000:]}"
    return {"role": role, "peak_bytes": used.ru_maxrss * 1024, "seconds": time.monotonic() - begun}


def offline(scene):
    """The commands that users run: first `status`, cold, in a new process."""
    config = ["-c", scene.config]
    return [
        measure(scene, "status", "status", *config),
        measure(scene, "read --all", "read", *config, "--all"),
        measure(scene, "inspect", "inspect", scene.ring),
        measure(scene, "verify", "verify", scene.ring),
        measure(scene, "gc", "gc", "--apply", *config),
        measure(scene, "repair", "repair", scene.ring),
        measure(scene, "report", "report", scene.ring, "-o", scene.home / "report.html"),
    ]


def wait_for(scene, generation):
    """Waits until this generation has a manifest; no process may end before."""
    while not (scene.ring / "manifests" / str(generation)).exists():
        assert all(child.poll() is None for child in scene.children), "a role ended"
        time.sleep(0.1)


def segments(make, count):
    """Two generations of `count` one-sample segments, and a third one: first the roles, then the commands."""
    with make(SWAP_CAP=count, SEGMENT_SAMPLES=1, KEEP=1, SAMPLE=["data"]) as scene:
        config = ["-c", scene.config]
        manager = scene.manager()
        generator = scene.start([scene.ringreel, "generate", *config, "--shape", "1"])
        wait_for(scene, 1)
        reader = scene.start([scene.ringreel, "read", *config, "--generations", "1000000"])
        wait_for(scene, 3)
        live = {"manager": manager, "generator": generator, "reader": reader}
        peaks = {role: scene.end(child)["peak_bytes"] for role, child in live.items()}
        figures = [{"role": role, "peak_bytes": peak, "seconds": None} for role, peak in peaks.items()]
        return [{"ring": f"{count:,} segments a generation", **one} for one in figures + offline(scene)]


def manifests(make, count):
    """A ring with `count` manifests that were never pruned."""
    with make(SWAP_CAP=2, KEEP=2, SAMPLE=["data"]) as scene:
        config = ["-c", scene.config]
        measure(scene, "generate", "generate", *config, "--shape", "1", "--samples", 4, "--promote")
        lines = (scene.ring / "manifests" / "2").read_text().splitlines()
        for n in range(3, count + 1):
            summary = {**json.loads(lines[0]), "generation": n, "total_samples": 2 * n}
            text = json.dumps({**summary, "samples": 0, "bytes": 0, "total_samples": 4}) + "\n"
            end = {"end": n, "lines": 1, "crc32": f"{binascii.crc32(text.encode()):08x}"}
            (scene.ring / "manifests" / str(n)).write_text(text + json.dumps(end) + "\n")
        measure(scene, "repair --apply", "repair", scene.ring, "--apply")  # restores the index from them
        figures = [*offline(scene), longest_pause(scene, count, 400)]
        return [{"ring": f"{count:,} manifests", **one} for one in figures]


def longest_pause(scene, newest, swaps):
    """The longest time between two swaps while old manifests are pruned."""
    manager = scene.start([scene.ringreel, "manager", "-c", scene.config])
    generator = scene.start([scene.ringreel, "generate", "-c", scene.config, "--shape", "1"])
    wait_for(scene, newest + swaps)
    scene.end(generator)
    peak = scene.end(manager)["peak_bytes"]
    times = []
    for n in range(newest + 1, newest + swaps + 1):
        with open(scene.ring / "manifests" / str(n)) as manifest:
            times.append(json.loads(manifest.readline())["unix_ms"])
    longest = max(after - before for before, after in itertools.pairwise(times))
    return {"role": f"longest time between two of {swaps} swaps", "peak_bytes": peak, "seconds": longest / 1e3}
