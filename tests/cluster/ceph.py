"""CephFS in a lab of namespaces: a monitor, a manager, an OSD, an MDS, nodes with ceph-fuse."""

import collections
import json
import uuid

from lab import Fault, LabError, until
from namespaces import ADDRESS, SERVER, NamespaceLab

# Only this lab can reach the servers, so clients need no keys.
CONF = """\
[global]
fsid = {fsid}
mon_host = v2:{server}:3300
public_addr = {server}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
run_dir = {run}
admin_socket = {run}/$name.asok
log_file = {logs}/$name.log
pid_file = {run}/$name.pid
mon_data = {run}/mon
mgr_data = {run}/mgr
mds_data = {run}/mds
osd_data = {disk}/osd
osd_objectstore = bluestore
bluestore_block_size = {block}
mon_cluster_log_file = {logs}/cluster.log
[client]
log_file = {logs}/$name.$pid.log
"""


class CephLab(NamespaceLab):
    """One of each server; the OSD is BlueStore in a file."""

    name, kind = "cephfs", "fuse.ceph-fuse"

    def __init__(self, ringreel):
        super().__init__(ringreel, disk_mb=6144)
        self.truth = self.dir / "truth"
        self.run = self.dir / "run"

    def on_server(self, path):
        """The server's own mount, because its disk does not have the files under their names."""
        return self.truth / path.relative_to(self.shared)

    def requests(self):
        """Each client counts the replies of the MDS and its requests to the OSD."""
        told = {}
        for node in self.nodes:
            dump = json.loads(
                self.ceph("daemon", self.run / f"client.{node.name}.asok", "perf", "dump")
            )
            counts = {
                "to the MDS": dump["client"]["reply"]["avgcount"],
                "to the OSD": dump["objecter"]["op_send"],
            }
            told[node.name] = collections.Counter(counts)
        return told

    def ceph(self, *words):
        """Runs the command `ceph` on the server."""
        return self.server.run("ceph", "-c", self.run / "ceph.conf", *words)

    def daemon(self, kind, *words):
        """Runs one of Ceph's servers."""
        name = "0" if kind == "osd" else "a"
        self.server.run(f"ceph-{kind}", "-c", self.run / "ceph.conf", "-i", name, *words)

    def mount(self, machine):
        """Mounts a client with default options."""
        where = self.truth if machine is self.server else self.shared
        machine.run(
            "ceph-fuse", "-c", self.run / "ceph.conf", "--id", machine.name, where, timeout=120
        )

    def start_server(self):
        """Writes the configuration, starts all servers, makes a filesystem and mounts it."""
        fsid, block = uuid.uuid4(), (self.disk_mb - 2048) << 20
        text = CONF.format(
            fsid=fsid, server=SERVER, run=self.run, logs=self.logs, disk=self.disk, block=block
        )
        (self.run / "ceph.conf").write_text(text)
        for name in ("mon", "mgr", "mds"):
            (self.run / name).mkdir()
        self.server.run("mkdir", self.disk / "osd")
        monmap = self.run / "monmap"
        self.server.run(
            "monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:{SERVER}:3300]", monmap
        )
        self.daemon("mon", "--mkfs", "--monmap", monmap)
        self.daemon("mon")
        self.daemon("mgr")
        osd = uuid.uuid4()
        if (number := self.ceph("osd", "new", osd).strip()) != "0":
            raise LabError(f"the first OSD is called {number}")
        self.daemon("osd", "--mkfs", "--osd-uuid", osd)
        self.daemon("osd")
        self.daemon("mds")
        for pool in ("names", "bytes"):
            self.ceph("osd", "pool", "create", pool)
        self.ceph("fs", "new", "ring", "names", "bytes")
        until("the MDS", lambda: "up:active" in self.ceph("mds", "stat"), 60)
        self.truth.mkdir()
        self.mount(self.server)

    def server_faults(self, seconds):
        """Kills each of Ceph's servers."""
        return [
            Fault(
                f"{kind} killed",
                seconds,
                lambda k=kind: self.kill(k),
                lambda k=kind: self.daemon(k),
            )
            for kind in ("mon", "mds", "osd")
        ]

    def fill_disk(self):
        """Lowers the ratio at which Ceph considers a disk full."""
        self.full_at("0.01")

    def free_disk(self):
        """Restores the ratio."""
        self.full_at("0.95")

    def full_at(self, ratio):
        """Sets the ratio at which an OSD counts as full."""
        self.ceph("osd", "set-full-ratio", ratio)

    def heal(self, node):
        """Replaces the mount if the MDS evicted the client, as it does after a silent minute."""
        super().heal(node)
        if ADDRESS % node.number + ":" in self.ceph("osd", "blocklist", "ls"):
            node.run("umount", "--lazy", self.shared)
            node.run("kill", "-9", (self.run / f"client.{node.name}.pid").read_text().strip())
            self.wait_mounted(node)
            print(f"{node.name} was evicted; mounted again")

    def kill(self, kind):
        """Kills a server."""
        name = "osd.0" if kind == "osd" else f"{kind}.a"
        self.server.run("kill", "-9", (self.run / f"{name}.pid").read_text().strip())
