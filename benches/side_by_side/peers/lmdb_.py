"""LMDB: a writable map without syncs, appended in order; read without a copy."""

from collections.abc import Iterator
from typing import Any

import lmdb
import numpy as np
from peer import Peer, Reader, Reading
from samples import ALL

# Puts per transaction.
PUTS = 4096


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


class Lmdb(Peer):
    packages = ("lmdb",)

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads
        self.share = {"page": 0.5, "tiny": 0.25} if api == "many" else {}

    def create(self, directory, samples):
        size = samples.workload.sample_bytes * len(samples)
        return lmdb.open(
            str(directory), map_size=3 * size + (64 << 20), writemap=True, map_async=True, sync=False, metasync=False
        )

    def write(self, environment, samples) -> None:
        if samples.workload.is_volume:
            number = 0
            for sample in samples:
                with environment.begin(write=True) as transaction:
                    for part in sample:
                        transaction.put(key(number), part.reshape(-1), append=True)
                        number += 1
        else:
            records, left = enumerate(samples.records()), len(samples)
            while left > 0:
                with environment.begin(write=True) as transaction:
                    if self.api == "many":
                        items = [(key(n), record) for n, record in take(records, PUTS)]
                        transaction.cursor().putmulti(items, append=True)
                    else:
                        for n, record in take(records, PUTS):
                            transaction.put(key(n), record, append=True)
                left -= PUTS
        environment.close()

    def open(self, what: Reading, **options: Any) -> Reader:
        return Database(what, self.api)


def take(items: Iterator[Any], count: int) -> Iterator[Any]:
    for _, item in zip(range(count), items, strict=False):
        yield item


class Database(Reader):
    def __init__(self, what: Reading, api: str) -> None:
        self.environment = lmdb.open(str(what.directory), readonly=True, lock=False, readahead=True)
        self.parts, self.api = len(what.workload.parts), api

    def sequential(self) -> Iterator[Any]:
        with self.environment.begin(buffers=True) as transaction:
            yield from transaction.cursor().iternext(keys=False, values=True)

    def shuffled(self, order: np.ndarray) -> Iterator[Any]:
        with self.environment.begin(buffers=True) as transaction:
            if self.api == "many":
                cursor = transaction.cursor()
                for begin in range(0, len(order), PUTS):
                    for _, value in cursor.getmulti([key(n) for n in order[begin : begin + PUTS].tolist()]):
                        yield value
                return
            for number in order.tolist():
                for part in range(number * self.parts, (number + 1) * self.parts):
                    yield transaction.get(key(part))


PEERS = [
    Lmdb("LMDB", "one", ALL),
    Lmdb("LMDB, putmulti and getmulti", "many", ("page", "tiny")),
]
