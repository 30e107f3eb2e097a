"""ringreel and the baselines from Rust: a separate program (`rust.rs`) that takes a request and answers it."""

import json
import os
import subprocess
from typing import Any

from peer import Peer
from samples import ALL


class Rust(Peer):
    language = "Rust"

    def __init__(self, name: str, way: str, workloads: tuple[str, ...], reads: tuple[str, ...] = ("",)) -> None:
        self.name, self.way, self.workloads = name, way, workloads
        self.reads = {read: {} for read in reads}
        # Its loop is cheap compared with a call from Python, so it takes as many samples as peers with many per call.
        self.api = "many"

    def lacking(self) -> str | None:
        return None if "RINGREEL_SIDE_BY_SIDE" in os.environ else "RINGREEL_SIDE_BY_SIDE does not name a program"

    def versions(self) -> dict[str, str]:
        return {}

    def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        command = [os.environ["RINGREEL_SIDE_BY_SIDE"], json.dumps({**request, "way": self.way})]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"error": done.stderr.strip()[-2000:] or f"exit status {done.returncode}"}
        return json.loads(done.stdout)


PEERS = [
    Rust("plain file, Rust", "plain", ALL, ("kept", "new")),
    Rust("bare loop with CRC-32, Rust", "bare", ("page", "tiny")),
    Rust("ringreel, Rust", "ringreel", ALL, ("checked", "unchecked")),
    Rust("ringreel, Rust, batches", "ringreel, batches", ("page", "tiny"), ("checked", "unchecked")),
]
