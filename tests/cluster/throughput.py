"""Reports write and read speed, and the number of requests to the server."""

import json
import signal
import statistics
import time

CONFIG = """\
RING: {ring}
SWAP_CAP: {cap}
SAMPLE: [data]
KEEP: 2
INDEX: files
"""
SAMPLES, SHAPE, MIB = 24, "128,128,128", 48
SMALL = 200
IDLE_SECONDS = 30
ROUNDS = 3
LATENCY_SECONDS, LATENCY_CAP = 90, 5
# Runs a command, and prints each line of its output with the time at which it was written.
STAMP = """import subprocess, sys, time
command = ["setpriv", "--pdeathsig", "TERM", *sys.argv[1:]]
for line in subprocess.Popen(command, stdout=subprocess.PIPE).stdout:
    print(time.time(), line.decode(), end="", flush=True)"""


class Throughput:
    """One run."""

    def __init__(self, lab):
        self.lab, self.dir = lab, lab.part("throughput")
        self.one, self.other = lab.nodes

    def config(self, name, cap, ring=None):
        """Writes a ring's configuration on each node."""
        path = self.dir / f"{name}.yaml"
        self.lab.put(path, CONFIG.format(ring=ring or self.lab.shared / f"{name}.ring", cap=cap))
        return path

    def timed(self, node, *command):
        """Returns the seconds that a command takes, measured on the node."""
        script = (
            'begun=$(date +%s%N); "$@" >/dev/null 2>&1 || exit 1; echo $(($(date +%s%N) - begun))'
        )
        return int(node.run("bash", "-c", script, "timed", *command, timeout=600)) / 1e9

    def counted(self, what, do, per, unit):
        """Prints the requests of both nodes while `do` runs."""
        before = self.lab.requests()
        do()
        for whose, new in self.lab.requests().items():
            used = new - before[whose]
            if used:
                total = sum(used.values())
                operations = ", ".join(f"{name} {n / per:.2f}" for name, n in used.most_common())
                print(
                    f"    {what}, {whose}: {total / per:.1f} requests {unit}: {operations}",
                    flush=True,
                )

    def large(self, number):
        """Writes 24 samples of 2 MiB, reads them on the other node, and compares with dd and cat."""
        source, files = "/dev/shm/source", self.lab.shared / f"dd.{number}"
        config = self.config(f"large{number}", SAMPLES)
        memory = self.config(f"memory{number}", SAMPLES, f"/dev/shm/memory{number}.ring")
        self.one.run("dd", "if=/dev/urandom", f"of={source}", "bs=1M", f"count={MIB}")
        self.one.run("mkdir", files)
        each = f"dd if={source} of={files}/$i bs=2M count=1 skip=$((i - 1)) conv=fsync || exit 1"
        dd = self.timed(self.one, "bash", "-c", f"for i in $(seq {SAMPLES}); do {each}; done")
        self.one.run("rm", source)
        # The time to make the samples without the server: the same run, in memory.
        generate = [
            self.lab.ringreel,
            "generate",
            "--samples",
            SAMPLES,
            "--shape",
            SHAPE,
            "--promote",
            "-c",
        ]
        made = self.timed(self.one, *generate, memory)
        self.one.run("rm", "-r", f"/dev/shm/memory{number}.ring")
        wrote = self.timed(self.one, *generate, config)
        read = [self.lab.ringreel, "read", "--all", "-c", config]
        self.lab.drop_caches(self.other)
        cat = self.timed(self.other, "bash", "-c", f"cat {files}/* | cat > /dev/null")
        # Loads the program, which is on the node's own disk, into the page cache.
        self.other.run("sh", "-c", f"cat {self.lab.ringreel} > /dev/null")
        cold = self.timed(self.other, *read)
        warm = self.timed(self.other, *read)
        print(
            f"    {SAMPLES} x 2 MiB written: dd {dd:.1f} s, ringreel {wrote:.1f} s (to memory "
            f"{made:.1f} s): {dd / wrote:.2f} x dd, {dd / max(wrote - made, 0.01):.2f} x without "
            f"making the samples; read: cat {cat:.1f} s, ringreel {cold:.1f} s (from the page "
            f"cache {warm:.1f} s): {cat / cold:.2f} x cat",
            flush=True,
        )
        return dd / wrote, cat / cold

    def small(self):
        """Requests per sample, of a writer and of a reader."""
        config = self.config("small", SMALL)
        generate = [
            self.lab.ringreel,
            "generate",
            "--shape",
            "16",
            "--promote",
            "-c",
            config,
            "--samples",
        ]
        # The first one creates the ring.
        self.one.run(*generate, 10, timeout=300)
        one, other, n = self.one, self.other, SMALL
        self.counted(
            f"{n} samples of 64 B written",
            lambda: one.run(*generate, n, timeout=600),
            n,
            "a sample",
        )
        read = [self.lab.ringreel, "read", "--all", "-c", config]
        self.counted(
            f"{n + 10} of them read", lambda: other.run(*read, timeout=600), n + 10, "a sample"
        )
        config = self.config("files", 48)
        single = ["--shape", "128,128,16", "--promote", "-c", config]
        one.run(self.lab.ringreel, "generate", "--samples", 2, *single, timeout=300)
        many = [self.lab.ringreel, "generate", "--samples", 48, *single]
        self.counted(
            "48 samples of 1 MiB written", lambda: one.run(*many, timeout=600), 48, "a sample"
        )
        read[-1] = config
        self.counted("50 of them read", lambda: other.run(*read, timeout=600), 50, "a sample")

    def waiting(self):
        """Requests of a waiting reader, an idle manager and an idle generator."""
        config = self.config("idle", 1000)
        command = [
            self.lab.ringreel,
            "generate",
            "--samples",
            3,
            "--shape",
            "8",
            "--promote",
            "-c",
            config,
        ]
        self.one.run(*command, timeout=120)
        roles = {
            "a waiting reader": ["read", "--json", "--generations", 100],
            "an idle manager": ["manager"],
        }
        for name, words in roles.items():
            out, err = self.dir / f"{words[0]}.out", self.dir / f"{words[0]}.err"
            command = [self.lab.ringreel, *words, "-c", config]
            role = self.other.spawn(name, *command, stdout=out, stderr=err)
            time.sleep(8)
            # A manager polls less and less often, until it has been idle for 32 s.
            for told in (name, f"{name}, from {8 + IDLE_SECONDS} s on"):
                self.counted(told, lambda: time.sleep(IDLE_SECONDS), IDLE_SECONDS, "a second")
            role.end(signal.SIGTERM)
        command = [self.lab.ringreel, "generate", "--shape", "8", "--rate", "0.05", "-c", config]
        role = self.other.spawn("generator", *command, stderr=self.dir / "generate.err")
        time.sleep(8)
        name = "a generator of a sample in 20 s"
        self.counted(name, lambda: time.sleep(2 * IDLE_SECONDS), 2 * IDLE_SECONDS, "a second")
        role.end(signal.SIGTERM)

    def ahead(self, machine):
        """Seconds by which a machine's clock is ahead of the host's."""

        def look():  # the quickest of five counts
            begun = time.time()
            there = float(machine.run("date", "+%s.%N"))
            ended = time.time()
            return ended - begun, there - (begun + ended) / 2

        return min(look() for _ in range(5))[1]

    def latency(self):
        """Time from a promotion to the first sample of a reader on the other node."""
        name = "latency"
        config, seen = self.config(name, LATENCY_CAP), self.dir / f"{name}.seen"
        generate = [self.lab.ringreel, "generate", "--shape", "8", "-c", config]
        self.one.run(*generate, "--samples", LATENCY_CAP, timeout=120)
        read = [self.lab.ringreel, "read", "--json", "--generations", 1000, "-c", config]
        reader = self.other.spawn(name, "python3", "-c", STAMP, *read, stdout=seen)
        manager = self.one.spawn("manager", self.lab.ringreel, "manager", "-c", config)
        writer = self.one.spawn("generator", *generate, "--rate", 1, "--seed", 1)
        before = self.ahead(self.lab.server) - self.ahead(self.other)
        time.sleep(LATENCY_SECONDS)
        for role in (writer, reader, manager):
            role.end(signal.SIGTERM)
        drift = self.ahead(self.lab.server) - self.ahead(self.other) - before
        self.lab.sync()
        first = {}
        for line in seen.read_text().splitlines():
            when, sample = line.split(" ", 1)
            first.setdefault(json.loads(sample)["generation"], float(when))
        promoted = self.lab.promoted(f"{name}.ring")
        # The first generation existed before the reader.
        took = [first[g] - promoted[g] + before for g in sorted(first)[1:]]
        print(
            f"    from a promotion to its first sample on the other node: median "
            f"{statistics.median(took):.2f} polls of 1 s, {min(took):.2f} to {max(took):.2f}, "
            f"{len(took)} generations (clocks drifted by {drift:.2f} s)",
            flush=True,
        )

    def run(self):
        """Runs all of it."""
        self.waiting()
        self.latency()
        self.small()
        ratios = [self.large(number) for number in range(ROUNDS)]
        for name, values in zip(("written, against dd", "read, against cat"), zip(*ratios)):
            print(f"    {name}: median {sorted(values)[len(values) // 2]:.2f} x of {ROUNDS}")
