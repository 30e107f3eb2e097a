"""MosaicML's MDS shards, uncompressed, without hashes; read by `LocalDataset`.

The package imports transformers and torchvision for its ready-made data sets and its batch loader. Neither is used
here, and PyPI has no torchvision for Debian's torch, so stubs replace them.
"""

import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from peer import Peer, Reader, Reading
from samples import VOLUMES

for module in ("multimodal", "text", "vision"):
    sys.modules[f"streaming.{module}"] = mock.MagicMock()
for module in ("", ".feature_extraction_utils", ".tokenization_utils_base"):
    sys.modules[f"transformers{module}"] = mock.MagicMock()

from streaming import LocalDataset, MDSWriter  # noqa: E402


class Mds(Peer):
    name = "MosaicML MDS"
    venv = ".venv-bench-torch"
    packages = ("mosaicml-streaming",)
    share = {**dict.fromkeys(VOLUMES, 0.25), "page": 0.5, "tiny": 0.3}

    def create(self, directory, samples):
        columns = dict.fromkeys(samples.workload.parts, "bytes")
        return MDSWriter(out=str(directory / "shards"), columns=columns, size_limit=1 << 26)

    def write(self, writer, samples) -> None:
        if samples.workload.is_volume:
            for sample in samples:
                parts = zip(samples.workload.parts, sample, strict=True)
                writer.write({name: part.tobytes() for name, part in parts})
        else:
            for record in samples.records():
                writer.write({"data": record.tobytes()})
        writer.finish()

    def open(self, what: Reading, **options: Any) -> Reader:
        return Shards(what)


class Shards(Reader):
    def __init__(self, what: Reading) -> None:
        self.dataset = LocalDataset(str(what.directory / "shards"))
        self.parts = what.workload.parts

    def sequential(self) -> Iterator[bytes]:
        return self.shuffled(np.arange(len(self.dataset)))

    def shuffled(self, order: np.ndarray) -> Iterator[bytes]:
        for n in order.tolist():
            sample = self.dataset[n]
            for part in self.parts:
                yield sample[part]


PEERS = [Mds()]
