"""Measures the ring as a system: real processes on two cores, and plain files in the same run.

    python3 benches/system.py [--small] [--only PART,...] [--dir DIR] [--json docs/internals/scale.json]

Builds the command and `benches/system.rs` (the measured generators and readers), runs the parts, writes the figures to
the JSON file, and from it the tables of docs/internals/scale.md. Parts that are not run keep their last figures.

| part | measures |
|---|---|
| flow | samples and bytes per second, generated and consumed; memory; CPU |
| latency | the time from the end of a sample to its reading |
| calls | operations on the filesystem, by kind, per sample and per generation |
| groups | the same for four generators at a pace, with a file per sample and with the default |
| index | commands to a MongoDB per sample, per generation and per second |
| idle | CPU and system calls of idle roles |
| stall | the duration of a generator's call during a swap, by SWAP_CAP |
| first | the time from opening to the first of 1,000,000 samples |
| many | 200 concurrent generators |
| large | memory and time of roles and commands on generations of many segments and on many manifests |

DIR should be in memory (default: /dev/shm); otherwise a disk is measured.
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import system_calls
import system_index
import system_large

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = {"64": 64**3, "256": 256**3}


def build(profile):
    """Builds the command and the program of benches/system.rs; returns their paths."""
    built = ["cargo", "build", "--profile", profile, "--bin", "ringreel", "--bench", "system", "--message-format=json"]
    told = subprocess.run(built, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = [json.loads(line) for line in told.splitlines()]
    programs = {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}
    return programs["ringreel"], programs["system"]


class Scene:
    """A separate ring with its processes."""

    def __init__(self, programs, directory, **keys):
        (self.ringreel, self.roles), self.home = (
            programs,
            pathlib.Path(tempfile.mkdtemp(prefix="ringreel-bench-", dir=directory)),
        )
        self.ring = self.home / "t.ring"
        keys = {"RING": str(self.ring), "SWAP_CAP": 10, "SAMPLE": ["data", "label"], **keys}
        self.config = self.home / "config.yaml"
        self.config.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))
        self.children = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self, command, before=()):
        child = subprocess.Popen(
            [*map(str, before), *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.children.append(child)
        return child

    def role(self, *words, before=()):
        return self.start([self.roles, *words], before)

    def generate(self, samples, size, rate=0, before=(), times="generated"):
        return self.role("generate", self.config, samples, size, rate, self.home / times, before=before)

    def read(self, samples, rank=0, world=1, before=(), times="read"):
        return self.role("read", self.config, samples, rank, world, self.home / times, before=before)

    def manager(self, before=()):
        child = self.start([self.ringreel, "manager", "-c", self.config], before)
        while not (self.ring / "manifests" / "0").exists():
            assert child.poll() is None, "the manager ended"
            time.sleep(0.01)
        return child

    def end(self, child):
        """Ends a process; returns its figures just before."""
        looked = looks(child.pid)
        child.send_signal(signal.SIGTERM)
        child.wait()
        return looked

    def times(self, name):
        """The lines of a file of times, split."""
        return [line.split() for line in (self.home / name).read_text().splitlines()]


def told(child, patience=900):
    out, _ = child.communicate(timeout=patience)
    assert child.returncode == 0, f"{child.args} ended with {child.returncode}"
    return json.loads(out)


def looks(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()

    def value(name):
        return int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M)[1]) << 10

    # That process's CPU clock (clock_getcpuclockid(3)), which includes ended threads.
    cpu = time.clock_gettime(~pid << 3 | 2)
    return {"peak_bytes": value("VmHWM"), "anonymous_bytes": value("RssAnon"), "cpu_seconds": cpu}


def middle(values):
    return statistics.median(values) if values else None


def spread(values):
    """Median and quantiles."""
    values = sorted(values)

    def at(q):
        return values[min(len(values) - 1, int(q * len(values)))]

    return {"n": len(values), "median": at(0.5), "p95": at(0.95), "max": values[-1]} if values else {"n": 0}


def flow(programs, options):
    """Each layout, and plain files of the same bytes: as many processes as generators, on the same cores."""
    results = []
    rounds = 2 if options.small else 5
    for name, size in SIZES.items():
        cap = 20 if name == "256" else 200
        total = cap * (3 if options.small else 6)
        modes = {"every sample is read": {"REUSE": {"min": 1, "max": 0}}, "generators do not wait": {}}
        for mode, keys in modes.items():
            for generators, readers in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]:
                if mode == "generators do not wait" and (generators, readers) not in [(2, 1), (4, 2)]:
                    continue
                runs = [one_flow(programs, options, size, cap, total, keys, generators, readers) for _ in range(rounds)]
                plain = [plain_files(programs, options, size, total, n) for _ in range(rounds) for n in (1, generators)]
                base, spreadbase = middle(plain[0::2]), middle(plain[1::2])
                consumed = middle([run["consumed"] for run in runs])
                results.append(
                    {
                        "shape": f"2 x {name}^3 u8",
                        "bytes": 2 * size,
                        "mode": mode,
                        "swap_cap": cap,
                        "generators": generators,
                        "readers": readers,
                        "samples": total,
                        "rounds": rounds,
                        "generated_per_second": middle([run["generated"] for run in runs]),
                        "consumed_per_second": consumed,
                        "plain_per_second": base,
                        "plain_processes_per_second": spreadbase,
                        "ratio": middle([run["consumed"] / p for run, p in zip(runs, plain[0::2], strict=False)]),
                        "ratio_processes": middle(
                            [run["consumed"] / p for run, p in zip(runs, plain[1::2], strict=False)]
                        ),
                        "read_share": middle([run["read_share"] for run in runs]),
                        "processes": runs[-1]["processes"],
                    }
                )
                print(json.dumps({k: v for k, v in results[-1].items() if k != "processes"}), flush=True)
    return results


def one_flow(programs, options, size, cap, total, keys, generators, readers):
    with Scene(programs, options.dir, SWAP_CAP=cap, **keys) as scene:
        manager = scene.manager()
        reading = [scene.read(total, rank, readers, times=f"read.{rank}") for rank in range(readers)]
        time.sleep(0.3)
        making = [scene.generate(total // generators, size, times=f"made.{n}") for n in range(generators)]
        made, read = [told(child) for child in making], None
        # Each reader has a share; it ends when no further sample arrives.
        read = [told(child) for child in reading]
        managed = scene.end(manager)
    begin = min(one["begin"] for one in made)
    seen = sum(one["samples"] for one in read)

    def seconds(group):
        return (max(one["end"] for one in group) - begin) / 1e9

    return {
        "generated": total / seconds(made),
        "consumed": seen / seconds(read),
        "read_share": seen / total,
        "processes": {"generator": made[0], "reader": read[0], "manager": managed},
    }


def plain_files(programs, options, size, total, processes):
    """Samples per second through plain files."""
    with Scene(programs, options.dir) as scene:
        copies = [scene.role("copy", scene.home, total // processes, 2 * size) for _ in range(processes)]
        ends = [told(child) for child in copies]
    return total / ((max(one["end"] for one in ends) - min(one["begin"] for one in ends)) / 1e9)


def latency(programs, options):
    """The time until a reader has a sample, for the last one of a generation and for any sample."""
    results = []
    for cap, rate, samples in [(1, 10, 100), (10, 50, 500), (100, 100, 1000)]:
        samples = samples // 5 if options.small else samples
        samples = max(cap, samples // cap * cap)
        with Scene(programs, options.dir, SWAP_CAP=cap, KEEP=8) as scene:
            manager = scene.manager()
            reading = scene.read(samples)
            told(scene.generate(samples, 1024, rate))
            told(reading)
            scene.end(manager)
            finished = {line[0]: int(line[1]) for line in scene.times("generated")}
            arrived = [(line[0], int(line[1]), line[2]) for line in scene.times("read")]
        generations = {}
        for sample, at, generation in arrived:
            full, first = generations.get(generation, (0, 1 << 63))
            generations[generation] = (max(full, finished[sample]), min(first, at))
        results.append(
            {
                "swap_cap": cap,
                "rate": rate,
                "samples": samples,
                "read": len(arrived),
                "last_ms": spread([(first - full) / 1e6 for full, first in generations.values()]),
                "any_ms": spread([(at - finished[sample]) / 1e6 for sample, at, _ in arrived]),
                "filling_ms": cap / rate * 1e3,
            }
        )
        print(json.dumps(results[-1]), flush=True)
    return results


def idle(programs, options):
    """Each idle role: CPU over `seconds`, then system calls for a third of that time, under strace."""
    seconds = 6 if options.small else 30
    results = []

    def look(name, scene, child):
        time.sleep(2)
        before = looks(child.pid)["cpu_seconds"]
        time.sleep(seconds)
        share = (looks(child.pid)["cpu_seconds"] - before) / seconds
        calls = system_calls.rates(child.pid, max(4, seconds // 3), scene.home / "calls")
        results.append({"who": name, "cpu_percent": share * 100, "seconds": seconds, **calls})
        print(json.dumps(results[-1]), flush=True)

    with Scene(programs, options.dir, SWAP_CAP=10) as scene:
        manager = scene.manager()
        look("manager, nothing to do", scene, manager)
        slow = scene.start([scene.ringreel, "generate", "-c", scene.config, "--rate", "0.001", "--shape", "8"])
        look("generator between two samples", scene, slow)
        told(scene.generate(20, 8))
        reader = scene.start([scene.ringreel, "read", "-c", scene.config, "--generations", "3"])
        look("reader that waits for a generation", scene, reader)
    with Scene(programs, options.dir, SWAP_CAP=10, REUSE={"min": 1, "max": 0}) as scene:
        manager = scene.manager()
        full = scene.start([scene.ringreel, "generate", "-c", scene.config, "--shape", "8"])
        look("generator that waits for a reader (REUSE min)", scene, full)
        look("manager, a full generation that is not read yet", scene, manager)
    with Scene(programs, options.dir, SWAP_CAP=10_000) as scene:
        told(scene.role("fill", scene.config, 1, 8))
        manager = scene.manager()
        told(scene.generate(9_900, 8))
        look("manager, 9,900 files in the generation that fills", scene, manager)
        reader = scene.start([scene.ringreel, "read", "-c", scene.config, "--generations", "3"])
        look("reader, 9,900 files in the generation that fills", scene, reader)
    return results


def stall(programs, options):
    """The calls of a generator that waited for a swap or noticed one, one figure per swap."""
    results = []
    for cap, swaps in [(10, 60), (100, 60), (1000, 40), (10_000, 9)]:
        swaps = max(3, swaps // 4) if options.small else swaps
        for segment in (1, cap // 10):
            if segment == 1 and cap == 10 and results:
                continue
            with Scene(programs, options.dir, SWAP_CAP=cap, SEGMENT_SAMPLES=segment, KEEP=0, SAMPLE=["x"]) as scene:
                manager = scene.manager()
                made = told(scene.generate(cap * (swaps + 2) + cap // 4, 8))
                scene.end(manager)
            # The calls of one swap are consecutive; the first swaps warm up.
            stalls = {}
            for n, ms in made["swap_calls_ms"]:
                stalls[(n + cap // 2) // cap] = stalls.get((n + cap // 2) // cap, 0) + ms
            longest = [ms for swap, ms in sorted(stalls.items())][2:]
            results.append(
                {
                    "swap_cap": cap,
                    "segment_samples": segment,
                    "swaps": len(longest),
                    "stall_ms": spread(longest),
                    "other_calls_ms": made["other_calls_ms"],
                    "waited_ms": made["waited_seconds"] * 1e3 / max(1, swaps),
                }
            )
            print(json.dumps(results[-1]), flush=True)
    return results


def first(programs, options):
    results = []
    samples = 100_000 if options.small else 1_000_000
    for segment in (samples // 100, samples):
        with Scene(programs, options.dir, SWAP_CAP=samples, SEGMENT_SAMPLES=segment, SAMPLE=["x"]) as scene:
            told(scene.role("fill", scene.config, samples, 100))
            cold = [told(scene.role("first", scene.config)) for _ in range(7)]
            results.append(
                {
                    "samples": samples,
                    "segments": samples // segment,
                    "open_ms": middle([one["open_ms"][0] for one in cold]),
                    "newest_ms": middle([one["newest_ms"][0] for one in cold]),
                    "first_ms": middle([one["first_ms"][0] for one in cold]),
                    "again_ms": middle([ms for one in cold for ms in one["first_ms"][1:]]),
                    "python_ms": middle(python_first(scene.config, 7)),
                }
            )
            print(json.dumps(results[-1]), flush=True)
    return results


def python_first(config, times):
    """Milliseconds from `Ring(...)` to the first sample, in new processes. Empty if the package is missing."""
    python = ROOT / ".venv/bin/python"
    python = str(python) if python.exists() else sys.executable
    program = (
        "import sys, time, ringreel, numpy\nstarted = time.perf_counter()\n"
        "sample = ringreel.Ring(sys.argv[1]).dataset()[0]\nsample['x'].sum()\n"
        "print((time.perf_counter() - started) * 1e3)"
    )
    taken = []
    for _ in range(times):
        done = subprocess.run([python, "-c", program, config], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"SKIPPED: opening in Python: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return []
        taken.append(float(done.stdout))
    return taken


def many(programs, options):
    """Many generators with tiny samples at full speed; and the number of listed names per sample."""
    results = []
    generators, each = (20, 50) if options.small else (200, 100)
    total = generators * each
    for segment, cap in ((1, total // 10), (10, total // 10), (1, total // 2)):
        keys = {"SWAP_CAP": cap, "SEGMENT_SAMPLES": segment, "SAMPLE": ["x"]}
        with Scene(programs, options.dir, **keys) as scene:
            manager = scene.manager()
            done = told(scene.role("many", scene.config, generators, each, 1024))
            managed = scene.end(manager)
            manifests = [path for path in (scene.ring / "manifests").iterdir() if path.name != "0"]
            sizes = [path.stat().st_size for path in manifests]
            entries = [len(path.read_text().splitlines()) - 2 for path in manifests]
        with Scene(programs, options.dir, **keys) as scene:
            log, manager = scene.home / "listed", scene.manager()
            listing = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", log, "-e", "trace=getdents64"]
            told(scene.role("many", scene.config, generators, each, 1024, before=listing))
            scene.end(manager)
            names = system_calls.names_listed(log)
        seconds = (done["end"] - done["begin"]) / 1e9
        results.append(
            {
                "generators": generators,
                "segment_samples": segment,
                "swap_cap": cap,
                "samples": done["samples"],
                "seconds": seconds,
                "per_second": done["samples"] / seconds,
                "longest_seconds": done["longest_seconds"],
                "cpu_seconds": done["cpu_seconds"],
                "manager_cpu_seconds": managed["cpu_seconds"],
                "manager_peak_bytes": managed["peak_bytes"],
                "generations": len(manifests),
                "names_per_sample": names / done["samples"],
                "manifest_bytes_per_segment": sum(sizes) / sum(entries) if entries else None,
            }
        )
        print(json.dumps(results[-1]), flush=True)
    return results


def large(programs, options):
    """Rings of unusual size: generations of many segments, and many manifests."""
    make = functools.partial(Scene, programs, options.dir)
    segments, manifests = (1_000, 3_000) if options.small else (100_000, 1_000_000)
    return system_large.segments(make, segments) + system_large.manifests(make, manifests)


PARTS = {
    "flow": flow,
    "latency": latency,
    "calls": system_calls.measure,
    "groups": system_calls.groups,
    "index": system_index.measure,
    "idle": idle,
    "stall": stall,
    "first": first,
    "many": many,
    "large": large,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="fewer samples and rounds, as a smoke test")
    parser.add_argument("--profile", default="release", help="cargo profile; dev for a smoke test")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--dir", default="/dev/shm", help="directory for the rings")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "docs/internals/scale.json")
    options = parser.parse_args()
    programs = build(options.profile)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    results = json.loads(options.json.read_text()) if options.json.exists() else {}
    for part in options.only.split(","):
        started = time.time()
        print(f"== {part}", flush=True)
        figures = PARTS[part](programs, options)
        about = {
            "when": time.strftime("%Y-%m-%d %H:%M"),
            "seconds": round(time.time() - started, 1),
            "small": options.small,
            "profile": options.profile,
            "dir": options.dir,
            "kernel": platform.release(),
            "cores": 2,
            "load_after": round(os.getloadavg()[0], 2),
        }
        results[part] = {"about": about, "figures": figures}
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    subprocess.run([sys.executable, ROOT / "benches/scale.py", options.json, ROOT / "docs/internals/scale.md"], check=True)


if __name__ == "__main__":
    main()
