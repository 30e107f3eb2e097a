"""Late links: a generator on one node links into a directory that another node has already renamed.

A client of a network filesystem may keep using a directory's old path: for about a second on
GlusterFS, for 20 s and more on NFS. A generator whose link arrives after the rename then links into
the *promoted* directory. This must not lose a sample, and must not deliver one twice. The links are
counted on the server (guest/watch.py, guest/changelog.py).

To provoke many of them, `ringreel promote` on one node promotes generations before they are full,
while generators on the other node link small samples as fast as they can.
"""

import signal
import time
from pathlib import Path

from judge import Manifests, judge, ledger_ids
from lab import until

CONFIG = """\
RING: {ring}
SWAP_CAP: 5000
SAMPLE: [data]
KEEP: 3
LEASE_SECONDS: {lease}
INDEX: files
"""
GUEST = Path(__file__).parent / "guest"


def run(lab, wanted=100, seconds=120):
    """Runs until `wanted` late links were seen, or for `seconds`.

    Returns (verdict, late links, those that their manifest lists, promotions).
    """
    directory, ring = lab.part("late"), lab.shared / "late.ring"
    config = directory / "config.yaml"
    lab.put(config, CONFIG.format(ring=ring, lease=max(4, lab.pace.lease)))
    one, other = lab.nodes
    # Creates the ring.
    first = [lab.ringreel, "generate", "-c", config, "--samples", 1, "--shape", 8, "--promote"]
    one.run(*first, timeout=120)
    events = directory / "events"
    script = "import sys; exec(sys.argv.pop(1))"
    program, *words = lab.late_watch(ring)
    command = ["python3", "-c", script, (GUEST / program).read_text(), *words]
    watch = lab.server.spawn("watch", *command, stdout=events, stderr=directory / "watch.log")

    def told(word):
        lab.sync()
        text = events.read_text() if events.exists() else ""
        return [
            line.split()
            for line in text.splitlines(True)
            if line[-1] == "\n" and line.startswith(word)
        ]

    until("the watch on the server", lambda: told("watching"), 60)
    roles = []
    for n in range(lab.pace.late_generators):
        command = [lab.ringreel, "generate", "-c", config, "--shape", 8, "--seed", n]
        command += ["--ledger", directory / f"{n}.ledger"]
        roles.append(
            other.spawn(f"generator.{n}", *command, stderr=directory / f"generator.{n}.log")
        )
    begun = time.monotonic()
    while len(told("late")) < wanted and time.monotonic() - begun < seconds:
        one.do(lab.ringreel, "promote", "-c", config, timeout=120)
    for role in roles:
        role.end(signal.SIGKILL)
    log = directory / "manager.log"
    manager = one.spawn("manager", lab.ringreel, "manager", "-c", config, stderr=log)
    lab.sync()
    manifests = Manifests(lab, "late.ring")
    ids, end = ledger_ids(directory.glob("*.ledger")), time.monotonic() + 180
    while ids - manifests.look().keys() and time.monotonic() < end:
        time.sleep(0.5)
        one.do(lab.ringreel, "promote", "-c", config, timeout=120)
    manager.end(signal.SIGTERM)
    late, promotions = told("late"), told("promoted")
    watch.end()
    verdict = judge(directory.glob("*.ledger"), manifests, [])
    listed = sum(
        any(segment["file"] == name for segment in manifests.read.get(int(generation), ()))
        for _, generation, name in late
    )
    return verdict, len(late), listed, len(promotions)
