"""What every lab provides: a server and nodes that share a filesystem, and faults.

The parts (storm.py, skip.py, late.py, ...) use only this interface, so they run on each filesystem.

- `lab.dir` is a directory of the host. A node has a separate directory at the same path;
  `lab.sync()` copies what its processes write there to the host.
- `lab.shared` is the shared filesystem, at the same path on each node. `lab.on_server(path)` is the
  path of the same file on the server's own disk.
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
    """How a command ended. `status` is None if it did not end in time."""

    status: int | None
    out: str
    err: str


@dataclass
class Fault:
    """A fault that lasts `seconds`, and how to undo it."""

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
    # The configuration keys for the index of the ring {name}.
    index = "INDEX: files\n"
    # Seconds for which every process may wait after the server was away.
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
        """Writes a file below `dir` on each node. It is restored when a node lost its power."""
        raise NotImplementedError

    def sync(self):
        """Copies what processes on the nodes and the server wrote below `dir` to the host."""

    def on_server(self, path):
        """The path of a file below `shared` on the server's own disk."""
        raise NotImplementedError

    def manifests(self, ring):
        """A host directory with copies of a ring's manifests, as stored on the server's disk."""
        raise NotImplementedError

    def late_watch(self, ring):
        """The program in guest/ that reports late links on the server, and its arguments."""
        return "watch.py", self.on_server(ring)

    def promoted(self, ring):
        """{generation: the time its manifest was published, by the server's clock}."""
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
        """Requests to the server so far: {client: Counter of operations}."""
        raise NotImplementedError

    def drop_caches(self, node):
        """Empties a node's page cache, so that it reads from the server."""
        raise NotImplementedError
