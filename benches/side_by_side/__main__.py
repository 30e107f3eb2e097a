"""Compares ringreel with other formats for samples in files: writing, reading in order, reading in any order.

    make bench                                      # installs, runs all, writes docs/internals/benchmarks.*
    .venv-bench/bin/python benches/side_by_side --quick
    .venv-bench/bin/python benches/side_by_side --peers 'ringreel|Arrow|plain' --workloads page --rounds 9

The same consumer reads every byte for all peers. The same run has two baselines: the same bytes written by write(2) to
a new file, and that file mapped and read. Each phase of each peer runs in a separate process; peers alternate, in a
different order each round; the first round is not counted, and verifies every byte that every peer returns. Each
file in `peers/` defines one or more peers.
"""

import argparse
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import report
from machine import facts, filesystem
from samples import WORKLOADS, make_pool

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONTENTS = ("random", "brain")
# A longer time counts as a failure.
LIMIT_SECONDS = 300


class Gone(Exception):
    """A peer's process has exited."""


class Worker:
    """The process that runs the peers of one file."""

    def __init__(self, file: str) -> None:
        venv = re.search(r'^    venv(?:: str)? = "(.*)"', (HERE / "peers" / f"{file}.py").read_text(), re.MULTILINE)
        self.venv = venv[1] if venv else ".venv-bench"
        python = ROOT / self.venv / "bin/python"
        if not python.exists():
            raise Gone(f"{self.venv} is missing: benches/side_by_side/setup.sh")
        self.log = tempfile.TemporaryFile("w+")
        command = [str(python), str(HERE / "worker.py"), file]
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.log, text=True)

    def line(self) -> Any:
        heard, _, _ = select.select([self.child.stdout], [], [], LIMIT_SECONDS)
        if not heard:
            self.child.kill()
            raise Gone(f"its process did not answer within {LIMIT_SECONDS} s")
        line = self.child.stdout.readline()
        if not line:
            self.log.seek(0)
            said = self.log.read().strip().splitlines()
            raise Gone(f"its process ended: {said[-1] if said else 'without output'}")
        return json.loads(line)

    def end(self) -> None:
        self.child.stdin.close()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Running:
    """A peer and the process that measures it."""

    def __init__(self, worker: Worker, peer: dict[str, Any]) -> None:
        self.worker, self.peer, self.name = worker, peer, peer["name"]

    def ask(self, **request: Any) -> dict[str, Any]:
        try:
            print(json.dumps({**request, "peer": self.name}), file=self.worker.child.stdin, flush=True)
        except OSError as error:
            raise Gone(f"its process is gone: {error}") from error
        answer = self.worker.line()
        if "error" in answer:
            where = answer.get("where", "")
            raise Gone(f"{request['workload']}, {request['phase']}: {answer['error']}\n{where}")
        return answer


def start(wanted: str) -> tuple[list[Running], dict[str, str]]:
    """Returns the peers whose names match, and the reasons why others are missing."""
    running, missing, workers = [], {}, {}
    for file in sorted(path.stem for path in (HERE / "peers").glob("*.py")):
        try:
            workers[file] = Worker(file)
        except Gone as error:
            missing[file] = str(error)
    for file, worker in workers.items():
        try:
            peers = [peer for peer in worker.line() if re.search(wanted, peer["name"])]
        except Gone as error:
            missing[file] = str(error)
            continue
        missing |= {peer["name"]: peer["missing"] for peer in peers if "missing" in peer}
        found = [Running(worker, peer) for peer in peers if "missing" not in peer]
        running += found
        if not found:
            worker.end()
    for name, why in missing.items():
        print(f"MISSING: {name}: {why}", file=sys.stderr, flush=True)
    return running, missing


