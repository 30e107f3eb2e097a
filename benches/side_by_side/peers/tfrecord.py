"""TensorFlow's TFRecord, which can only be read in order. Each part is a record."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from peer import Peer, Reader, Reading
from samples import ALL, VOLUMES

BATCH = 1024


class TfRecord(Peer):
    packages = ("tensorflow-cpu",)
    random = False

    def __init__(self, name: str, api: str, workloads: tuple[str, ...]) -> None:
        self.name, self.api, self.workloads = name, api, workloads
        self.share = {**dict.fromkeys(VOLUMES, 0.25), "page": 0.2, "tiny": 0.1} if api == "one" else {"page": 0.5, "tiny": 0.1}

    def create(self, directory, samples):
        return tf.io.TFRecordWriter(str(directory / "samples.tfrecord"))

    def write(self, writer, samples) -> None:
        for part in samples.parts():
            writer.write(part.tobytes())
        writer.close()

    def open(self, what: Reading, **options: Any) -> Reader:
        return Records(what, self.api)


class Records(Reader):
    def __init__(self, what: Reading, api: str) -> None:
        dataset = tf.data.TFRecordDataset(str(what.directory / "samples.tfrecord"), buffer_size=1 << 20)
        self.many = api == "many"
        self.dataset = dataset.batch(BATCH) if self.many else dataset

    def sequential(self) -> Iterator[bytes]:
        for given in self.dataset.as_numpy_iterator():
            if self.many:
                yield from given
            else:
                yield given


PEERS = [
    TfRecord("TFRecord", "one", ALL),
    TfRecord("TFRecord, batches", "many", ("page", "tiny")),
]
