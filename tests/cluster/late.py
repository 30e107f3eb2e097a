"""Late links: a generator on one node links into a directory that another node has renamed already.

GlusterFS lets a client use a directory's old path for about a second. A generator that found room, and whose link
comes after the rename, then links into the *promoted* directory: beside what its manifest lists, or is about to. By
that nothing may be lost, and nothing delivered twice. How many there were is seen on the server's disk, by inotify: a
name that comes into being in a directory after that was renamed to read.<n>.

To have many of them, generations are sealed before they are full (`ringreel seal`, again and again, on one node) while
generators on the other one link small samples as fast as they can.
"""

import ctypes
import itertools
import os
import signal
import struct
import time

from judge import Manifests, judge, ledger_ids

CONFIG = """\
RING: {ring}
SWAP_CAP: 5000
SAMPLE: [data]
KEEP: 3
LEASE_SECONDS: 4
INDEX: files
"""
IN_CREATE, IN_MOVED_TO, IN_ISDIR = 0x100, 0x80, 0x40000000
EVENT = struct.Struct("iIII")


class Watcher:
    """Sees, on the server's disk, what comes into being in generations, and when they are renamed."""

    def __init__(self, ring):
        self.ring, self.libc = ring, ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        self.root = self.add(ring)
        self.filling, self.promoted, self.late = {}, {}, []

    def add(self, path):
        """Watch a directory; the number of its watch, which stays with it when it is renamed."""
        return self.libc.inotify_add_watch(self.fd, str(path).encode(), IN_CREATE | IN_MOVED_TO)

    def look(self):
        """Take in what happened since the last look."""
        while True:
            try:
                events = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(events):
                watch, mask, _, length = EVENT.unpack_from(events, at)
                name = events[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0").decode()
                at += EVENT.size + length
                self.take(watch, mask, name)

    def take(self, watch, mask, name):
        """One event."""
        if watch == self.root and mask & IN_ISDIR:
            kind, _, number = name.partition(".")
            if mask & IN_CREATE and kind == "write":
                self.filling[int(number)] = self.add(self.ring / name)
            elif mask & IN_MOVED_TO and kind == "read":
                self.promoted[self.filling.pop(int(number), None)] = int(number)
        elif mask & IN_CREATE and watch in self.promoted:
            self.late.append((self.promoted[watch], name))

    def close(self):
        """No more."""
        os.close(self.fd)


def run(lab, ringreel, wanted=100, seconds=120, generators=6):
    """Until so many late links were seen. Returns (verdict, late links, those that the manifest lists, promotions)."""
    directory = lab.dir / "late"
    directory.mkdir()
    config = directory / "config.yaml"
    config.write_text(CONFIG.format(ring=lab.shared / "late.ring"))
    one, other = lab.nodes
    one.run(ringreel, "generate", "-c", config, "--samples", 1, "--shape", 8, "--seal")  # makes the ring
    watcher = Watcher(lab.brick / "late.ring")
    roles = []
    for n in range(generators):
        command = [ringreel, "generate", "-c", config, "--shape", 8, "--seed", n]
        with open(directory / f"generator.{n}.log", "wb") as log:
            ledger = directory / f"{n}.ledger"
            roles.append(other.spawn(f"generator.{n}", *command, "--ledger", ledger, stderr=log))
    begun, promotions = time.monotonic(), itertools.count()
    while len(watcher.late) < wanted and time.monotonic() - begun < seconds:
        one.run(ringreel, "seal", "-c", config, check=False)
        next(promotions)
        watcher.look()
    for role in roles:
        role.end(signal.SIGKILL)
    manager = one.spawn("manager", ringreel, "manager", "-c", config)
    manifests = Manifests(lab.brick / "late.ring")
    ids, end = ledger_ids(directory.glob("*.ledger")), time.monotonic() + 120
    while ids - manifests.look().keys() and time.monotonic() < end:
        time.sleep(0.5)
        one.run(ringreel, "seal", "-c", config, check=False)
    manager.end(signal.SIGTERM)
    watcher.look()
    watcher.close()
    verdict = judge(directory.glob("*.ledger"), manifests, [])
    listed = sum(
        any(segment["file"] == name for segment in manifests.read.get(generation, ()))
        for generation, name in watcher.late
    )
    return verdict, len(watcher.late), listed, next(promotions)
