"""MXNet's RecordIO, version 1.9.1, in the virtual environment of `scripts/mxnet.sh`. Each part is a record."""

from collections.abc import Iterator
from typing import Any

import mxnet
import numpy as np
from mxnet import recordio
from peer import Peer, Reader, Reading
from samples import VOLUMES


class MxnetRecordIO(Peer):
    name = "mxnet RecordIO"
    venv = ".venv-mxnet"
    share = dict.fromkeys(VOLUMES, 0.5)

    def versions(self):
        return {"mxnet": mxnet.__version__}

    def create(self, directory, samples):
        return recordio.MXIndexedRecordIO(str(directory / "samples.idx"), str(directory / "samples.rec"), "w")

    def write(self, writer, samples) -> None:
        for number, part in enumerate(samples.parts()):
            writer.write_idx(number, part.tobytes())
        writer.close()

    def open(self, what: Reading, **options: Any) -> Reader:
        return Records(what)


class Records(Reader):
    def __init__(self, what: Reading) -> None:
        paths = str(what.directory / "samples.idx"), str(what.directory / "samples.rec")
        self.records = recordio.MXIndexedRecordIO(*paths, "r")
        self.parts = len(what.workload.parts)

    def sequential(self) -> Iterator[bytes]:
        self.records.reset()
        while (record := self.records.read()) is not None:
            yield record

    def shuffled(self, order: np.ndarray) -> Iterator[bytes]:
        self.records.reset()  # after the end of its file, it reads nothing
        for n in order.tolist():
            for part in range(n * self.parts, (n + 1) * self.parts):
                yield self.records.read_idx(part)


PEERS = [MxnetRecordIO()]
