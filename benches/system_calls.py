"""Counts the operations on the filesystem that a role makes, by kind, with strace."""

import collections
import re
import signal
import subprocess
import time

#: The kind of each call. A *walk* opens a directory of the ring by O_PATH on the way to a name in it: the client looks
#: the name up in its cache, and queries a server only if the entry has expired. Closing, seeking and mapping are not
#: counted.
KINDS = [
    "walk",
    "lookup",
    "open",
    "create",
    "list",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "statfs",
    "read",
    "write",
    "sync",
]
CALL = re.compile(r"^(?:\d+ +)?(\d+\.\d+) (\w+)\((.*)")


def kind(name, rest):
    if name in ("openat", "openat2", "open", "creat"):
        if "O_PATH" in rest:
            return "walk"
        if "O_CREAT" in rest:
            return "create"
        return "list" if "O_DIRECTORY" in rest else "open"
    table = {
        "link": "link",
        "linkat": "link",
        "unlink": "unlink",
        "rmdir": "unlink",
        "unlinkat": "unlink",
        "mkdir": "mkdir",
        "mkdirat": "mkdir",
        "statfs": "statfs",
        "fstatfs": "statfs",
        "fsync": "sync",
        "fdatasync": "sync",
        "read": "read",
        "pread64": "read",
        "readv": "read",
        "write": "write",
        "pwrite64": "write",
        "writev": "write",
        "stat": "lookup",
        "lstat": "lookup",
        "newfstatat": "lookup",
        "statx": "lookup",
        "access": "lookup",
        "fstat": "lookup",
    }
    return "rename" if name.startswith("rename") else table.get(name)


def count(log, within, begin=0.0, end=float("inf")):
    """Counts operations by kind, of those on a path that contains `within`, between two times."""
    counts = collections.Counter()
    for line in log.read_text(errors="replace").splitlines():
        call = CALL.match(line)
        if call and within in line and " resumed" not in line[:60] and begin <= float(call[1]) < end:
            counts[kind(call[2], call[3])] += 1
    counts.pop(None, None)
    return counts


def published(log):
    """The time at which each manifest was linked, from the manager's log."""
    times = {}
    for line in log.read_text(errors="replace").splitlines():
        found = re.search(r'/manifests>, "(\d+)", 0\) = 0', line)
        if found and "linkat" in line:
            times[int(found[1])] = float(CALL.match(line)[1])
    return times


def under_strace(log):
    calls = "trace=%file,read,pread64,readv,write,pwrite64,writev,fsync,fdatasync,fstat,fstatfs"
    return ["strace", "-f", "-y", "-qq", "-ttt", "-o", log, "-e", calls]


def rates(pid, seconds, log):
    """System calls per second of a running process, and those that touch a ring."""
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-qq", "-ttt", "-o", log, "-p", str(pid)], stderr=subprocess.DEVNULL
    )
    time.sleep(1)
    begin = len(log.read_text(errors="replace").splitlines())
    time.sleep(seconds)
    lines = log.read_text(errors="replace").splitlines()[begin:]
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    calls = [CALL.match(line) for line in lines if " resumed" not in line[:60]]
    names = collections.Counter(call[2] for call in calls if call)
    ring = [line for line in lines if ".ring" in line and CALL.match(line)]
    kinds = collections.Counter(kind(*CALL.match(line).groups()[1:]) for line in ring)
    kinds.pop(None, None)
    return {
        "calls_per_second": sum(names.values()) / seconds,
        "ring_operations_per_second": sum(kinds.values()) / seconds,
        "by_kind": {name: kinds[name] / seconds for name in KINDS if kinds[name]},
        "by_call": {name: n / seconds for name, n in names.most_common(6)},
    }


def end_traced(tracer):
    """Ends a program that runs under strace, which does not forward signals."""
    child = subprocess.run(["pgrep", "-P", str(tracer.pid)], capture_output=True, text=True).stdout.split()
    subprocess.run(["kill", "-TERM", *child], check=True)
    tracer.wait()


