"""Reports names that appear in a generation after its promotion, on the server's own disk.

`watch.py RING` prints "watching", then a line "promoted N" or "late N NAME" per event, until it is
killed. An inotify watch follows a directory that is renamed.
"""

import ctypes
import os
import struct
import sys

IN_CREATE, IN_MOVED_TO, IN_ISDIR = 0x100, 0x80, 0x40000000
EVENT = struct.Struct("iIII")


class Watcher:
    """Watches a ring's directory, and each generation from its creation."""

    def __init__(self, ring):
        self.ring, self.libc = ring, ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(0)
        self.root = self.add(ring)
        self.filling, self.promoted = {}, {}

    def add(self, path):
        """Watches a directory; returns the number of its watch."""
        return self.libc.inotify_add_watch(self.fd, path.encode(), IN_CREATE | IN_MOVED_TO)

    def run(self):
        """Reads events until it is killed."""
        print("watching", flush=True)
        while True:
            events, at = os.read(self.fd, 1 << 16), 0
            while at < len(events):
                watch, mask, _, length = EVENT.unpack_from(events, at)
                name = events[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0").decode()
                at += EVENT.size + length
                self.take(watch, mask, name)

    def take(self, watch, mask, name):
        """Handles one event."""
        if watch == self.root and mask & IN_ISDIR:
            kind, _, number = name.partition(".")
            if mask & IN_CREATE and kind == "write":
                self.filling[number] = self.add(f"{self.ring}/{name}")
            elif mask & IN_MOVED_TO and kind == "read":
                self.promoted[self.filling.pop(number, None)] = number
                print("promoted", number, flush=True)
        elif mask & IN_CREATE and watch in self.promoted and not name.startswith(".nfs"):
            print("late", self.promoted[watch], name, flush=True)


Watcher(sys.argv[1]).run()
