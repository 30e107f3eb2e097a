"""A MongoDB for tests: the one that RINGREEL_TEST_MONGOURI names, or one in memory (`scripts/mongodb.sh java`)."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pymongo

JAR = pathlib.Path(__file__).parents[2] / "target/servers/mongo-java-server.jar"


def given():
    """The connection string of the server that was given, or an empty one."""
    return os.environ.get("RINGREEL_TEST_MONGOURI", "")


def lacking():
    """Why no server of ours can be started; None when it can."""
    if shutil.which("java") is None:
        return "there is no java: tests with a MongoDB of their own do NOT run"
    if not JAR.exists():
        return f"{JAR} is missing (scripts/mongodb.sh java): tests with a MongoDB of their own do NOT run"
    return None


def free_port():
    """A port on which nobody listens, below those that Linux gives to connections: a client that looks for a server
    again and again may be given such a one, and find itself."""
    for port in range(15_000 + os.getpid() % 8000, 31_000):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


class JavaServer:
    """Empty, in memory, on 127.0.0.1. It ends with this process at the latest."""

    def __init__(self, port=0):
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dio.netty.eventLoopThreads=1"]
        command += ["-jar", str(JAR), "--port", str(port)]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        said = self.child.stdout.readline()
        assert said.startswith("listening on 127.0.0.1:"), said
        self.port = int(said.rpartition(":")[2])
        self.uri = f"mongodb://127.0.0.1:{self.port}"

    def end(self):
        """It is gone when this returns."""
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


class TlsProxy:
    """Speaks TLS, and passes on what it hears to a server that does not. `authority` is the file of its authority."""

    def __init__(self, directory, port):
        self.authority = str(directory / "ca.pem")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*_certificate(directory))
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True).start()

    def _serve(self, plain):
        with contextlib.suppress(OSError), plain, self._context.wrap_socket(plain, server_side=True) as client:
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
                _pass_on(server, client)


def _pass_on(source, target):
    with contextlib.suppress(OSError):
        while heard := source.recv(1 << 16):
            target.sendall(heard)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _certificate(directory):
    """Makes an authority and a certificate for this machine; returns the files of that and of its key."""

    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], cwd=directory, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", 2, "-subj", "/CN=an authority")
    openssl("req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    (directory / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", "extensions"]
    openssl("x509", "-req", "-in", "request.pem", *signed, "-out", "certificate.pem")
    return directory / "certificate.pem", directory / "key.pem"


class Database:
    """A database of its own on a server, with what a configuration says of it."""

    def __init__(self, uri):
        self.uri = uri
        self.name = f"ringreel-test-{os.getpid()}-{time.monotonic_ns():x}"

    @property
    def keys(self):
        """As keys of a configuration. Where host and port say it all, as Wirehead gives them."""
        host, _, port = self.uri.removeprefix("mongodb://").partition(":")
        if port.isdigit():
            return {"MONGOHOST": host, "PORT": int(port), "DBNAME": self.name}
        return {"MONGOURI": self.uri, "DBNAME": self.name}

    @property
    def yaml(self):
        """As lines of a configuration."""
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in self.keys.items())

    @contextlib.contextmanager
    def open(self):
        """The database as pymongo sees it."""
        with pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=5000) as client:
            yield client[self.name]

    def drop(self):
        with self.open() as database:
            database.client.drop_database(self.name)
