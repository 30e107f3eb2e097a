"""Arrow's IPC file: written through OSFile, read through a memory map without a copy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from peer import Peer, Reader, Reading
from samples import ALL

# Bytes per record batch of small samples.
BATCH = 4 << 20


class Arrow(Peer):
    packages = ("pyarrow",)

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads

    def create(self, directory, samples):
        work = samples.workload
        schema = pa.schema([(part, pa.binary(work.part_bytes)) for part in work.parts])
        return pa.ipc.new_file(pa.OSFile(str(directory / "samples.arrow"), "wb"), schema)

    def write(self, writer, samples) -> None:
        size = samples.workload.part_bytes
        names = list(samples.workload.parts)
        if samples.workload.is_volume:
            for sample in samples:
                columns = [column(part, 1, size) for part in sample]
                writer.write_batch(pa.record_batch(columns, names=names))
        elif self.api == "many":
            for batch in samples.batches(BATCH // size):
                writer.write_batch(pa.record_batch([column(batch, len(batch), size)], names=names))
        else:
            rows: list[bytes] = []
            for record in samples.records():
                rows.append(record.tobytes())
                if len(rows) == BATCH // size:
                    writer.write_batch(pa.record_batch([pa.array(rows, pa.binary(size))], names=names))
                    rows = []
            if rows:
                writer.write_batch(pa.record_batch([pa.array(rows, pa.binary(size))], names=names))
        writer.close()

    def open(self, what: Reading, **options: Any) -> Reader:
        return ArrowFile(what, self.api)


def column(array: np.ndarray, rows: int, size: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, [None, pa.py_buffer(array.reshape(-1))])


class ArrowFile(Reader):
    def __init__(self, what: Reading, api: str) -> None:
        self.file = pa.ipc.open_file(pa.memory_map(str(what.directory / "samples.arrow")))
        self.work, self.api = what.workload, api
        # A file has no index of rows, so this lists the beginnings of its batches.
        self.starts = np.cumsum([0] + [self.file.get_batch(n).num_rows for n in range(self.file.num_record_batches)])

    def sequential(self) -> Iterator[Any]:
        for n in range(self.file.num_record_batches):
            batch = self.file.get_batch(n)
            if self.work.is_volume or self.api == "many":
                for part in batch.columns:
                    yield part.buffers()[1]
            else:
                for value in batch.column(0):
                    yield value.as_buffer()

    def shuffled(self, order: np.ndarray) -> Iterator[Any]:
        if self.work.is_volume:
            for n in order.tolist():
                for part in self.file.get_batch(n).columns:
                    yield part.buffers()[1]
        elif self.api == "many":
            table = self.file.read_all()
            for begin in range(0, len(order), 1024):
                taken = table.take(pa.array(order[begin : begin + 1024])).column(0)
                for chunk in taken.chunks:
                    yield chunk.buffers()[1]
        else:
            columns = [self.file.get_batch(n).column(0) for n in range(self.file.num_record_batches)]
            batches = np.searchsorted(self.starts, order, side="right") - 1
            for batch, row in zip(batches.tolist(), (order - self.starts[batches]).tolist(), strict=True):
                yield columns[batch][row].as_buffer()


PEERS = [
    Arrow("Arrow IPC", "one", ALL),
    Arrow("Arrow IPC, record batches", "many", ("page", "tiny")),
]