class Run:
    """Runs one cell after the other: a workload, a content, a place."""

    def __init__(self, args: argparse.Namespace, running: list[Running], missing: dict[str, str]) -> None:
        self.args, self.running, self.missing = args, running, missing
        self.measured: list[dict[str, Any]] = []
        self.verified: dict[str, int] = {}

    def cell(self, workload: str, content: str, place: str, directory: Path, pool: Path) -> None:
        work = WORKLOADS[workload]
        peers = [peer for peer in self.running if workload in peer.peer["workloads"] and place in peer.peer["places"]]
        for turn in range(self.args.rounds + 1):
            begin = time.monotonic()
            shift = turn % max(1, len(peers))
            for peer in peers[shift:] + peers[:shift]:
                if peer.name in self.missing:
                    continue
                api = peer.peer["api"] if peer.peer["api"] in work.share else "one"
                count = work.count(self.args.mb << 20, api, peer.peer["share"].get(workload, 1))
                key = {"peer": peer.name, "workload": workload, "content": content, "place": place}
                given = {"directory": str(directory / "data"), "pool": str(pool), "count": count, "seed": turn}
                try:
                    self._turn(peer, turn, {**given, "workload": workload}, key)
                except Gone as error:
                    self.missing[peer.name] = str(error)
                    print(f"FAILED: {peer.name}: {error}", file=sys.stderr, flush=True)
                shutil.rmtree(directory / "data", ignore_errors=True)
            seconds = time.monotonic() - begin
            print(f"  {workload}, {content}, {place}: round {turn}: {seconds:.1f} s", file=sys.stderr, flush=True)

    def _turn(self, peer: Running, turn: int, given: dict[str, Any], key: dict[str, Any]) -> None:
        size = WORKLOADS[given["workload"]].sample_bytes
        orders = ["sequential", "random"] if peer.peer["random"] else ["sequential"]
        phases = [("write", ""), *itertools.product(orders, variants(peer.peer, given["workload"]))]
        if given["workload"] == "large" and key["place"] == "disk":
            # There are too few small samples to measure a disk with them.
            phases += [(f"{order} cold", peer.peer["reads"][0]) for order in orders]
        for phase, variant in phases:
            asked, cold = phase.removesuffix(" cold"), phase.endswith(" cold")
            later = 0 if cold else self.args.later
            answer = peer.ask(**given, phase=asked, cold=cold, later=later, variant=variant)
            if turn:
                row = {**key, "round": turn, "phase": phase, "variant": variant, "count": given["count"]}
                self.measured.append({**row, "bytes": given["count"] * size, **answer})
        if not turn:
            for variant in variants(peer.peer, given["workload"]):
                done = peer.ask(**given, phase="verify", later=0, variant=variant)
                self.verified[peer.name] = self.verified.get(peer.name, 0) + done["bytes"]


def variants(peer: dict[str, Any], workload: str) -> list[str]:
    """The ways to read. The checksum of a small part is the one of its sample's head, which is always compared."""
    return [name for name in peer["reads"] if not (name == "unchecked" and workload == "tiny")]


def opening(running: list[Running], directory: Path, pool: Path, rounds: int) -> list[dict[str, Any]]:
    """Measures from opening a ring of a million samples to its first sample. Rust writes it if possible, for speed."""
    ours = [peer for peer in running if "ringreel" in peer.name and "batches" not in peer.name]
    ours.sort(key=lambda peer: "Rust" not in peer.name)
    given = {"directory": str(directory / "data"), "pool": str(pool), "count": 1_000_000, "seed": 0}
    given |= {"workload": "tiny", "later": 0, "variant": "checked"}
    found = []
    try:
        if ours:
            ours[0].ask(**given, phase="write")
        for _ in range(rounds):
            for peer in ours:
                for how in peer.peer["opens"]:
                    name = f"{peer.name}, {how}" if how else peer.name
                    found.append({"peer": name, **peer.ask(**given, phase="first", how=how)})
    except Gone as error:
        print(f"FAILED: a million samples: {error}", file=sys.stderr, flush=True)
    shutil.rmtree(directory / "data", ignore_errors=True)
    return found


