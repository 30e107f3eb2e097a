"""Labs whose machines are namespaces of this machine.

Each machine is a set of Linux namespaces (network, mounts, processes, host name) that one process
holds. When that process ends, everything in the machine ends, as in a power cut; it ends with this
program, however this program ends. Only the lab's directory in /tmp can remain.

The network is a bridge in the server's namespace; no packet leaves it. A lab needs root, and the
packages that scripts/cluster.sh installs.
"""

import os
import signal
import subprocess
from pathlib import Path

from lab import Done, Fault, Lab, LabError, do, sh, until

ADDRESS = "10.77.0.%d"
SERVER = ADDRESS % 1
# GlusterFS makes up to 65,536 internal directories, a few more with each file, and removes none.
INODES = 400_000
INIT = "hostname %s && ip link set lo up && echo ready && while :; do sleep 1d & wait; done"


def child_of(pid):
    """The first child of a process, or None."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


class Process:
    """A process in a machine, with a name and a log."""

    def __init__(self, machine, name, command, stdout, stderr):
        self.machine, self.name = machine, name
        self.popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )

    def send(self, number):
        """Signals the process itself, not the one that enters the machine for it."""
        inner = child_of(self.popen.pid)
        try:
            os.kill(inner or self.popen.pid, number)
        except ProcessLookupError:
            pass

    def ended(self):
        """The exit status; None while it runs, negative if a signal killed it."""
        return self.popen.poll()

    def end(self, number=signal.SIGKILL, seconds=60):
        """Signals the process and waits for its end; returns its exit status."""
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
        """Turns the machine on."""
        namespaces = [
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            *namespaces,
            "bash",
            "-c",
            INIT % self.name,
        ]
        self.holder = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        if self.holder.stdout.readline().strip() != "ready":
            raise LabError(f"no namespaces can be made for {self.name}")
        self.pid = child_of(self.holder.pid)

    def stop(self):
        """Cuts its power: all its processes end at once."""
        if self.holder:
            self.holder.kill()
            self.holder.wait()
            self.holder.stdout.close()
            self.holder = self.pid = None

    def alive(self):
        """Whether it has power."""
        return self.holder is not None

    def path(self, path):
        """The host's path of a path in this machine."""
        return Path(f"/proc/{self.pid}/root") / str(path).lstrip("/")

    def enter(self, *command):
        """The command line that runs a command in this machine."""
        return [
            "nsenter",
            f"--target={self.pid}",
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--",
            *map(str, command),
        ]

    def run(self, *command, check=True, timeout=60):
        """Runs a command in this machine; returns its output."""
        return sh(*self.enter(*command), check=check, timeout=timeout)

    def do(self, *command, timeout=60) -> Done:
        """Runs a command in this machine; returns how it ended."""
        return do(self.enter(*command), timeout)

    def spawn(self, name, *command, stdout="/dev/null", stderr="/dev/null"):
        """Starts a command in this machine; appends its output to files."""
        with open(stdout, "ab") as out, open(stderr, "ab") as err:
            return Process(self, name, self.enter(*command), out, err)

    def ip(self, *command):
        """Changes the machine's network. (The pid is the host's.)"""
        return sh("nsenter", f"--target={self.pid}", "--net", "--", "ip", *command)


class NamespaceLab(Lab):
    """A server with a disk of `disk_mb` MB, and nodes that see its filesystem at `shared`."""

    # The filesystem's type in /proc/mounts.
    kind = ""

    def __init__(self, ringreel, nodes=2, disk_mb=2048):
        super().__init__(ringreel)
        self.disk_mb = disk_mb
        self.server = Machine("server", 1)
        self.nodes = [Machine(f"node{n}", 11 + n) for n in range(nodes)]
        # The server's disk.
        self.disk = self.dir / "brick"

    def start(self):
        """Turns on the power, the network and the filesystem."""
        for directory in (self.shared, self.disk, self.dir / "run"):
            directory.mkdir()
        self.server.start()
        for command in ("add br0 type bridge", "set br0 up"):
            self.server.ip("link", *command.split())
        self.server.ip("addr", "add", f"{SERVER}/24", "dev", "br0")
        image = self.dir / "disk.img"
        image.touch()
        os.truncate(image, self.disk_mb << 20)
        sh("mkfs.ext4", "-q", "-F", "-N", INODES, image)
        self.server.run("mount", "-o", "loop", image, self.disk)
        self.start_server()
        for node in self.nodes:
            self.start_node(node)

    def start_server(self):
        """Starts the filesystem's server for the first time."""
        raise NotImplementedError

    def mount(self, machine):
        """Begins to mount the shared filesystem on a machine."""
        raise NotImplementedError

    # The nodes use the host's disk, so nothing has to be copied.

    def part(self, name):
        """Makes a directory on the host."""
        (self.dir / name).mkdir()
        return self.dir / name

    def put(self, path, text):
        """Writes a file on the host."""
        path.write_text(text)

    def manifests(self, ring):
        """The ring's directory on the server, through the host's path."""
        return self.server.path(self.on_server(self.shared / ring)) / "manifests"

    def drop_caches(self, node):
        """Empties the server's cache too, because all machines share one kernel."""
        Path("/proc/sys/vm/drop_caches").write_text("3")

    def start_node(self, node):
        """Turns on a node, and mounts the shared filesystem."""
        node.start()
        subprocess.run(
            self.network("link", "del", node.link), capture_output=True
        )  # of an earlier life
        self.server.ip(
            "link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.pid
        )
        self.server.ip("link", "set", node.link, "master", "br0", "up")
        node.ip("addr", "add", f"{ADDRESS % node.number}/24", "dev", "eth0")
        node.ip("link", "set", "eth0", "up")
        self.wait_mounted(node)

    def wait_mounted(self, machine):
        """Mounts the shared filesystem, and waits until it answers."""
        self.mount(machine)
        mounted = f" {self.shared} {self.kind} "
        until(
            f"the mount on {machine.name}",
            lambda: mounted in Path(f"/proc/{machine.pid}/mounts").read_text(),
        )
        until(f"an answer on {machine.name}", lambda: os.access(machine.path(self.shared), os.W_OK))

    def network(self, *command):
        """The command line that changes the server's network."""
        return ["nsenter", f"--target={self.server.pid}", "--net", "--", "ip", *map(str, command)]

    # Faults

    def faults(self, seconds):
        """The long cut exceeds the 42 s after which a GlusterFS client considers the server dead."""
        short, long = max(2, seconds / 60), max(4, seconds / 9)
        other = self.nodes[1]
        return [
            Fault("short cut", short, lambda: self.cut(other), lambda: self.heal(other)),
            Fault("long cut", long, lambda: self.cut(other), lambda: self.heal(other)),
            *self.server_faults(short),
            Fault("disk full", short, self.fill_disk, self.free_disk),
            Fault("node without power", short, other.stop, lambda: self.start_node(other)),
        ]

    def server_faults(self, seconds):
        """The faults of the filesystem's own processes."""
        raise NotImplementedError

    def cut(self, node):
        """Pulls the node's network cable."""
        self.server.ip("link", "set", node.link, "down")

    def heal(self, node):
        """Plugs the node's network cable in again."""
        self.server.ip("link", "set", node.link, "up")

    def fill_disk(self):
        """Fills the server's disk except for 64 KiB."""
        disk = self.server.path(self.disk)
        room = os.statvfs(disk)
        sh("fallocate", "--length", room.f_bavail * room.f_frsize - (1 << 16), disk / "filler")

    def free_disk(self):
        """Removes the filler."""
        (self.server.path(self.disk) / "filler").unlink(missing_ok=True)
