"""Makes unique names by link, O_EXCL, mkdir and rename, and counts wrong answers.

`lost.py DIRECTORY SECONDS` prints a line of JSON. Every answer but success is wrong: the reply was
lost, and the server answered the repeated request as if it were new.
"""

import collections
import errno
import json
import os
import sys
import time

top = f"{sys.argv[1]}/lost.{os.uname().nodename}.{time.time_ns()}"
end = time.monotonic() + float(sys.argv[2])
os.makedirs(top)
source = f"{top}/source"
open(source, "w").close()


def create(path):
    """Creates a file that must not exist."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def rename(path):
    """Creates a file and renames it."""
    create(path + ".from")
    os.rename(path + ".from", path)


calls = {
    "link": lambda path: os.link(source, path),
    "O_EXCL": create,
    "mkdir": os.mkdir,
    "rename": rename,
}
number, wrong, longest = 0, collections.Counter(), 0.0
while time.monotonic() < end:
    for kind, call in calls.items():
        number += 1
        path, begun = f"{top}/{number}", time.monotonic()
        try:
            call(path)
        except OSError as error:
            happened = "had happened" if os.path.lexists(path) else "had not happened"
            wrong[f"{kind}: {errno.errorcode[error.errno]}, and it {happened}"] += 1
        longest = max(longest, time.monotonic() - begun)
print(json.dumps({"calls": number, "wrong": wrong, "longest_s": round(longest, 1)}))
