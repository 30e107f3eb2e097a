"""Whether readers read every generation although their node's client caches that a name is absent.

An NFS client that did not find a name answers from its cache for up to a minute. A generator or a
manager on the reader's own node looks up `read.<n>` before generation n exists.

- by hand: node1 looks up `read.<n>`; node0 promotes generation n; `ringreel read` on node1 must
  read generation n, and with --all every sample;
- beside: a generator and a reader on both nodes; the readers are independent;
- in turn: the same, but both readers are ranks of a run, whose `REUSE: {min: 1}` delays the next
  generation until all of them have read the last one.

For each reader the judge determines which generations it should have read: in turn, every one. An
independent reader takes the newest one each time, so a generation is due if no other one was
published within `DUE_SECONDS` after it: longer than the longest pause between two polls, plus the
time to read it.
"""

import collections
import itertools
import json
import signal
import time

from judge import Manifests, judge
from lab import LabError

CONFIG = """\
RING: {ring}
SWAP_CAP: {cap}
SAMPLE: [data]
KEEP: 20
"""
IN_TURN = "REUSE: {min: 1, max: 1}\n"
DUE_SECONDS = 5
# Two generators at one sample per second fill a generation in seven seconds.
CAP, RATE = 14, 1
TRIES = 10


def by_hand(lab, tries=TRIES, part="skip"):
    """Returns the number of tries that read all samples, and descriptions of the others."""
    name = f"{part}-by-hand"
    directory, ring = lab.part(name), lab.shared / f"{name}.ring"
    config = directory / "config.yaml"
    lab.put(config, CONFIG.format(ring=ring, cap=10) + lab.index.format(name=name))
    one, other = lab.nodes
    generate = [lab.ringreel, "generate", "-c", config, "--samples", 3, "--shape", 8, "--promote"]
    read = [lab.ringreel, "read", "-c", config, "--json"]
    one.run(*generate, timeout=120)
    wrong, longest = [], 0.0
    for n in range(2, 2 + tries):
        # As a generator does that polls for the next generation.
        other.do("stat", ring / f"read.{n}")
        one.run(*generate, "--seed", n, timeout=120)
        every = other.do(*read, "--all", timeout=120)
        begun = time.monotonic()
        newest = other.do(*read, "--generations", 1, "--timeout", 40, timeout=120)
        longest = max(longest, time.monotonic() - begun)
        got = collections.Counter(
            json.loads(line)["generation"] for line in newest.out.splitlines()
        )
        samples = len(every.out.splitlines())
        if (every.status, samples, newest.status, got) != (0, 3 * n, 0, {n: 3}):
            told = f"{samples} of {3 * n} samples, status {every.status}"
            wrong.append(
                f"generation {n}: --all gave {told}; --generations 1 gave {dict(got)}, "
                f"status {newest.status}"
            )
    return tries - len(wrong), wrong, longest


class Beside:
    """A generator and a reader on both nodes."""

    def __init__(self, lab, in_turn, part="skip"):
        self.lab, self.in_turn, self.failed = lab, in_turn, []
        name = f"{part}-{'in-turn' if in_turn else 'beside'}"
        self.dir = lab.part(name)
        self.ring = f"{name}.ring"
        self.config = self.dir / "config.yaml"
        text = CONFIG.format(ring=lab.shared / self.ring, cap=CAP) + lab.index.format(name=name)
        lab.put(self.config, text + (IN_TURN if in_turn else ""))

    def server_time(self):
        """The server's clock, which also stamps the manifests."""
        return float(self.lab.server.run("date", "+%s.%N"))

    def run(self, seconds):
        """Returns (verdict, [(reader, generations got, those it should have got, left out)])."""
        lab, readers, others = self.lab, {}, []
        first = [
            lab.ringreel,
            "generate",
            "-c",
            self.config,
            "--samples",
            4,
            "--shape",
            8,
            "--promote",
        ]
        lab.nodes[0].run(*first, timeout=120)
        for n, node in enumerate(lab.nodes):
            command = [
                lab.ringreel,
                "-v",
                "read",
                "-c",
                self.config,
                "--json",
                "--generations",
                100000,
            ]
            if self.in_turn:
                command += ["--run", "skip", "--rank", n, "--world-size", len(lab.nodes)]
            seen, log = self.dir / f"{node.name}.seen", self.dir / f"{node.name}.reader.log"
            readers[node.name] = node.spawn("reader", *command, stdout=seen, stderr=log)
        # Readers count from the generation that each of them reads first.
        time.sleep(5)
        for node in lab.nodes:
            log = self.dir / f"{node.name}.generator.log"
            command = [lab.ringreel, "-v", "generate", "-c", self.config, "--shape", 8]
            command += ["--rate", RATE, "--seed", node.number]
            command += ["--ledger", self.dir / f"{node.name}.ledger"]
            others.append(node.spawn("generator", *command, stderr=log))
        log = self.dir / "manager.log"
        others.append(
            lab.nodes[0].spawn("manager", lab.ringreel, "manager", "-c", self.config, stderr=log)
        )
        time.sleep(seconds)
        for role in others:
            role.end(signal.SIGTERM)
        stopped = self.server_time()
        # Readers need time for the last generations.
        time.sleep(DUE_SECONDS + 2)
        for name, reader in readers.items():
            if (status := reader.end(signal.SIGTERM)) != 0:
                self.failed.append(f"the reader on {name} ended with status {status}")
        self.sync()
        return self.judge(stopped)

    def sync(self):
        """Copies the readers' output to the host."""
        self.lab.sync()

    def judge(self, stopped):
        """Compares what readers saw with what they should have seen."""
        came = self.lab.promoted(self.ring)
        promoted = {g: when for g, when in came.items() if g > 0 and when <= stopped}
        seals = sorted(promoted)
        if not seals:
            raise LabError("nothing was promoted")
        due = {
            g
            for g, after in itertools.pairwise(seals)
            if promoted[after] - promoted[g] >= DUE_SECONDS
        }
        due = set(seals) if self.in_turn else due | {seals[-1]}
        told = []
        for node in self.lab.nodes:
            path = self.dir / f"{node.name}.seen"
            lines = path.read_text().splitlines(True) if path.exists() else []
            got = {json.loads(line).get("generation") for line in lines if line.endswith("\n")}
            begin = min(filter(None, got), default=0)
            should = {g for g in due if g >= begin}
            told.append(
                (node.name, len(got), len(should), sorted(should - got), seals[-1] + 1 - begin)
            )
        seen = self.dir.glob("*.seen")
        verdict = judge(
            self.dir.glob("*.ledger"), Manifests(self.lab, self.ring), seen, drained=False
        )
        return verdict, told
