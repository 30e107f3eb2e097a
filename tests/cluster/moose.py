"""MooseFS in a lab of namespaces: a master, a chunk server, nodes with default mount options."""

import collections
import re

from lab import Fault, until
from namespaces import SERVER, NamespaceLab

COMMON = """\
WORKING_USER = root
WORKING_GROUP = root
NICE_LEVEL = 0
DATA_PATH = {data}
SYSLOG_IDENT = {name}
"""
MASTER = """\
EXPORTS_FILENAME = {run}/exports.cfg
TOPOLOGY_FILENAME = {run}/topology.cfg
MATOML_LISTEN_HOST = {server}
MATOCS_LISTEN_HOST = {server}
MATOCL_LISTEN_HOST = {server}
"""
CHUNKSERVER = """\
HDD_CONF_FILENAME = {run}/hdd.cfg
HDD_LEAVE_SPACE_DEFAULT = 64MiB
MASTER_HOST = {server}
MASTER_RECONNECTION_DELAY = 1
CSSERV_LISTEN_HOST = {server}
"""
# The server's own client does not cache.
UNCACHED = "mfsnice=0,mfscachemode=DIRECT,mfsattrcacheto=0,mfsdirentrycacheto=0"


class MooseLab(NamespaceLab):
    """One master, one chunk server, one copy of each chunk."""

    name, kind = "moosefs", "fuse"

    def __init__(self, ringreel):
        # MooseFS keeps removed files in its trash for a day.
        super().__init__(ringreel, disk_mb=6144)
        self.truth = self.dir / "truth"

    def on_server(self, path):
        """The server's own mount, because its disk does not have the files under their names."""
        return self.truth / path.relative_to(self.shared)

    def late_watch(self, ring):
        """The master's log of changes, because inotify does not report other clients' changes."""
        return "changelog.py", self.dir / "run" / "mfsmaster" / "changelog.0.mfs", ring.name

    def requests(self):
        """Each client counts its requests to the master."""
        told = {}
        for node in self.nodes:
            sent = re.search(
                r"master\.packets_sent: (\d+)", node.run("cat", self.shared / ".stats")
            )
            told[node.name] = collections.Counter({"to the master": int(sent[1])})
        return told

    def mount(self, machine):
        """Mounts a client with default options; the one on the server does not cache."""
        where, options = self.shared, "mfsnice=0"
        if machine is self.server:
            where, options = self.truth, UNCACHED
        machine.run("mfsmount", "-H", SERVER, "-o", options, where, timeout=120)

    def start_server(self):
        """Writes the configuration, starts both servers and mounts the filesystem."""
        run = self.dir / "run"
        for name, own in (("mfsmaster", MASTER), ("mfschunkserver", CHUNKSERVER)):
            data = run / name
            data.mkdir()
            text = COMMON.format(data=data, name=name) + own.format(run=run, server=SERVER)
            (run / f"{name}.cfg").write_text(text)
        (run / "exports.cfg").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        (run / "topology.cfg").touch()
        (run / "mfsmaster" / "metadata.mfs").write_bytes(b"MFSM NEW")
        self.server.run("mkdir", self.disk / "chunks")
        (run / "hdd.cfg").write_text(f"{self.disk / 'chunks'}\n")
        self.daemon("mfsmaster", "start")
        self.daemon("mfschunkserver", "start")
        self.truth.mkdir()
        self.mount(self.server)
        # The chunk server has to report its free space first.
        until("room", lambda: int(self.server.run("stat", "-fc", "%a", self.truth)) > 1000, 60)

    def daemon(self, name, *words):
        """Runs one of MooseFS's servers."""
        self.server.run(name, "-c", self.dir / "run" / f"{name}.cfg", *words)

    def server_faults(self, seconds):
        """Kills the master, and then the chunk server."""
        return [
            Fault(
                f"{name} killed", seconds, lambda n=name: self.kill(n), lambda n=name: self.again(n)
            )
            for name in ("mfsmaster", "mfschunkserver")
        ]

    def kill(self, name):
        """Kills a server."""
        pid = (self.dir / "run" / name / f".{name}.lock").read_text().strip()
        self.server.run("kill", "-9", pid)

    def again(self, name):
        """Starts a server again. The master restores unsaved changes from its logs."""
        self.daemon(name, *(["-a"] if name == "mfsmaster" else []), "start")