def fresh(where: Any) -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(dir=where, prefix="side_by_side.")


def built() -> str:
    """Builds the Rust program, without the command and MongoDB, which are not measured; returns its path."""
    command = ["cargo", "bench", "--no-run", "--no-default-features", "--bench", "side_by_side"]
    command += ["--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        if said.get("executable") and said["target"]["name"] == "side_by_side":
            return said["executable"]
    raise SystemExit("cargo built no benchmark program")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benches/side_by_side", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=ROOT / "target", help="a directory on the disk to measure")
    parser.add_argument("--mb", type=int, help="maximum MiB that a peer writes (default: 512)")
    parser.add_argument("--rounds", type=int, help="number of counted rounds (default: 5)")
    parser.add_argument("--later", type=int, help="number of passes after the first one (default: 2)")
    quick = "96 MiB, 3 rounds, 1 later pass, random bytes, only tmpfs, unless other options say otherwise"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--peers", default=".", help="regular expression that selects peers by name")
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--contents", nargs="+", choices=CONTENTS)
    parser.add_argument("--places", nargs="+", choices=("tmpfs", "disk"))
    parser.add_argument("--json", type=Path, default=ROOT / "target/side_by_side.json", help="file for raw figures")
    parser.add_argument("--docs", action="store_true", help="write docs/internals/benchmarks.json, .md and .svg too")
    parser.add_argument("--render", type=Path, help="do not run; make tables (with --docs the page) from a JSON file")
    args = parser.parse_args()
    quick = {"mb": 96, "rounds": 3, "later": 1, "contents": ["random"], "places": ["tmpfs"]}
    full = {"mb": 512, "rounds": 5, "later": 2, "contents": list(CONTENTS), "places": ["tmpfs", "disk"]}
    for key, value in (quick if args.quick else full).items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    return args


def main() -> None:
    args = arguments()
    if args.render:
        report.give(json.loads(args.render.read_text()), ROOT / "docs/internals" if args.docs else None)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that files in /dev/shm are removed
    begin = time.monotonic()
    if "RINGREEL_SIDE_BY_SIDE" not in os.environ:
        os.environ["RINGREEL_SIDE_BY_SIDE"] = built()
    running, missing = start(args.peers)
    run = Run(args, running, missing)
    opened: list[dict[str, Any]] = []
    measuring = time.monotonic()
    args.dir.mkdir(parents=True, exist_ok=True)
    with fresh("/dev/shm") as memory, fresh(args.dir) as disk:
        places = {"tmpfs": Path(memory), "disk": Path(disk)}
        pools = {content: Path(memory) / f"{content}.pool" for content in args.contents}
        for content, pool in pools.items():
            make_pool(content, pool)
        filesystems = {place: filesystem(places[place]) for place in args.places}
        try:
            for workload in args.workloads:
                for content in [name for name in args.contents if name in WORKLOADS[workload].contents]:
                    for place in args.places:
                        run.cell(workload, content, place, places[place], pools[content])
            if "tiny" in args.workloads:
                opened = opening(running, places[args.places[-1]], pools[args.contents[0]], args.rounds)
        finally:
            for worker in {id(peer.worker): peer.worker for peer in running}.values():
                worker.end()
    found = {
        "machine": facts(ROOT),
        "settings": {"mb": args.mb, "rounds": args.rounds, "later": args.later, "filesystems": filesystems},
        "seconds": {"all": time.monotonic() - begin, "measuring": time.monotonic() - measuring},
        "peers": {peer.name: peer.peer for peer in running},
        "missing": missing,
        "verified": run.verified,
        "opened": opened,
        "measured": run.measured,
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(report.as_json(found))
    report.give(found, ROOT / "docs/internals" if args.docs else None)
    print(f"\n{args.json}: {found['seconds']['measuring']:.0f} s of measurement", flush=True)


if __name__ == "__main__":
    main()
