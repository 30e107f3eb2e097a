"""ArrayRecord, uncompressed, one record per chunk, as its documentation advises for access by index. Each part is a
record."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from peer import Peer, Reader, Reading
from samples import ALL, VOLUMES

READ = 1024


class ArrayRecord(Peer):
    packages = ("array-record",)

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads
        self.share = {**dict.fromkeys(VOLUMES, 0.25), "page": 0.5, "tiny": 0.5 if api == "one" else 0.25}
        # Many records per chunk, for reading in order.
        self.options = "group_size:1,uncompressed" if api == "one" else "group_size:256,uncompressed"

    def create(self, directory, samples):
        return ArrayRecordWriter(str(directory / "samples.array_record"), self.options)

    def write(self, writer, samples) -> None:
        for part in samples.parts():
            writer.write(part.tobytes())
        writer.close()

    def open(self, what: Reading, **options: Any) -> Reader:
        return Records(what, self.api)


class Records(Reader):
    def __init__(self, what: Reading, api: str) -> None:
        # No prefetching threads, which are for slow disks.
        options = "readahead_buffer_size:0,max_parallelism:0"
        self.reader = ArrayRecordReader(str(what.directory / "samples.array_record"), options)
        self.parts, self.api, self.large = len(what.workload.parts), api, what.workload.is_volume

    def sequential(self) -> Iterator[bytes]:
        records = self.reader.num_records()
        if self.api == "many":
            for begin in range(0, records, READ):
                yield from self.reader.read(begin, min(begin + READ, records))
        else:
            self.reader.seek(0)
            for _ in range(records):
                yield self.reader.read()

    def shuffled(self, order: np.ndarray) -> Iterator[bytes]:
        if self.api == "many":
            for begin in range(0, len(order), READ):
                yield from self.reader.read(order[begin : begin + READ].tolist())
            return
        for n in order.tolist():
            yield from self.reader.read(list(range(n * self.parts, (n + 1) * self.parts)))


PEERS = [
    ArrayRecord("ArrayRecord", "one", ALL),
    ArrayRecord("ArrayRecord, read in ranges", "many", ("page", "tiny")),
]
