"""Runs rings on a cluster of this machine, for scripts/cluster.sh, which installs what it needs."""

import argparse
import contextlib
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import late
import lost
import mongo
import skip
import squash
from ceph import CephLab
from gluster import GlusterLab
from lab import LabError
from moose import MooseLab
from nfs import NfsLab
from storm import Storm
from throughput import Throughput

FAILED = Path("target/cluster")


def told(verdict):
    """Formats a verdict."""
    text = f"{verdict.finished} samples finished, {verdict.listed} listed"
    text += f" in {verdict.generations} generations"
    text += f", {len(verdict.lost)} lost, {len(verdict.twice)} twice"
    return text + f"; {verdict.seen} reads of {verdict.distinct} samples, {len(verdict.torn)} torn"


def complain(verdict):
    """Prints examples of broken guarantees."""
    for word in ("lost", "twice", "torn", "left_out"):
        for one in getattr(verdict, word)[:5]:
            print(f"    {word.replace('_', ' ')}: {one}")


def whether(run, options):
    """Runs a storm, prints its results, and returns whether every guarantee was kept."""
    verdict = run.run()
    print(f"{told(verdict)}; {len(verdict.left_out)} generations left out; {len(run.stuck)} stuck")
    print(
        "    kills: " + ", ".join(f"{number} {role}s" for role, number in sorted(run.kills.items()))
    )
    print(f"    starts refused while the server was away: {run.refused}")
    for name, longest in run.stalls.longest.items():
        print(f"    longest time without a finished sample, {name}: {longest:.1f} s")
    for text, number in run.said().most_common(options.warnings):
        print(f"    {number:4} times: {text}")
    for failure in run.failures[: options.warnings]:
        print(f"    unexpected end: {failure}")
    for name in run.stuck:
        print(f"    stuck: {name}")
    complain(verdict)
    return verdict.good() and verdict.seen > 0 and not run.failures and not run.stuck


def storm(lab, options):
    """All faults of the lab; see storm.py."""
    return whether(Storm(lab, options.seconds, seed=options.seed), options)


def full(lab, options):
    """The server's disk is full for a third of the time."""
    seconds = max(30.0, min(options.seconds, 120.0))
    faults = [lab.fault("disk full", seconds / 3)]
    return whether(Storm(lab, seconds, "full", faults, seed=options.seed), options)


