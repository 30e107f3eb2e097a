"""A ring on two nodes while everything happens to it that happens to clusters.

Managers, generators and readers on both nodes are killed at random and start again. Meanwhile a node's cable is pulled,
for a short and for a long time, the server's process is killed, its disk is full, a node loses its power. In the end
everything that a generator called finished must be listed by exactly one manifest, and readers must have seen nothing
torn.
"""

import collections
import itertools
import random
import re
import signal
import time
from pathlib import Path

from judge import Manifests, judge, ledger_ids

CONFIG = """\
RING: {ring}
SWAP_CAP: 30
SAMPLE: [data, label]
KEEP: 2
LEASE_SECONDS: 2
INDEX: files
REUSE: {{min: 0, max: 2}}
"""
DRAIN_SECONDS = 180
READERS = 2


class Storm:
    """One run."""

    def __init__(self, lab, ringreel, seconds, generators=3, kill_every=1.5, seed=None):
        self.lab, self.ringreel, self.seconds, self.kill_every = lab, ringreel, seconds, kill_every
        self.generators, self.random = generators, random.Random(seed)
        self.dir = lab.dir / "storm"
        self.dir.mkdir()
        self.config = self.dir / "config.yaml"
        self.config.write_text(CONFIG.format(ring=lab.shared / "storm.ring"))
        self.numbers, self.roles, self.rest = itertools.count(1), {}, {}
        self.kills, self.failures, self.refused = collections.Counter(), [], 0
        self.stalls = Stalls()

    # Roles: (kind, node, number) -> process

    def wanted(self):
        """The roles that are to run."""
        for number, node in enumerate(self.lab.nodes):
            yield "manager", node, 0
            yield "reader", node, number
            yield from (("generator", node, n) for n in range(self.generators))

    def start(self, role):
        """Start a role; its log, ledger and output lie on the node's own disk."""
        kind, node, number = role
        born = next(self.numbers)
        name = f"{born:04}.{kind}.{node.name}"
        command, out = [self.ringreel, "-v"], Path("/dev/null")
        if kind == "manager":
            command += ["manager"]
        elif kind == "reader":
            command += ["read", "--json", "--rank", number, "--world", READERS]
            out = self.dir / f"{name}.seen"
        else:
            command += ["generate", "--shape", "20,20,20", "--rate", 15, "--seed", born]
            command += ["--ledger", self.dir / f"{name}.ledger"]
        with open(self.dir / f"{name}.log", "wb") as log, open(out, "wb") as stdout:
            self.roles[role] = node.spawn(name, *command, "-c", self.config, stdout=stdout, stderr=log)

    def tend(self):
        """Start what is missing. Who ended although nobody killed it is noted."""
        for role in self.wanted():
            process = self.roles.get(role)
            if not role[1].alive():
                self.roles.pop(role, None)
            elif process is None:
                if time.monotonic() >= self.rest.get(role, 0):
                    self.start(role)
            elif (status := process.ended()) is not None:
                if status not in (0, -signal.SIGKILL):
                    self.failed(process, status)
                    self.rest[role] = time.monotonic() + 1.0
                del self.roles[role]

    def failed(self, process, status):
        """A role ended by itself. At its start it may, where no server answers for a lease."""
        lines = (self.dir / f"{process.name}.log").read_text(errors="replace").splitlines()
        if 1 <= len(lines) <= 2 and "ring.json" in lines[-1] and "which does not answer" in lines[-1]:
            self.refused += 1
        else:
            self.failures.append(f"{process.name}: status {status}: {lines[-1] if lines else '(no word)'}")

    def kill_one(self):
        """Kill a role at random."""
        living = [role for role in self.roles if role[1].alive()]
        role = self.random.choice(living)
        self.roles[role].send(signal.SIGKILL)
        self.kills[role[0]] += 1

    # The run

    def plan(self):
        """What happens when: (second, name, action), in order."""
        lab, other = self.lab, self.lab.nodes[1]
        # The long cut is longer than the 42 s after which a client of GlusterFS calls the server dead.
        short, long = max(2, self.seconds / 60), max(4, self.seconds / 9)
        acts = [
            (0.10, short, "short cut", lambda: lab.cut(other), lambda: lab.heal(other)),
            (0.25, long, "long cut", lambda: lab.cut(other), lambda: lab.heal(other)),
            (0.55, short, "server killed", lab.kill_brick, lab.start_brick),
            (0.70, short, "disk full", lab.fill_disk, lab.free_disk),
            (0.85, short, "node without power", other.stop, lambda: lab.start_node(other)),
        ]
        plan = []
        for begin, length, name, act, undo in acts:
            plan += [(begin * self.seconds, name, act), (begin * self.seconds + length, f"end of {name}", undo)]
        return plan

    def run(self):
        """Everything; the verdict."""
        plan, begun, next_kill = self.plan(), time.monotonic(), self.kill_every
        # What was begun late is undone all the same.
        while (now := time.monotonic() - begun) < self.seconds or plan:
            if plan and now >= plan[0][0]:
                _, name, act = plan.pop(0)
                print(f"{now:6.1f} s  {name}", flush=True)
                act()
                self.stalls.phase(name if not name.startswith("end") else None)
            self.tend()
            if now >= next_kill:
                next_kill = now + self.kill_every * self.random.uniform(0.5, 1.5)
                self.kill_one()
            self.stalls.look(self.dir)
            time.sleep(0.1)
        return self.end()

    def end(self):
        """Kill all but a manager, wait until everything finished is listed, and judge."""
        for role, process in list(self.roles.items()):
            if role[0] != "manager":
                process.end()
        node, manifests = self.lab.nodes[0], Manifests(self.lab.brick / "storm.ring")
        ids, end = ledger_ids(self.dir.glob("*.ledger")), time.monotonic() + DRAIN_SECONDS
        while ids - manifests.look().keys() and time.monotonic() < end:
            node.run(self.ringreel, "seal", "-c", self.config, check=False, timeout=DRAIN_SECONDS)
            time.sleep(0.5)
        for process in self.roles.values():
            process.end(signal.SIGTERM)
        for node in self.lab.nodes:
            node.run(self.ringreel, "verify", self.lab.shared / "storm.ring", timeout=DRAIN_SECONDS)
        return judge(self.dir.glob("*.ledger"), manifests, self.dir.glob("*.seen"))

    def said(self):
        """What the roles complained of: {message without its numbers: how often}."""
        told = collections.Counter()
        for log in self.dir.glob("*.log"):
            for line in log.read_text(errors="replace").splitlines():
                if " WARN " in line or "ERROR" in line:
                    text = re.sub(r"^\S+ +", "", line)
                    text = re.sub(r"node\d-\d+-[0-9a-f]{8}|[0-9a-f]{32}|\d+", "N", text)
                    told[text[:220]] += 1
        return told


class Stalls:
    """The longest times without a finished sample anywhere, within each fault and outside of them."""

    def __init__(self):
        self.longest, self.name = collections.Counter(), None
        self.lines, self.moved, self.over = 0, None, True

    def phase(self, name):
        """A fault begins, or (none) ends. What it caused still counts as its own until samples flow again."""
        if name:
            self.name = name
        self.over = name is None

    def look(self, directory):
        """Have the ledgers grown?"""
        now, size = time.monotonic(), sum(path.stat().st_size for path in directory.glob("*.ledger"))
        if size > self.lines:
            if self.moved is not None:
                key = self.name or "no fault"
                self.longest[key] = max(self.longest[key], now - self.moved)
            self.lines, self.moved = size, now
            if self.name and self.over:
                self.name = None
