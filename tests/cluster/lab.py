"""What every lab offers: a server and nodes that share a filesystem, and the faults it can make.

The parts (storm.py, skip.py, late.py, ...) use only what is here, so they run on each filesystem.

- `lab.dir` is a directory of the host. A node sees a directory of its own at the same path, and
  what its processes write there comes to the host by `lab.sync()`.
- `lab.shared` is the shared filesystem, at the same path on each node. `lab.on_server(path)` is the
  same file as the server names it on its own disk.
- A machine has `name`, `number`, `alive()`, `stop()` (cuts its power), `run()`, `do()`, `spawn()`.
"""

import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


class LabError(Exception):
    """The lab itself does not work."""


@dataclass
class Done:
    """How a command ended. `status` is None where it did not end in time."""

    status: int | None
    out: str
    err: str


@dataclass
class Fault:
    """Something that happens to a cluster for `seconds`."""

    name: str
    seconds: float
    act: object
    undo: object


@dataclass
class Pace:
    """The load that a lab can bear: generators per node, samples per second, and so on."""

    generators: int
    rate: float
    cap: int
    lease: float
    kill_every: float
    late_generators: int


def sh(*command, check=True, timeout=60):
    """Runs a command on the host and returns its output."""
    done = do(command, timeout)
    if check and done.status != 0:
        words = " ".join(map(str, command))
        raise LabError(f"{words}: status {done.status}: {done.out}{done.err}")
    return done.out


def do(command, timeout):
    """Runs a command on the host and returns how it ended."""
    command = list(map(str, command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        return Done(None, str(error.stdout or ""), f"no end within {timeout} s")
    return Done(done.returncode, done.stdout, done.stderr)


def until(what, condition, seconds=30.0, pause=0.1):
    """Waits for a condition and returns its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise LabError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
    return value


class Lab:
    """A server and nodes. Subclasses make the machines and the filesystem."""

    name = ""
    pace = Pace(3, 15, 30, 2, 1.5, 6)
    # What the configuration of the ring {name} says of its index.
    index = "INDEX: files\n"
    # Seconds for which everybody may wait after the server was away.
    grace = 0.0

    def __init__(self, ringreel):
        self.dir = Path(tempfile.mkdtemp(prefix="ringreel-cluster."))
        self.dir.chmod(0o755)
        self.shared = self.dir / "shared"
        self.logs = self.dir / "logs"
        self.logs.mkdir()
        self.ringreel = ringreel
        self.server, self.nodes = None, []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Turns on the power, the network and the filesystem."""
        raise NotImplementedError

    def stop(self):
        """Turns everything off and removes the lab's directory."""
        for machine in (*self.nodes, self.server):
            if machine:
                machine.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def part(self, name):
        """Makes a directory for a part of the run, on the host and on each node."""
        raise NotImplementedError

    def put(self, path, text):
        """Writes a file below `dir` on each node. It is there again after a node lost its power."""
        raise NotImplementedError

    def sync(self):
        """Brings what processes on the nodes and the server wrote below `dir` to the host."""

    def on_server(self, path):
        """The server's own path of a file below `shared`."""
        raise NotImplementedError

    def manifests(self, ring):
        """A directory of the host with a ring's manifests, as they are on the server's disk."""
        raise NotImplementedError

    def late_watch(self, ring):
        """Returns the program of guest/ that reports late links on the server, and its words."""
        return "watch.py", self.on_server(ring)

    def promoted(self, ring):
        """{generation: when its manifest came, by the server's clock}."""
        where = self.on_server(self.shared / ring) / "manifests"
        told = self.server.run("find", where, "-name", "[0-9]*", "-printf", "%f %T@\n")
        return {int(line.split()[0]): float(line.split()[1]) for line in told.splitlines()}

    def start_node(self, node):
        """Turns on a node and mounts the shared filesystem on it."""
        raise NotImplementedError

    def faults(self, seconds):
        """The faults of a storm of `seconds`, in order."""
        raise NotImplementedError

    def restore(self):
        """Undoes what a part did to the mounts."""

    def requests(self):
        """Requests to the server so far: {whose: Counter of operations}."""
        raise NotImplementedError

    def drop_caches(self, node):
        """Empties a node's page cache, so that it reads from the server."""
        raise NotImplementedError