def power(lab, options):
    """The server loses its power, with DURABILITY: node."""
    seconds = max(60.0, min(options.seconds, 180.0))
    faults = [lab.fault("server without power", 2)] * int(seconds // 60)
    run = Storm(lab, seconds, "power", faults, "DURABILITY: node\n", seed=options.seed)
    return whether(run, options)


def soft(lab, options):
    """A soft mount: calls fail if the server is away for longer than 15 s."""
    seconds = max(60.0, min(options.seconds, 120.0))
    faults = [lab.fault("nfsd stopped", seconds / 3)]
    lab.remount("soft,timeo=50,retrans=2")
    # A role that starts during this time exits with an error.
    refusals = ("os error 5)", "os error 110)")
    return whether(
        Storm(lab, seconds, "soft", faults, seed=options.seed, refusals=refusals), options
    )


def noac(lab, options):
    """Mounted with noac: the client caches no attributes."""
    seconds = max(20.0, min(options.seconds, 60.0))
    lab.remount("noac")
    return whether(Storm(lab, seconds, "noac", [lab.fault("cable", 3)], seed=options.seed), options)


def late_links(lab, options):
    """See late.py."""
    verdict, links, listed, promotions = late.run(
        lab, seconds=max(20.0, min(options.seconds, 120.0))
    )
    print(told(verdict))
    print(
        f"    {links} late links in {promotions} promotions; {listed} of them are in their manifest"
    )
    complain(verdict)
    return verdict.good() and links > 0


def skipped(lab, options, part="skip"):
    """See skip.py."""
    tries = skip.TRIES if options.seconds >= 60 else 3
    right, wrong, longest = skip.by_hand(lab, tries, part)
    print(
        f"    by hand: {right} of {tries} tries read every sample; "
        f"longest read of the newest {longest:.1f} s"
    )
    for text in wrong:
        print(f"    wrong: {text}")
    good = right == tries
    for in_turn in (False, True):
        run = skip.Beside(lab, in_turn, part)
        verdict, readers = run.run(max(20.0, options.seconds / 2))
        print(f"    {'in turn' if in_turn else 'beside'}: {told(verdict)}")
        for name, got, due, left_out, there in readers:
            text = (
                f"got {got} of {there} generations; {due} were due, skipped {left_out or 'none'}"
            )
            print(f"        reader on {name}: {text}")
            good &= got > 0 and not left_out
        for text in run.failed:
            print(f"        {text}")
        complain(verdict)
        good &= verdict.good() and not run.failed
    return good


def doctor(lab, options):
    """What `ringreel doctor` reports on a node, and what two nodes see of each other."""
    directory, good = lab.part("doctor"), True
    config = directory / "config.yaml"
    lab.put(
        config, f"RING: {lab.shared / 'doctor.ring'}\nSWAP_CAP: 20\nSAMPLE: [data]\nINDEX: files\n"
    )
    command = [lab.ringreel, "doctor", "-c", config]
    for node in lab.nodes:
        begun = time.monotonic()
        done = node.do(*command, timeout=400)
        print(f"    on {node.name}: status {done.status}, {time.monotonic() - begun:.0f} s")
        print(findings(done.out + done.err))
        good &= done.status == 0
    command = [lab.ringreel, "doctor", f"--peer={lab.shared}"]
    begun = time.monotonic()
    partner = lab.nodes[1].spawn(
        "doctor", *command, stdout=directory / "peer", stderr=directory / "peer"
    )
    done = lab.nodes[0].do(*command, timeout=400)
    print(f"    --peer: status {done.status}, {time.monotonic() - begun:.0f} s")
    print((done.out + done.err).rstrip())
    return good and done.status == 0 and partner.end(0, seconds=60) == 0


def findings(text):
    """The lines of a doctor's output that are not a plain `ok`."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"  ok |\w+$", line))


def root_squash(lab, options):
    """See squash.py."""
    good = True
    for what, right, text in squash.run(lab):
        print(f"    {'ok   ' if right else 'WRONG'} {what}{'' if right else ': ' + text}")
        good &= right
    return good


def lost_replies(lab, options):
    """Wrong answers to lost replies; see lost.py. A report."""
    for line in lost.run(lab):
        print(f"    {line}")
    return True


def throughput(lab, options):
    """Speed and requests; see throughput.py. A report."""
    Throughput(lab).run()
    return True


def mongodb(lab, options):
    """Skip, and a storm in which the index server is away; see mongo.py."""
    seconds = max(60.0, min(options.seconds, 120.0))
    with mongo.Mongo(lab) as server:
        good = skipped(lab, options, "mongodb")
        faults = [*server.faults(seconds / 6), lab.fault("cable", 3)]
        # A role that starts while its server is away exits with an error.
        run = Storm(lab, seconds, "mongodb", faults, seed=options.seed, refusals=("MongoDB at",))
        good &= whether(run, options)
    told = sum("MongoDB" in text for text in run.said())
    print(f"    the roles logged {told} different messages about MongoDB")
    return good and told > 0


def slurm(lab, options):
    """See batch.py."""
    import batch

    verdict = batch.run(lab)
    print(told(verdict))
    complain(verdict)
    return verdict.good() and verdict.seen > 0


def train(lab, options):
    """See training.py."""
    import training

    return training.run(lab)


NFS_PARTS = {
    "skip": skipped,
    "storm": storm,
    "late": late_links,
    "doctor": doctor,
    "full": full,
    "power": power,
    "squash": root_squash,
    "soft": soft,
    "noac": noac,
    "mongodb": mongodb,
    "lost": lost_replies,
    "throughput": throughput,
}
FUSE_PARTS = {
    "storm": storm,
    "doctor": doctor,
    "skip": skipped,
    "throughput": throughput,
}
PARTS = {
    "gluster": {**FUSE_PARTS, "late": late_links, "slurm": slurm, "train": train},
    "moosefs": {**FUSE_PARTS, "late": late_links},
    "cephfs": FUSE_PARTS,
    "nfs": NFS_PARTS,
    "nfs3": NFS_PARTS,
}


def main():
    parser = argparse.ArgumentParser(prog="scripts/cluster.sh", description=__doc__)
    names = "; ".join(f"{fs}: {', '.join(parts)}" for fs, parts in PARTS.items())
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"parts to run; all by default ({names})"
    )
    parser.add_argument(
        "--fs",
        choices=PARTS,
        metavar="FS",
        default="gluster",
        help="nfs (4.2), nfs3, gluster, moosefs, cephfs, or all (default: gluster)",
    )
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="length of the storm (default: 120)"
    )
    parser.add_argument("--seed", type=int, help="seed of the storm's random kills")
    parser.add_argument(
        "--grace", type=int, help="seconds of a restarted NFS server's grace period"
    )
    parser.add_argument(
        "--warnings", type=int, default=12, help="number of different warnings to print"
    )
    parser.add_argument(
        "--keep", action="store_true", help=f"keep the logs in {FAILED}, as after a failure"
    )
    parser.add_argument("--ringreel", required=True, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--images", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    does = PARTS[options.fs]
    if unknown := set(options.parts) - set().union(*PARTS.values()):
        parser.error(f"unknown: {', '.join(unknown)}")
    # With --fs all, a part runs on the filesystems that have it.
    parts = [part for part in options.parts or does if part in does]
    if "mongodb" in parts and not mongo.JAR.exists():
        print(f"SKIPPED: mongodb on {options.fs}: run scripts/mongodb.sh java", file=sys.stderr)
        parts.remove("mongodb")
    if not parts:
        print(f"SKIPPED: {options.fs} has no {', '.join(options.parts)}", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout.reconfigure(line_buffering=True)
    bad = []
    with contextlib.ExitStack() as stack:
        lab = make(options)
        try:
            stack.enter_context(lab)
        except LabError as error:
            print(f"SKIPPED: no cluster here: {error}", file=sys.stderr)
            return 77
        for part in parts:
            begun = time.monotonic()
            print(f"{part} on {options.fs}:")
            try:
                good = does[part](lab, options)
                lab.restore()
            except BaseException:
                keep(lab)
                raise
            print(f"    {'ok' if good else 'FAILED'}, {time.monotonic() - begun:.0f} s")
            if not good:
                bad.append(part)
        if bad or options.keep:
            keep(lab)
    return 1 if bad else 0


def make(options):
    """Makes the lab of a filesystem, without power."""
    namespaces = {"gluster": GlusterLab, "moosefs": MooseLab, "cephfs": CephLab}
    if options.fs in namespaces:
        return namespaces[options.fs](options.ringreel)
    # Linux's default is 90 s, which is most of a short storm.
    grace = options.grace or (90 if options.seconds >= 300 else 20)
    return NfsLab(options.ringreel, options.images, options.fs, grace)


def keep(lab):
    """Keeps the logs of a failed part in a directory for the user."""
    failed = FAILED / lab.name
    shutil.rmtree(failed, ignore_errors=True)
    large = ("brick", "shared", "truth", "disk.img", "program.tar", "vl.*", "*.monitor")
    own = ("run", "bin", "munge*", "spool*", "state", "manifests")
    shutil.copytree(lab.dir, failed, ignore=shutil.ignore_patterns(*large, *own))
    print(f"    the logs are in {failed}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
