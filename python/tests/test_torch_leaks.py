"""Epochs in torch's DataLoader leak no resources, and a killed trainer leaves nothing behind."""

import json
import os
import signal

import numpy as np
import pytest
from conftest import Script, add, until

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: leaks of ringreel.torch are NOT tested")

# Size in bytes of a part that is mapped and does not end at a page boundary.
LARGE = 300_001

GENERATE = f"""
    import itertools, json, sys, time
    import numpy as np, ringreel

    def samples():
        for n in itertools.count():
            yield {{"data": np.full({LARGE}, n % 251, np.uint8), "label": np.full(3, n)}}
            time.sleep(0.004)

    ringreel.run_generator(samples(), json.loads(sys.argv[1]))
"""

TRAIN = f"""
    import ctypes, gc, json, os, sys
    import torch, ringreel.torch

    keys, kind, collate, epochs = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

    def loader_of(**options):
        if kind == "stream":
            dataset = ringreel.torch.RingStream(keys, shuffle=True, **options)
        else:
            dataset = ringreel.torch.RingDataset(keys)
        return torch.utils.data.DataLoader(
            dataset,
            2,
            shuffle=kind == "dataset" or None,
            num_workers=4,
            persistent_workers=True,
            collate_fn=ringreel.torch.collate if collate == "ours" else torch.utils.data.default_collate,
        )

    def taken(pid):
        with open(f"/proc/{{pid}}/maps") as maps:
            maps = len(maps.readlines())
        with open(f"/proc/{{pid}}/status") as status:
            status = dict(line.split(":", 1) for line in status)
        files, threads = len(os.listdir(f"/proc/{{pid}}/fd")), int(status["Threads"])
        memory = [int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")]
        return dict(zip(("files", "maps", "threads", "kB", "shared kB"), (files, maps, threads, *memory)))

    loader = loader_of(epochs=1)
    generations = set()
    for epoch in range(1, epochs + 1):
        batches = 0
        for batch in loader:
            assert batch["data"].shape == (2, {LARGE})
            assert (batch["data"] == batch["label"][:, :1] % 251).all()
            generations.add(int(batch["label"][0, 0]) // keys["SWAP_CAP"])
            batches += 1
        assert batches == keys["SWAP_CAP"] // 2, batches
        if kind == "dataset":
            loader.dataset.refresh()
        if epoch % 10 == 0:
            del batch
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # memory that the allocator keeps free varies
            workers = [worker.pid for worker in loader._iterator._workers]
            found = {{"trainer": taken(os.getpid())}}
            found |= {{f"worker {{n}}": taken(pid) for n, pid in enumerate(workers)}}
            print("epoch", epoch, json.dumps(found))
    if epochs:
        print("generations", len(generations))
        sys.exit()
    loader = loader_of()
    batches = iter(loader)
    print("workers", *[worker.pid for worker in batches._workers])
    while True:
        for batch in batches:
            pass
        batches = iter(loader)
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("leaks") / "ring")
    keys = {"RING": path, "SAMPLE": ["data", "label"], "SWAP_CAP": 16, "KEEP": 8}
    # Without RUN_GRACE, the generations of a killed run are kept no longer than its lease.
    return {**keys, "LEASE_SECONDS": 1, "POLL_SECONDS": 0.02, "RUN_GRACE": 0}


@pytest.fixture(scope="module")
def start(tmp_path_factory, keys):
    """Starts trainers, beside a generator."""
    directory = tmp_path_factory.mktemp("scripts")
    started = [Script(directory, GENERATE, json.dumps(keys))]

    def start(*args):
        started.append(Script(directory, TRAIN, json.dumps(keys), *args))
        return started[-1]

    start.generator = started[0]
    yield start
    for each in started:
        each.child.kill()
        each.child.wait()


KINDS = [("stream", "ours"), ("stream", "default"), ("dataset", "ours"), ("dataset", "default")]


@pytest.fixture(scope="module")
def trainers(start):
    """A trainer of each kind, 50 epochs each, at the same time."""
    before = in_shared_memory()
    started = {kind: start(*kind, 50) for kind in KINDS}
    for trainer in started.values():
        trainer.end(seconds=600)
    assert in_shared_memory() <= before
    return started


def in_shared_memory():
    return {name for name in os.listdir("/dev/shm") if name.startswith("torch_")}


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_resources_do_not_grow_from_epoch_to_epoch(trainers, keys, kind):
    """Compares open files, maps, threads and memory of the trainer and of each persistent worker."""
    trainer = trainers[kind]
    assert trainer.child.returncode == 0, trainer.said
    found = {}
    for line in trainer.said.splitlines():
        if line.startswith("epoch"):
            _, epoch, figures = line.split(maxsplit=2)
            found[int(epoch)] = json.loads(figures)
            print(*kind, line)
    assert list(found) == [10, 20, 30, 40, 50]
    assert int(trainer.said.split("generations")[1]) > 5
    # A dataset keeps a varying number of its generation's files open.
    more = keys["SWAP_CAP"] if kind[0] == "dataset" else 4
    for process, last in found[50].items():
        first = found[10][process]
        assert last["files"] <= first["files"] + more, process
        assert last["threads"] <= first["threads"], process
        assert last["maps"] <= first["maps"] + more, process
        assert last["kB"] <= first["kB"] + 4000 and last["shared kB"] <= first["shared kB"] + 4000, process


def test_killed_trainers_leave_nothing_behind(start, keys):
    """Their workers exit, no generation is kept for them after their leases, and generators continue."""
    before = in_shared_memory()
    ring = ringreel.Ring(keys)

    def reading():
        """Returns the processes with a heartbeat within a lease."""
        readers = ring.status()["readers"]
        return {reader["pid"] for reader in readers if reader["silent_seconds"] < keys["LEASE_SECONDS"]}

    trainers = {kind: start(*kind, 0) for kind in KINDS[:3]}
    workers = {}
    for kind, trainer in trainers.items():
        trainer.wait_for("workers", 60)
        workers[kind] = {int(pid) for pid in trainer.said.split("workers")[1].split()}
    assert [len(pids) for pids in workers.values()] == [4, 4, 4]
    until(lambda: reading() == workers["stream", "ours"] | workers["stream", "default"])
    for trainer in trainers.values():
        trainer.end(signal.SIGKILL)
    until(lambda: not any(lives(pid) for pids in workers.values() for pid in pids), 20)
    until(lambda: reading() == set(), 20)
    assert in_shared_memory() <= before
    swaps = ring.status()["swaps"]
    until(lambda: ring.status()["swaps"] > swaps + 2)
    # KEEP, and the newest one, which may just have been promoted.
    until(lambda: len([name for name in os.listdir(ring.path) if name.startswith("read.")]) <= keys["KEEP"] + 2)
    assert start.generator.child.poll() is None


FULL_PIPE = """
    import json, sys, time
    import torch, ringreel.torch

    if __name__ == "__main__":
        dataset = ringreel.torch.RingDataset(json.loads(sys.argv[1]))
        collate, context = ringreel.torch.collate, sys.argv[2]
        options = {"collate_fn": collate, "multiprocessing_context": context}
        batches = iter(torch.utils.data.DataLoader(dataset, 1, num_workers=3, **options))
        next(batches)
        print("workers", *[worker.pid for worker in batches._workers])
        time.sleep(600)
"""


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("part", [np.zeros(65_500, np.uint8), bytes(300_000)], ids=["array", "bytes"])
def test_workers_with_a_full_pipe_end_with_a_killed_trainer(config, script, part, context):
    """The pipe to which the workers still write has no reader."""
    ring = ringreel.Ring(config(SWAP_CAP=16))
    add(ring, [{"data": part}] * 16)
    trainer = script(FULL_PIPE, json.dumps(config(SWAP_CAP=16)), context)
    trainer.wait_for("workers", 60)
    workers = [int(pid) for pid in trainer.said.split("workers")[1].split()]
    until(lambda: all(map(sleeps, workers)), 60)
    trainer.end(signal.SIGKILL)
    until(lambda: not any(map(lives, workers)), 60)


def sleeps(pid):
    """Returns whether all threads of a process are blocked."""
    states = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat") as file:
            states.append(file.read().rsplit(")", 1)[1].split()[0])
    return set(states) == {"S"}
