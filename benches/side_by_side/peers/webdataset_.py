"""webdataset: one tar file, which can only be read in order."""

from collections.abc import Iterator
from typing import Any

import webdataset
from peer import Peer, Reader, Reading
from samples import VOLUMES


class WebDataset(Peer):
    name = "webdataset"
    packages = ("webdataset",)
    random = False
    share = {**dict.fromkeys(VOLUMES, 0.25), "page": 0.2, "tiny": 0.05}

    def create(self, directory, samples):
        return webdataset.TarWriter(str(directory / "samples.tar"), encoder=False)

    def write(self, writer, samples) -> None:
        if samples.workload.is_volume:
            for n, sample in enumerate(samples):
                parts = zip(samples.workload.parts, sample, strict=True)
                writer.write({"__key__": f"{n:09}", **{name: part.tobytes() for name, part in parts}})
        else:
            for n, record in enumerate(samples.records()):
                writer.write({"__key__": f"{n:09}", "data": record.tobytes()})
        writer.close()

    def open(self, what: Reading, **options: Any) -> Reader:
        return Tar(what)


class Tar(Reader):
    def __init__(self, what: Reading) -> None:
        self.dataset = webdataset.WebDataset(str(what.directory / "samples.tar"), shardshuffle=False)
        self.parts = what.workload.parts

    def sequential(self) -> Iterator[bytes]:
        for sample in self.dataset:
            for part in self.parts:
                yield sample[part]


PEERS = [WebDataset()]
