"""Wirehead 0.9.3 on mongo-java-server, a server in memory, in Java. It has no files, so the place does not matter.

With a real MongoDB on a disk, figures would differ: these show the minimal cost of Wirehead's own work.
"""

import contextlib
import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pymongo
from peer import Peer, Reader, Reading
from samples import VOLUMES

JAR = Path(__file__).parents[3] / "target/servers/mongo-java-server.jar"


class Wirehead(Peer):
    name = "Wirehead"
    venv = ".venv-bench-torch"
    packages = ("wirehead", "pymongo")
    places = ("tmpfs",)
    share = {**dict.fromkeys(VOLUMES, 0.1), "page": 0.05, "tiny": 0.01}
    server: Any = None

    def lacking(self) -> str | None:
        if shutil.which("java") is None:
            return "java, which its server needs, is missing"
        if not JAR.exists():
            return f"{JAR} is missing: scripts/mongodb.sh java"
        import wirehead  # noqa: F401  (a missing dependency fails here)

        # One server for all phases, as in practice: another process wrote what a phase reads.
        command = ["java", "-Xmx4g", "-Dio.netty.eventLoopThreads=1", "-jar", str(JAR)]
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.port = int(self.server.stdout.readline().rpartition(":")[2])
        return None

    def config(self, directory: Path, parts: tuple[str, ...], count: int) -> str:
        # Wirehead supports only two kinds per sample.
        kinds = parts if len(parts) == 2 else ("data", "label")
        path = directory / "config.yaml"
        path.write_text(
            f"MONGOHOST: 127.0.0.1\nPORT: {self.port}\nDBNAME: bench\nSWAP_CAP: {count}\nSAMPLE: {list(kinds)}\n"
            "WRITE_COLLECTION: write\nREAD_COLLECTION: read\nTEMP_COLLECTION: temp\nCOUNTER_COLLECTION: counters\n"
            "CHUNKSIZE: 10\n"
        )
        return str(path)

    def create(self, directory, samples):
        import wirehead

        pymongo.MongoClient("127.0.0.1", self.port).drop_database("bench")
        if len(samples.workload.parts) == 2:
            tuples = iter(samples)
        else:
            half = samples.workload.sample_bytes // 2
            tuples = ((record[:half], record[half:]) for record in samples.records())
        path = self.config(directory, samples.workload.parts, len(samples))
        return wirehead.WireheadGenerator(tuples, path, n_samples=len(samples))

    def write(self, generator, samples) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            generator.run()

    def open(self, what: Reading, **options: Any) -> Reader:
        import wirehead

        with contextlib.redirect_stdout(io.StringIO()):
            dataset = wirehead.MongoheadDataset(self.config(what.directory, what.workload.parts, what.count))
        return Collection(dataset, what)


class Collection(Reader):
    def __init__(self, dataset: Any, what: Reading) -> None:
        self.dataset, self.count = dataset, what.count

    def sequential(self) -> Iterator[np.ndarray]:
        return self.shuffled(np.arange(self.count))

    def shuffled(self, order: np.ndarray) -> Iterator[np.ndarray]:
        for n in order.tolist():
            sample = self.dataset[[n]][n]
            yield sample["input"].numpy()  # as float32, four times as large
            yield sample["label"].numpy()


PEERS = [Wirehead()]
