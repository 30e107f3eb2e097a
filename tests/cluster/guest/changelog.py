"""The MooseFS version of watch.py, which reads names from the master's change log.

`changelog.py LOG RING` prints "watching", then a line "promoted N" or "late N NAME" per event,
until it is killed. RING is the name of a ring in the filesystem's root.
"""

import re
import sys
import time

CHANGE = re.compile(r"\d+: \d+\|(CREATE|MOVE|LINK)\((.*)\)(?::(\d+))?$")
ROOT = "1"


def events(lines, ring):
    """Yields the events among the changes."""
    inode, filling, promoted = None, {}, {}
    for line in lines:
        if not (change := CHANGE.match(line)):
            continue
        kind, words, about = change[1], change[2].split(","), change[3]
        if kind == "CREATE" and words[:2] == [ROOT, ring]:
            inode = about
        elif kind == "CREATE" and words[0] == inode and words[1].startswith("write."):
            filling[about] = words[1].partition(".")[2]
        elif kind == "MOVE" and words[2] == inode and words[3].startswith("read."):
            promoted[about] = filling.pop(about, None)
            yield "promoted", promoted[about]
        elif kind == "LINK" and words[1] in promoted:
            yield "late", promoted[words[1]], words[2]


def follow(path):
    """Yields a growing file's lines."""
    line = ""
    with open(path) as file:
        while True:
            line += file.readline()
            if line.endswith("\n"):
                yield line.rstrip("\n")
                line = ""
            else:
                time.sleep(0.1)


print("watching", flush=True)
for event in events(follow(sys.argv[1]), sys.argv[2]):
    print(*event, flush=True)
