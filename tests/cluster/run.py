"""Runs a ring on the lab's cluster: `scripts/cluster.sh` calls it when everything it needs is there."""

import argparse
import contextlib
import shutil
import signal
import sys
import time
from pathlib import Path

import batch
import late
from lab import Lab, LabError
from storm import Storm

PARTS = ("storm", "late", "doctor", "slurm")
FAILED = Path("target/cluster")


def told(verdict):
    """A verdict in words."""
    text = f"{verdict.finished} samples finished, {verdict.listed} listed in {verdict.generations} generations"
    text += f", {len(verdict.lost)} lost, {len(verdict.twice)} twice"
    return text + f"; {verdict.seen} reads of {verdict.distinct} samples, {len(verdict.torn)} torn"


def complain(verdict):
    """Examples of what must not be."""
    for word, what in (("lost", verdict.lost), ("twice", verdict.twice), ("torn", verdict.torn)):
        for one in what[:5]:
            print(f"    {word}: {one}")


def storm(lab, options):
    """See storm.py."""
    run = Storm(lab, options.ringreel, options.seconds, seed=options.seed)
    verdict = run.run()
    print(told(verdict))
    print("    kills: " + ", ".join(f"{number} {role}s" for role, number in sorted(run.kills.items())))
    print(f"    starts refused while the server was away: {run.refused}")
    for name, longest in run.stalls.longest.items():
        print(f"    longest time without a finished sample, {name}: {longest:.1f} s")
    for text, number in run.said().most_common(options.told):
        print(f"    {number:4} times: {text}")
    for failure in run.failures[: options.told]:
        print(f"    ended by itself: {failure}")
    complain(verdict)
    return verdict.good() and verdict.seen > 0 and not run.failures


def late_links(lab, options):
    """See late.py."""
    seconds = max(20.0, min(options.seconds, 120.0))
    verdict, links, listed, promotions = late.run(lab, options.ringreel, seconds=seconds)
    print(told(verdict))
    print(f"    {links} late links in {promotions} promotions; of those, {listed} came in time for their manifest")
    complain(verdict)
    return verdict.good() and links > 0


def doctor(lab, options):
    """What two nodes see of each other."""
    command = [options.ringreel, "doctor", f"--peer={lab.shared}"]
    with open(lab.logs / "doctor-peer", "w") as other:
        partner = lab.nodes[1].spawn("doctor", *command, stdout=other, stderr=other)
        print(lab.nodes[0].run(*command, timeout=120), end="")
        return partner.end(0, seconds=60) == 0


def slurm(lab, options):
    """See batch.py."""
    verdict = batch.run(lab, options.ringreel)
    print(told(verdict))
    complain(verdict)
    return verdict.good() and verdict.seen > 0


def main():
    parser = argparse.ArgumentParser(prog="scripts/cluster.sh", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the storm lasts (default: 120)")
    parser.add_argument("--seed", type=int, help="of the storm's random kills")
    parser.add_argument("--told", type=int, default=12, help="how many different complaints are shown")
    parser.add_argument("--keep", action="store_true", help=f"keep the logs in {FAILED}, as after a failure")
    parser.add_argument("--ringreel", required=True, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    does = {"storm": storm, "late": late_links, "doctor": doctor, "slurm": slurm}
    bad = []
    with contextlib.ExitStack() as stack:
        try:
            lab = stack.enter_context(Lab())
        except LabError as error:
            print(f"SKIPPED: no cluster here: {error}", file=sys.stderr)
            return 77
        for part in options.parts or PARTS:
            begun = time.monotonic()
            print(f"{part}:", flush=True)
            try:
                good = does[part](lab, options)
            except BaseException:
                keep(lab)
                raise
            print(f"    {'in order' if good else 'NOT IN ORDER'}, {time.monotonic() - begun:.0f} s", flush=True)
            if not good:
                bad.append(part)
        if bad or options.keep:
            keep(lab)
    return 1 if bad else 0


def keep(lab):
    """Keep the logs, where somebody will look for them."""
    shutil.rmtree(FAILED, ignore_errors=True)
    skip = shutil.ignore_patterns("brick", "shared", "disk.img", "run", "bin", "munge*", "spool*", "state")
    shutil.copytree(lab.dir, FAILED, ignore=skip)
    print(f"    the logs are in {FAILED}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
