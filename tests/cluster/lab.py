"""A cluster on one machine: a server, and nodes that share a GlusterFS volume and run SLURM jobs.

Each machine is a set of Linux namespaces (network, mounts, processes, host name) that one process holds. When that
process ends, everything in the machine ends with it, as if its power was cut, and it ends with this program, however
this program ends. So nothing is left behind but the lab's own directory, which is in /tmp.

The network is a bridge in the server's namespace; no packet leaves it. Needs root, what scripts/cluster.sh installs.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ADDRESS = "10.77.0.%d"
SERVER = ADDRESS % 1
VOLUME = "ring"
# GlusterFS keeps up to 65,536 directories of its own, a few more with each file, and never removes one.
INODES = 400_000
INIT = "hostname %s && ip link set lo up && echo ready && while :; do sleep 1d & wait; done"


class LabError(Exception):
    """The lab itself does not work."""


def sh(*command, check=True, timeout=60):
    """Run a command on the host; its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise LabError(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def until(what, condition, seconds=30.0, pause=0.1):
    """Wait for a condition; its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise LabError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
    return value


def child_of(pid):
    """The first child of a process, or none."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


class Process:
    """A process in a machine, with a name and a log."""

    def __init__(self, machine, name, command, stdout, stderr):
        self.machine, self.name = machine, name
        self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def send(self, number):
        """Signal the process itself, not the one that leads into the machine."""
        inner = child_of(self.popen.pid)
        try:
            os.kill(inner or self.popen.pid, number)
        except ProcessLookupError:
            pass

    def ended(self):
        """Its exit status; none while it runs. What it was killed by is negative."""
        return self.popen.poll()

    def end(self, number=signal.SIGKILL, seconds=60):
        """Signal it, and wait for its end; its exit status."""
        while self.ended() is None:
            self.send(number)
            try:
                return self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                number = signal.SIGKILL
        return self.ended()


class Machine:
    """One machine of the lab."""

    def __init__(self, name, number):
        self.name, self.number, self.link = name, number, f"v{name}"
        self.holder = self.pid = None

    def start(self):
        """Power on."""
        namespaces = ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "bash", "-c", INIT % self.name]
        self.holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline().strip() != "ready":
            raise LabError(f"no namespaces can be made for {self.name}")
        self.pid = child_of(self.holder.pid)

    def stop(self):
        """Cut its power: everything in it is gone at once."""
        if self.holder:
            self.holder.kill()
            self.holder.wait()
            self.holder.stdout.close()
            self.holder = self.pid = None

    def alive(self):
        """Whether it has power."""
        return self.holder is not None

    def path(self, path):
        """A path of this machine, as the host can use it."""
        return Path(f"/proc/{self.pid}/root") / str(path).lstrip("/")

    def enter(self, *command):
        """The command line that runs a command in this machine."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--pid", "--", *map(str, command)]

    def run(self, *command, check=True, timeout=60):
        """Run a command in this machine; its output."""
        return sh(*self.enter(*command), check=check, timeout=timeout)

    def spawn(self, name, *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        """Start a command in this machine."""
        return Process(self, name, self.enter(*command), stdout, stderr)

    def ip(self, *command):
        """Change its network. (In the host's numbering of processes.)"""
        return sh("nsenter", f"--target={self.pid}", "--net", "--", "ip", *command)


class Lab:
    """A server with a disk of `disk_mb`, and nodes that see it at `shared`."""

    def __init__(self, nodes=2, disk_mb=2048):
        self.dir = Path(tempfile.mkdtemp(prefix="ringreel-cluster."))
        self.dir.chmod(0o755)
        self.shared = self.dir / "shared"
        self.logs = self.dir / "logs"
        self.disk_mb = disk_mb
        self.server = Machine("server", 1)
        self.nodes = [Machine(f"node{n}", 11 + n) for n in range(nodes)]

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
        """Power, network, filesystem."""
        for directory in (self.shared, self.logs, self.dir / "brick", self.dir / "run"):
            directory.mkdir()
        self.server.start()
        for command in ("add br0 type bridge", "set br0 up"):
            self.server.ip("link", *command.split())
        self.server.ip("addr", "add", f"{SERVER}/24", "dev", "br0")
        self.start_glusterfs()
        for node in self.nodes:
            self.start_node(node)

    def stop(self):
        """Everything off, and nothing left but, after a failure, the logs that the caller copied."""
        for machine in (*self.nodes, self.server):
            machine.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start_node(self, node):
        """Power on, and mount the shared filesystem."""
        node.start()
        subprocess.run(self.network("link", "del", node.link), capture_output=True)  # of an earlier life
        self.server.ip("link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.pid)
        self.server.ip("link", "set", node.link, "master", "br0", "up")
        node.ip("addr", "add", f"{ADDRESS % node.number}/24", "dev", "eth0")
        node.ip("link", "set", "eth0", "up")
        log = self.logs / f"glusterfs-{node.name}.log"
        where = [f"--volfile-server={SERVER}", f"--volfile-id=/{VOLUME}", f"--log-file={log}"]
        node.run("glusterfs", "--process-name", "fuse", *where, self.shared)
        mounted = f" {self.shared} fuse.glusterfs "
        until(f"the mount on {node.name}", lambda: mounted in Path(f"/proc/{node.pid}/mounts").read_text())
        until(f"an answer on {node.name}", lambda: os.access(node.path(self.shared), os.W_OK))

    def network(self, *command):
        """The command line that changes the server's network."""
        return ["nsenter", f"--target={self.server.pid}", "--net", "--", "ip", *map(str, command)]

    # The filesystem

    def start_glusterfs(self):
        """One volume on one disk, with default options."""
        run, brick, image = self.dir / "run", self.dir / "brick", self.dir / "disk.img"
        image.touch()
        os.truncate(image, self.disk_mb << 20)
        sh("mkfs.ext4", "-q", "-F", "-N", INODES, image)
        self.server.run("mount", "-o", "loop", image, brick)
        options = {
            "working-directory": run,
            "run-directory": run / "run",
            "glusterd-sockfile": run / "glusterd.sock",
            "transport-type": "socket",
            "transport.address-family": "inet",
            "transport.socket.bind-address": SERVER,
            "base-port": 49152,
            "max-port": 49251,
            "ping-timeout": 0,
            "event-threads": 1,
        }
        (run / "run").mkdir()
        lines = "".join(f"    option {key} {value}\n" for key, value in options.items())
        (run / "glusterd.vol").write_text(f"volume management\n    type mgmt/glusterd\n{lines}end-volume\n")
        log = self.logs / "glusterd.log"
        self.server.run("glusterd", "-f", run / "glusterd.vol", "-p", run / "glusterd.pid", "-l", log)
        until("glusterd", lambda: "UUID" in self.gluster("system::", "uuid", "get", check=False))
        self.gluster("volume", "create", VOLUME, f"{SERVER}:{brick}/data", "force")
        self.gluster("volume", "start", VOLUME)

    def gluster(self, *command, check=True):
        """The command `gluster` on the server."""
        sock = f"--glusterd-sock={self.dir / 'run' / 'glusterd.sock'}"
        return self.server.run("gluster", "--mode=script", sock, *command, check=check)

    @property
    def brick(self):
        """The shared filesystem as it lies on the server's disk: the truth, that no client has a stale view of."""
        return self.server.path(self.dir / "brick" / "data")

    # What may happen to a cluster

    def cut(self, node):
        """The node's cable is pulled."""
        self.server.ip("link", "set", node.link, "down")

    def heal(self, node):
        """And put back."""
        self.server.ip("link", "set", node.link, "up")

    def kill_brick(self):
        """The process that serves the files is killed."""
        pid_file = next((self.dir / "run").glob(f"run/vols/{VOLUME}/*.pid"))
        self.server.run("kill", "-9", pid_file.read_text().strip())

    def start_brick(self):
        """And started again. (At first, glusterd may think that it still lives.)"""

        def starts():
            self.gluster("volume", "start", VOLUME, "force", check=False)
            return " Y " in self.gluster("volume", "status", VOLUME, check=False)

        until("the brick", starts, pause=1.0)

    def fill_disk(self):
        """Somebody else fills the server's disk."""
        room = os.statvfs(self.brick)
        sh("fallocate", "--length", room.f_bavail * room.f_frsize - (1 << 16), self.brick.parent / "filler")

    def free_disk(self):
        """And removes it again."""
        (self.brick.parent / "filler").unlink(missing_ok=True)
