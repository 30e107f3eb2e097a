"""A MongoDB on the host for the index of rings: mongo-java-server, which keeps all of it in memory."""

import signal
import subprocess
from pathlib import Path

from lab import Fault, LabError
from vm import HOST, HOST_PORT

JAR = Path("target/servers/mongo-java-server.jar")
INDEX = f"INDEX: mongodb\nMONGOURI: mongodb://{HOST}:{HOST_PORT}/\nDBNAME: {{name}}\n"


class Mongo:
    """While it lasts, the lab's rings have their index here. The server ends with this program."""

    def __init__(self, lab):
        self.lab, self.popen = lab, None

    def __enter__(self):
        self.start()
        self.lab.index = INDEX
        return self

    def __exit__(self, *_):
        del self.lab.index
        self.kill()

    def start(self):
        """Starts the server, with nothing in it."""
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "java",
            "-XX:+UseSerialGC",
            "-Dio.netty.eventLoopThreads=1",
        ]
        command += ["-jar", JAR, "--port", str(HOST_PORT)]
        with open(self.lab.logs / "mongo.log", "ab") as log:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        if not self.popen.stdout.readline().startswith(b"listening"):
            raise LabError(f"{JAR} ended with status {self.popen.wait()}, see mongo.log")

    def kill(self):
        """Kills the server."""
        self.popen.kill()
        self.popen.communicate()

    def faults(self, seconds):
        """It does not answer; it is gone, and comes back empty."""
        send = self.popen.send_signal
        return [
            Fault(
                "MongoDB stopped",
                seconds,
                lambda: send(signal.SIGSTOP),
                lambda: send(signal.SIGCONT),
            ),
            Fault("MongoDB killed", seconds, self.kill, self.start),
        ]
