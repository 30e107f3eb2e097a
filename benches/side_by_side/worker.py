"""Measures the peers of one file: `python worker.py FILE`, in the interpreter that they need.

It imports the peers' packages and does nothing else. For each request, a JSON object on a line of stdin, it forks: the
child measures one phase and writes its answer, a line of JSON, to stdout. So no phase profits from what an earlier
one left in memory, and no phase waits for imports.
"""

import importlib
import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from peer import Peer, Reader, Reading
from samples import WORKLOADS, Samples, touch


def told(peer: Peer) -> dict[str, Any]:
    """Describes a peer to the run: its properties, or why it is missing."""
    keys = ("name", "api", "language", "venv", "workloads", "places", "share", "random", "opens")
    said: dict[str, Any] = {key: getattr(peer, key) for key in keys} | {"reads": list(peer.reads)}
    try:
        lacking = peer.lacking()
        return {**said, "missing": lacking} if lacking else {**said, "versions": peer.versions()}
    except Exception as error:
        return {**said, "missing": f"{type(error).__name__}: {error}"}


def directory_bytes(directory: Path) -> int:
    """Bytes that files occupy, without holes."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def settle(directory: Path, size: int) -> None:
    """Makes conditions equal for all peers: writes back dirty pages, and uses memory for `size` bytes.
    (The host of a virtual machine may have to find pages that were unused for long, which made write(2) up to ten
    times slower.)"""
    file = directory / "settle"
    with open(file, "wb", buffering=0) as out:
        block = bytes(1 << 20)
        for _ in range(size * 9 // 8 >> 20):
            out.write(block)
    file.unlink()
    os.sync()


def forget(directory: Path) -> None:
    """Drops these files from the page cache, so that reading them waits for the disk."""
    os.sync()  # dirty pages cannot be dropped
    for path in directory.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    directory = Path(request["directory"])
    samples = Samples(Path(request["pool"]), WORKLOADS[request["workload"]], request["count"])
    target = peer.create(directory, samples)
    spent, begin = time.process_time(), time.perf_counter()
    peer.write(target, samples)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - spent
    return {"seconds": seconds, "cpu": cpu, "stored": directory_bytes(directory)}


def read(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    what = Reading(Path(request["directory"]), WORKLOADS[request["workload"]], request["count"])
    order = np.random.default_rng(request["seed"]).permutation(what.count)
    begin = time.perf_counter()
    reader = peer.open(what, **peer.reads[request["variant"]])
    opened = time.perf_counter() - begin
    passes, spent, sums = [], [], set()
    for _ in range(1 + request["later"]):
        total = 0
        cpu, begin = time.process_time(), time.perf_counter()
        for buffer in reader.shuffled(order) if request["phase"] == "random" else reader.sequential():
            total += touch(buffer)
        passes.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
        sums.add(total)
    if len(sums) != 1:
        raise ValueError("two passes over the same samples gave different bytes")
    found = {"seconds": passes[0], "later": passes[1:], "cpu": spent[0], "cpu later": spent[1:]}
    return {**found, "opened": opened}


def first(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    """Opens the samples and reads the first one."""
    what = Reading(Path(request["directory"]), WORKLOADS[request["workload"]], request["count"])
    begin = time.perf_counter()
    touch(peer.open(what, **peer.reads[request["variant"]]).first(request["how"]))
    return {"seconds": time.perf_counter() - begin}


def verify(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    """Compares every byte with what was written."""
    work = WORKLOADS[request["workload"]]
    samples = Samples(Path(request["pool"]), work, request["count"])
    reader = peer.open(Reading(Path(request["directory"]), work, request["count"]), **peer.reads[request["variant"]])
    compare(reader, "sequential", reader.sequential(), samples, range(len(samples)))
    if peer.random:
        order = np.random.default_rng(1).permutation(len(samples))
        compare(reader, "random", reader.shuffled(order), samples, order)
    return {"bytes": work.sample_bytes * len(samples)}


def compare(reader: Reader, way: str, buffers: Any, samples: Samples, order: Any) -> None:
    size = samples.workload.sample_bytes
    held, at = np.empty(0, np.uint8), 0
    for buffer in buffers:
        array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
        # Wirehead returns images as float32.
        held = np.concatenate([held, np.ascontiguousarray(array).reshape(-1).astype(np.uint8, copy=False)])
        whole = len(held) // size
        for n in range(whole):
            want = np.concatenate([part.reshape(-1) for part in samples[int(order[at])]])
            if not np.array_equal(held[n * size : (n + 1) * size], want):
                raise ValueError(f"sample {order[at]} differs from what was written ({way})")
            at += 1
        held = held[whole * size :].copy()
    if at != len(samples) or len(held):
        raise ValueError(f"{at} of {len(samples)} samples were read, and {len(held)} bytes more ({way})")


PHASES = {"write": write, "sequential": read, "random": read, "first": first, "verify": verify}


def answer(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    try:
        measure = getattr(peer, "measure", None)  # a peer that is a separate program measures itself
        return measure(request) if measure else PHASES[request["phase"]](peer, request)
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()}


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirects what packages print
    peers = {peer.name: peer for peer in importlib.import_module(f"peers.{sys.argv[1]}").PEERS}
    print(json.dumps([told(peer) for peer in peers.values()]), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["phase"] == "write":
            shutil.rmtree(request["directory"], ignore_errors=True)
            Path(request["directory"]).mkdir(parents=True)
            settle(Path(request["directory"]), WORKLOADS[request["workload"]].sample_bytes * request["count"])
        if request.get("cold"):
            forget(Path(request["directory"]))
        pid = os.fork()
        if pid == 0:
            print(json.dumps(answer(peers[request["peer"]], request)), file=out, flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            print(json.dumps({"error": f"the process ended with status {status}"}), file=out, flush=True)


if __name__ == "__main__":
    main()
