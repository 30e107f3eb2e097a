"""A MongoDB server for tests: at RINGREEL_TEST_MONGOURI, or in memory (`scripts/mongodb.sh java`)."""

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
    """Returns the connection string of a given server, or an empty one."""
    return os.environ.get("RINGREEL_TEST_MONGOURI", "")


def lacking():
    """Returns why the server in memory cannot be started, or None if it can."""
    if shutil.which("java") is None:
        return "there is no java: tests with a MongoDB of their own do NOT run"
    if not JAR.exists():
        return f"{JAR} is missing (scripts/mongodb.sh java): tests with a MongoDB of their own do NOT run"
    return None


def free_port():
    """Returns a port without a listener, below Linux's ephemeral ports.

    A client that retries on an ephemeral port may be assigned the same port, and connect to itself.
    """
    for port in range(15_000 + os.getpid() % 8000, 31_000):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


class JavaServer:
    """An empty server in memory, on 127.0.0.1. It ends with this process at the latest."""

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
        """Kills the server, and waits until it has exited."""
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


class TlsProxy:
    """A TLS proxy in front of a server without TLS. `authority` is the file of its certificate authority."""

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
    """Makes an authority and a certificate for this machine. Returns the files of the certificate and its key."""

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
    """A separate database on a server, and the configuration keys for it."""

    def __init__(self, uri):
        self.uri = uri
        self.name = f"ringreel-test-{os.getpid()}-{time.monotonic_ns():x}"

    @property
    def keys(self):
        """The keys of a configuration: Wirehead's, if host and port suffice."""
        host, _, port = self.uri.removeprefix("mongodb://").partition(":")
        if port.isdigit():
            return {"MONGOHOST": host, "PORT": int(port), "DBNAME": self.name}
        return {"MONGOURI": self.uri, "DBNAME": self.name}

    @property
    def yaml(self):
        """The lines of a configuration."""
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in self.keys.items())

    @contextlib.contextmanager
    def open(self):
        """The database in pymongo."""
        with pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=5000) as client:
            yield client[self.name]

    def drop(self):
        with self.open() as database:
            database.client.drop_database(self.name)
