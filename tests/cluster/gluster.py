"""GlusterFS in a lab of namespaces, which can also run SLURM jobs."""

import collections
import re

from lab import Fault, until
from namespaces import SERVER, NamespaceLab

VOLUME = "ring"


class GlusterLab(NamespaceLab):
    """One volume on one disk, with default options."""

    name, kind = "gluster", "fuse.glusterfs"

    def on_server(self, path):
        """The brick: the files on the server's disk, as no client caches them."""
        return self.disk / "data" / path.relative_to(self.shared)

    def requests(self):
        """The brick counts the calls of both nodes together."""
        self.gluster("volume", "profile", VOLUME, "start", check=False)  # may have been started
        text = self.gluster("volume", "profile", VOLUME, "info", "cumulative")
        lines = re.finditer(r"^.*[0-9] [nu]s +(\d+) +([A-Z]{4,})$", text, re.M)
        return {"both nodes": collections.Counter({line[2]: int(line[1]) for line in lines})}

    def mount(self, machine):
        """Mounts a client with default options."""
        log = self.logs / f"glusterfs-{machine.name}.log"
        where = [f"--volfile-server={SERVER}", f"--volfile-id=/{VOLUME}", f"--log-file={log}"]
        machine.run("glusterfs", "--process-name", "fuse", *where, self.shared)

    def start_server(self):
        """Starts glusterd and a volume."""
        run = self.dir / "run"
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
        (run / "glusterd.vol").write_text(
            f"volume management\n    type mgmt/glusterd\n{lines}end-volume\n"
        )
        log = self.logs / "glusterd.log"
        self.server.run(
            "glusterd", "-f", run / "glusterd.vol", "-p", run / "glusterd.pid", "-l", log
        )
        until("glusterd", lambda: "UUID" in self.gluster("system::", "uuid", "get", check=False))
        self.gluster("volume", "create", VOLUME, f"{SERVER}:{self.disk}/data", "force")
        self.gluster("volume", "start", VOLUME)

    def gluster(self, *command, check=True):
        """Runs the command `gluster` on the server."""
        sock = f"--glusterd-sock={self.dir / 'run' / 'glusterd.sock'}"
        return self.server.run("gluster", "--mode=script", sock, *command, check=check)

    def server_faults(self, seconds):
        """Kills the process that serves the files."""
        return [Fault("server killed", seconds, self.kill_brick, self.start_brick)]

    def kill_brick(self):
        """Kills the process that serves the files."""
        pid_file = next((self.dir / "run").glob(f"run/vols/{VOLUME}/*.pid"))
        self.server.run("kill", "-9", pid_file.read_text().strip())

    def start_brick(self):
        """Starts it again. (At first, glusterd may believe that it still runs.)"""

        def starts():
            self.gluster("volume", "start", VOLUME, "force", check=False)
            return " Y " in self.gluster("volume", "status", VOLUME, check=False)

        until("the brick", starts, pause=1.0)
