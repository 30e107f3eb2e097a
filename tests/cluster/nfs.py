"""NFS: a server with nfsd on ext4 and two nodes with the kernel's client, as virtual machines."""

import collections
import random
import re
import subprocess
import time

from lab import Fault, Lab, LabError, Pace
from vm import Vm, program_tar

OPTIONS = {"nfs": "vers=4.2", "nfs3": "vers=3"}
OUT = "/run/lab"


class NfsLab(Lab):
    """The lab. `options` are added to the default mount options."""

    pace = Pace(generators=2, rate=4, cap=20, lease=5, kill_every=4, late_generators=2)

    def __init__(self, ringreel, images, name="nfs", grace=90, disk_mb=4096):
        super().__init__("/usr/bin/ringreel")
        self.name, self.options, self.grace, self.disk_mb = name, OPTIONS[name], grace, disk_mb
        self.files, self.current, self.program = {}, None, ringreel
        port = random.randrange(20000, 30000)
        group = f"230.78.{random.randrange(256)}.{random.randrange(1, 255)}:{port}"
        words = f"lab.grace={grace}"
        self.disk = self.dir / "disk.img"
        self.server = Vm("server", 1, "server", images, self.dir, group, words, self.disk)
        self.nodes = [
            Vm(f"node{n}", 11 + n, "node", images, self.dir, group, words) for n in range(2)
        ]

    def start(self):
        """Turns on all machines at once, and mounts."""
        begun = time.monotonic()
        program_tar(self.program, self.dir)
        self.disk.touch()
        with open(self.disk, "wb") as file:
            file.truncate(self.disk_mb << 20)
        # Without blocks reserved for root, a full disk is full for the server too.
        command = ["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "400000", self.disk]
        subprocess.run(command, check=True, capture_output=True)
        for vm in (self.server, *self.nodes):
            vm.power()
        for vm in (self.server, *self.nodes):
            vm.wait_up()
        for node in self.nodes:
            self.mount(node)
        said = self.nodes[0].do(self.ringreel, "--version")
        if said.status != 0:
            raise LabError(f"{self.program} does not run on the machines: {said.err.strip()}")
        print(
            f"{self.name}: three machines up in {time.monotonic() - begun:.0f} s; {self.mounted()}"
        )

    def mounted(self):
        """The mount options as the kernel reports them."""
        return re.search(rf" {self.shared} nfs4? (\S+)", self.nodes[0].run("cat", "/proc/mounts"))[
            1
        ]

    def mount(self, node, options=None, where=None, what="/ring"):
        """Mounts an export, named by the server's path (NFS 3) or from the root of the exports (4)."""
        options, where = options or self.options, where or self.shared
        path = f"/export{what}" if "vers=3" in options else what
        node.run("mkdir", "-p", where)
        source = f"{self.server.address}:{path}"
        node.run("mount", "-t", "nfs", "-o", options, source, where, timeout=60 + 2 * self.grace)

    def remount(self, more=""):
        """Mounts again with more options, or with the lab's default ones."""
        self.options = ",".join(filter(None, (OPTIONS[self.name], more)))
        for node in self.nodes:
            node.run("umount", self.shared)
            self.mount(node)

    def restore(self):
        """Restores the lab's mount options."""
        if self.options != OPTIONS[self.name]:
            self.remount()

    def start_node(self, node):
        """Turns on a node, mounts, and restores the files that `put` wrote."""
        node.start()
        for path, data in self.files.items():
            node.put(path, data)
        self.mount(node)

    def stop_node(self, node):
        """Copies what a node wrote below `dir` to the host, and cuts its power."""
        self.sync()
        node.stop()

    def part(self, name):
        """Makes the directory on each machine, because nodes have separate disks."""
        self.current, self.files = self.dir / name, {}
        self.current.mkdir()
        self.server.put(self.current / "of", name.encode())
        self.put(self.current / "of", name)
        return self.current

    def put(self, path, text):
        """Writes a file on each node."""
        data = text if isinstance(text, bytes) else text.encode()
        self.files[path] = data
        for node in self.nodes:
            node.put(path, data)

    def sync(self):
        """Copies the files of this part from all machines with power."""
        for vm in (self.server, *self.nodes):
            if vm.alive():
                vm.fetch(self.current, self.current)

    def on_server(self, path):
        """The export is /export/ring."""
        return "/export/ring" / path.relative_to(self.shared)

    def manifests(self, ring):
        """A copy, which grows with each call."""
        here = self.dir / "manifests" / ring
        here.mkdir(parents=True, exist_ok=True)
        self.server.fetch(self.on_server(self.shared / ring) / "manifests", here)
        return here

    def drop_caches(self, node):
        """Each node has a separate kernel."""
        node.run("sh", "-c", "echo 3 > /proc/sys/vm/drop_caches")

    def requests(self):
        """Read from the counters of the client's kernel."""
        told = {}
        for node in self.nodes:
            text = node.run("cat", "/proc/self/mountstats")
            part = text[text.index(f"mounted on {self.shared} with") :]
            part = part[: part.find("\ndevice ")] if "\ndevice " in part else part
            lines = re.finditer(r"^\s+([A-Z_]+): (\d+) \d+ \d+", part, re.M)
            told[node.name] = collections.Counter({line[1]: int(line[2]) for line in lines})
        return told

    # Faults

    def nfsd(self, threads):
        """Stops the server's threads, or starts them."""
        self.server.run("rpc.nfsd", threads)

    def fill_disk(self):
        """Fills the server's disk except for 64 KiB."""
        self.server.run(
            "sh",
            "-c",
            "fallocate -l $(($(df -B1 --output=avail /export | tail -1) - 65536)) /export/filler",
        )

    def free_disk(self):
        """Removes the filler."""
        self.server.run("rm", "-f", "/export/filler")

    def fault(self, name, seconds):
        """Returns a fault by its name."""
        other = self.nodes[1]
        does = {
            "cable": (lambda: other.cable(False), lambda: other.cable(True)),
            "nfsd stopped": (lambda: self.nfsd(0), lambda: self.nfsd(8)),
            "disk full": (self.fill_disk, self.free_disk),
            "server without power": (self.server.stop, self.server.start),
            "node without power": (lambda: self.stop_node(other), lambda: self.start_node(other)),
        }
        return Fault(name, seconds, *does[name])

    def faults(self, seconds):
        """The faults of a storm. A short storm reboots no machine."""
        short = max(2.0, min(12.0, seconds / 30))
        names = ["cable", "nfsd stopped", "disk full"]
        if seconds >= 60:
            names += ["server without power", "node without power"]
        return [self.fault(name, short) for name in names]