def run(programs, options, cap, segment, generations, is_read):
    """Counts operations of each role over a number of generations. Generators wait for the reader, so that it misses none;
    without a reader they wait for nothing."""
    from system import Scene, told

    # Only the first heartbeats, no checks for dead members, few polls: their cost is per second, see `idle`.
    keys = {"LEASE_SECONDS": 3600, "POLL_SECONDS": 2, "SEGMENT_SAMPLES": segment, "SAMPLE": ["x"]}
    first, samples = 4, cap * (generations + 5)  # by then old generations are reclaimed, too
    with Scene(programs, options.dir, SWAP_CAP=cap, REUSE={"min": int(is_read), "max": 0}, **keys) as scene:

        def log(who):
            return scene.home / f"{who}.log"

        manager = scene.manager(under_strace(log("manager")))
        reading = [scene.read(samples, before=under_strace(log("reader")))] if is_read else []
        told(scene.generate(samples, 100, before=under_strace(log("generator"))))
        for reader in reading:
            told(reader)
        end_traced(manager)
        times = published(log("manager"))
        begin, end = times[first], times[first + generations]
        return {
            who: count(log(who), ".ring", begin, end) for who in (["reader"] if is_read else ["generator", "manager"])
        }


def measure(programs, options):
    """Generations of two sizes, for the cost of one more sample, and of one more generation."""
    results = []
    small, large = 20, 100
    for segment in (1, 10):
        many, few = (6, 2) if options.small else (40, 10)
        for who, is_read in (("generator", False), ("manager", False), ("reader", True)):
            runs = [(run(programs, options, cap, segment, n, is_read), n) for cap, n in ((small, many), (large, few))]
            each = [{kind: counts[who][kind] / n for kind in KINDS} for counts, n in runs]
            each_sample = {kind: (each[1][kind] - each[0][kind]) / (large - small) for kind in KINDS}
            each_generation = {kind: each[0][kind] - small * each_sample[kind] for kind in KINDS}
            results.append(
                {
                    "who": who,
                    "segment_samples": segment,
                    "each_sample": {k: round(n, 3) for k, n in each_sample.items() if abs(n) >= 0.005},
                    "each_generation": {k: round(n, 2) for k, n in each_generation.items() if abs(n) >= 0.05},
                }
            )
            print(results[-1], flush=True)
    return results


def groups(programs, options):
    """Operations per sample of four generators that write 125 samples of 512 KiB per second each, and of their manager:
    with one file per sample, and with the default."""
    from system import Scene, told

    results = []
    generators, rate = 4, 125
    samples = 250 if options.small else 2500
    for segment in (1, "auto"):
        with Scene(programs, options.dir, SWAP_CAP=1000, SEGMENT_SAMPLES=segment, SAMPLE=["x"]) as scene:
            manager = scene.manager(under_strace(scene.home / "manager.log"))
            started = time.monotonic()
            making = [
                scene.generate(samples, 1 << 19, rate, under_strace(scene.home / f"generator.{n}.log"), f"made.{n}")
                for n in range(generators)
            ]
            for generator in making:
                told(generator)
            seconds = time.monotonic() - started
            end_traced(manager)
            counts = collections.Counter()
            for log in scene.home.glob("*.log"):
                counts += count(log, ".ring")
            each = {kind: counts[kind] / samples / generators for kind in KINDS}
            results.append(
                {
                    "segment_samples": segment,
                    "samples_per_second": round(samples * generators / seconds, 1),
                    "each_sample": {kind: round(n, 3) for kind, n in each.items()},
                    "all": round(sum(each.values()), 2),
                    "without_walks": round(sum(n for kind, n in each.items() if kind != "walk"), 2),
                }
            )
            print(results[-1], flush=True)
    return results


def names_listed(log):
    """The number of listed names: an entry takes 32 bytes of the system's answer, or slightly more."""
    answers = re.findall(r"= (\d+)$", log.read_text(errors="replace"), re.M)
    return sum(map(int, answers)) / 32
