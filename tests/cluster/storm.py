"""A ring on two nodes under the faults that clusters meet.

Managers, generators and readers on both nodes are killed at random and started again. Meanwhile the
lab's faults happen one after another: a cable is pulled, the server goes away, its disk is full, a
machine loses power. In the end exactly one manifest must list each finished sample, readers must
have seen nothing torn and skipped no generation that KEEP covers, and every role must have resumed
work after the last fault.
"""

import collections
import itertools
import random
import re
import signal
import time

from judge import Manifests, judge, ledger_ids

CONFIG = """\
RING: {ring}
SWAP_CAP: {cap}
SAMPLE: [data, label]
KEEP: 2
LEASE_SECONDS: {lease}
REUSE: {{min: 0, max: 2}}
"""
DRAIN_SECONDS = 240
READERS = 2
LEFT_OUT = "is missing, although KEEP covers it"


class Storm:
    """One run. `refusals` are parts of error messages with which a role may exit at its start."""

    def __init__(self, lab, seconds, name="storm", faults=None, more="", seed=None, refusals=()):
        self.lab, self.seconds, self.refusals = lab, seconds, refusals
        self.faults = lab.faults(seconds) if faults is None else faults
        self.random = random.Random(seed)
        self.ring = f"{name}.ring"
        self.dir = lab.part(name)
        self.config = self.dir / "config.yaml"
        pace = lab.pace
        text = CONFIG.format(ring=lab.shared / self.ring, cap=pace.cap, lease=pace.lease)
        lab.put(self.config, text + lab.index.format(name=name) + more)
        self.numbers, self.roles, self.rest = itertools.count(1), {}, {}
        self.kills, self.failures, self.refused = collections.Counter(), [], 0
        self.stalls, self.stuck = Stalls(), []

    # Roles: (kind, node, number) -> process

    def wanted(self):
        """The roles that should run."""
        for number, node in enumerate(self.lab.nodes):
            yield "manager", node, 0
            yield "reader", node, number
            yield from (("generator", node, n) for n in range(self.lab.pace.generators))

    def start(self, role):
        """Starts a role. Its log, ledger and output are on the node's own disk."""
        kind, node, number = role
        born = next(self.numbers)
        name = f"{born:04}.{kind}.{node.name}"
        command, out = [self.lab.ringreel, "-v"], "/dev/null"
        if kind == "manager":
            command += ["manager"]
        elif kind == "reader":
            command += ["read", "--json", "--rank", number, "--world-size", READERS]
            out = self.dir / f"{name}.seen"
        else:
            command += ["generate", "--shape", "20,20,20", "--rate", self.lab.pace.rate]
            command += ["--seed", born, "--ledger", self.dir / f"{name}.ledger"]
        command += ["-c", self.config]
        log = self.dir / f"{name}.log"
        self.roles[role] = node.spawn(name, *command, stdout=out, stderr=log)

    def tend(self):
        """Starts missing roles. Records each role that ended without being killed."""
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
        """Handles an unexpected exit, which is allowed at the start if no server answers for a lease."""
        self.lab.sync()
        path = self.dir / f"{process.name}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        last = lines[-1] if lines else "(no output)"
        unanswered = "ring.json" in last and "which does not answer" in last
        if len(lines) <= 2 and (unanswered or any(word in last for word in self.refusals)):
            self.refused += 1
        else:
            self.failures.append(f"{process.name}: status {status}: {last}")

    def kill_one(self):
        """Kills a role at random."""
        living = [role for role in self.roles if role[1].alive()]
        if living:
            role = self.random.choice(living)
            self.roles[role].send(signal.SIGKILL)
            self.kills[role[0]] += 1

    # The run

    def plan(self):
        """The faults in order: (second, name, action)."""
        plan, share = [], self.seconds / (len(self.faults) + 0.5)
        for n, fault in enumerate(self.faults):
            begin = (n + 0.5) * share
            plan += [(begin, fault.name, fault.act)]
            plan += [(begin + fault.seconds, f"end of {fault.name}", fault.undo)]
        return plan

    def step(self):
        """Starts missing roles, looks for new samples, and sleeps."""
        self.tend()
        self.lab.sync()
        self.stalls.look(self.dir)
        time.sleep(0.1)

    def run(self):
        """Runs everything; returns the verdict."""
        plan, begun, next_kill = self.plan(), time.monotonic(), self.lab.pace.kill_every
        # A fault that begins late is undone nevertheless.
        while (now := time.monotonic() - begun) < self.seconds or plan:
            if plan and now >= plan[0][0]:
                _, name, act = plan.pop(0)
                print(f"{now:6.1f} s  {name}", flush=True)
                acted = time.monotonic()
                act()
                # The time that a machine takes to boot is excluded, so that faults stay apart.
                begun += time.monotonic() - acted
                self.stalls.phase(name if not name.startswith("end") else None)
            if now >= next_kill:
                next_kill = now + self.lab.pace.kill_every * self.random.uniform(0.5, 1.5)
                self.kill_one()
            self.step()
        return self.end()

    def sizes(self):
        """Sizes of the ledgers and of the readers' output on each node, in bytes."""
        told = collections.Counter()
        for kind in ("ledger", "seen"):
            for node in self.lab.nodes:
                files = self.dir.glob(f"*.{node.name}.{kind}")
                told[f"{'generators' if kind == 'ledger' else 'reader'} on {node.name}"] = sum(
                    path.stat().st_size for path in files
                )
        return told

    def settle(self):
        """Waits until generators and readers on both nodes make progress; records stuck ones."""
        self.step()  # fetches what was written before
        before, end = self.sizes(), time.monotonic() + 120 + 2 * self.lab.grace
        while time.monotonic() < end:
            self.step()
            now = self.sizes()
            if all(now[name] > size for name, size in before.items()):
                return
        self.stuck = [name for name, size in self.sizes().items() if size == before[name]]

    def end(self):
        """Ends all roles but a manager, waits until every finished sample is listed, and judges."""
        self.settle()
        for role, process in list(self.roles.items()):
            if role[0] != "manager" and process.end() is None:
                self.stuck.append(f"{process.name}, which SIGKILL does not end")
        self.lab.sync()
        node, manifests = self.lab.nodes[0], Manifests(self.lab, self.ring)
        ids, end = ledger_ids(self.dir.glob("*.ledger")), time.monotonic() + DRAIN_SECONDS
        while ids - manifests.look().keys() and time.monotonic() < end:
            node.do(self.lab.ringreel, "promote", "-c", self.config, timeout=DRAIN_SECONDS)
            time.sleep(0.5)
        for process in self.roles.values():
            process.end(signal.SIGTERM)
        self.lab.sync()
        for node in self.lab.nodes:
            verify = [self.lab.ringreel, "verify", self.lab.shared / self.ring]
            done = node.do(*verify, timeout=DRAIN_SECONDS)
            if done.status != 0:
                told = (done.out + done.err).strip()[-300:]
                self.failures.append(f"verify on {node.name}: status {done.status}: {told}")
        verdict = judge(self.dir.glob("*.ledger"), manifests, self.dir.glob("*.seen"))
        verdict.left_out = self.left_out()
        return verdict

    def left_out(self):
        """Generations that readers logged as missing although KEEP covers them."""
        lines = []
        for log in self.dir.glob("*.reader.*.log"):
            lines += [
                line for line in log.read_text(errors="replace").splitlines() if LEFT_OUT in line
            ]
        return lines

    def said(self):
        """Warnings and errors of all roles: {message without its numbers: count}."""
        told = collections.Counter()
        for log in self.dir.glob("*.log"):
            for line in log.read_text(errors="replace").splitlines():
                if " WARN " in line or "ERROR" in line:
                    text = re.sub(r"^\S+ +", "", line)
                    text = re.sub(r"node\d-\d+-[0-9a-f]{8}|[0-9a-f]{32}|\d+", "N", text)
                    told[text[:220]] += 1
        return told


class Stalls:
    """The longest times without a finished sample, in each fault and outside of faults."""

    def __init__(self):
        self.longest, self.name = collections.Counter(), None
        self.lines, self.moved, self.over = 0, None, True

    def phase(self, name):
        """A fault begins or (None) ends. A stall counts for it until samples are finished again."""
        if name:
            self.name = f"{self.name}, then {name}" if self.name else name
        self.over = name is None

    def look(self, directory):
        """Checks whether the ledgers have grown."""
        now, size = (
            time.monotonic(),
            sum(path.stat().st_size for path in directory.glob("*.ledger")),
        )
        if size > self.lines:
            if self.moved is not None:
                key = self.name or "no fault"
                self.longest[key] = max(self.longest[key], now - self.moved)
            self.lines, self.moved = size, now
            if self.name and self.over:
                self.name = None
