"""Counts a ring's commands to a MongoDB, per sample, per generation and per second, by the test server
(scripts/mongodb.sh java)."""

import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

JAR = pathlib.Path(__file__).resolve().parents[1] / "target/servers/mongo-java-server.jar"


class Server:
    def __enter__(self):
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(JAR), "--port", "0"]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.port = int(self.child.stdout.readline().rpartition(":")[2])
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()

    def counts(self):
        """Commands so far, by name."""
        body = b"\x10testOperations\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0"
        message = struct.pack("<iB", 0, 0) + struct.pack("<i", len(body) + 4) + body
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            server.sendall(struct.pack("<4i", len(message) + 16, 1, 0, 2013) + message)
            reply = b""
            while len(reply) < 16 or len(reply) < struct.unpack_from("<i", reply)[0]:
                reply += server.recv(1 << 16)
        return numbers(reply[21:]).get("counts", {})


def numbers(document):
    """The integers in a document, and in nested documents."""
    found, at = {}, 4
    while document[at]:
        kind = document[at]
        end = document.index(b"\0", at + 1)
        name, at = document[at + 1 : end].decode(), end + 1
        length = {1: 8, 9: 8, 8: 1, 16: 4, 18: 8, 3: 0}[kind] or struct.unpack_from("<i", document, at)[0]
        if kind == 3:
            found[name] = numbers(document[at : at + length])
        elif kind in (16, 18):
            found[name] = int.from_bytes(document[at : at + length], "little")
        at += length
    return found


def total(counts):
    """The total without the commands by which the driver monitors its connections."""
    own = {"isMaster", "ismaster", "hello", "ping", "endSessions", "buildInfo", "testOperations"}
    return {name: n for name, n in counts.items() if name not in own}


def measure(programs, options):
    if not JAR.exists() or not shutil.which("java"):
        print("SKIPPED: the server that counts commands is missing (scripts/mongodb.sh java)", file=sys.stderr)
        return []
    results = []

    def run(samples, cap, lease, wait=0):
        from system import Scene, told

        with Server() as server:
            index = {"INDEX": "mongodb", "MONGOHOST": "127.0.0.1", "PORT": server.port, "DBNAME": "bench"}
            keys = {"SAMPLE": ["x"], "LEASE_SECONDS": lease, "REUSE": {"min": 1, "max": 0}}
            with Scene(programs, options.dir, SWAP_CAP=cap, **index, **keys) as scene:
                manager = scene.manager()
                if wait:
                    scene.start([scene.roles, "generate", scene.config, 2, 8, 1 / (2 * wait), scene.home / "t"])
                    time.sleep(2)
                    before = sum(total(server.counts()).values())
                    time.sleep(wait)
                    after = total(server.counts())
                    return (sum(after.values()) - before) / wait
                reading = scene.read(samples)
                told(scene.generate(samples, 100))
                told(reading)
                counts = total(server.counts())
                scene.end(manager)
                return counts

    few, more = (40, 400) if options.small else (200, 2000)
    short, long, wide = run(few, 20, 3600), run(more, 20, 3600), run(more, 200, 3600)
    names = sorted({*short, *long, *wide})
    generations, gained = more / 20 - more / 200, (more - few) / 20
    each_generation = {n: (long.get(n, 0) - wide.get(n, 0)) / generations for n in names}
    each_sample = {n: (long.get(n, 0) - short.get(n, 0) - gained * each_generation[n]) / (more - few) for n in names}
    results.append(
        {
            "each_sample": {k: round(n, 3) for k, n in each_sample.items() if abs(n) >= 0.005},
            "each_generation": {k: round(n, 2) for k, n in each_generation.items() if abs(n) >= 0.05},
            "manager_and_generator_per_second": run(0, 20, 10, 10 if options.small else 30),
            "lease_seconds": 10,
        }
    )
    print(results[-1], flush=True)
    return results
