"""A MongoDB on the host for the rings' index: mongo-java-server, which stores data in memory."""

import signal
import subprocess
from pathlib import Path

from lab import Fault, LabError
from vm import HOST, HOST_PORT

JAR = Path("target/servers/mongo-java-server.jar")
INDEX = f"INDEX: mongodb\nMONGOURI: mongodb://{HOST}:{HOST_PORT}/\nDBNAME: {{name}}\n"


class Mongo:
    """While this context is open, the lab's rings use this server. It ends with this program."""

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
        """Starts an empty server."""
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
        """Two faults: the server does not answer; the server is killed and restarts empty."""
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
