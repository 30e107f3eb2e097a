"""A ring of record segments on a shared filesystem, between many sample generators and a training job.

Generators write samples, a manager promotes full generations and reclaims old ones, and readers
read samples. Any number of each can run, on any node, started in any order and stopped at any
time. All of them are given the same configuration: the path of a YAML file, or a dict of the same
keys.

Waits and transient errors are logged to the logger ``ringreel`` of the module ``logging``.

Example:
    The examples of this package share one configuration. Its ring holds one generation of four
    samples:

    >>> import pathlib
    >>> print(pathlib.Path("config.yaml").read_text().strip())
    DBNAME: demo            # the ring is the directory demo.ring beside this file
    SWAP_CAP: 4             # samples in a generation
    SAMPLE: [data, label]   # the names of a sample's parts, in order

    A generator, one process of many:

    >>> def samples():
    ...     rng = np.random.default_rng()
    ...     while True:
    ...         yield rng.random((2, 3), np.float32), int(rng.integers(5))
    >>> summary = ringreel.run_generator(samples(), "config.yaml", n_samples=4)
    >>> summary.finished
    4

    A manager is another process, which calls ``ringreel.run_manager("config.yaml")``. Without one,
    generators do its work.

    A reader, here rank 0 of 2, which gets half of each epoch. Without ``epochs`` the stream never
    ends:

    >>> ring = ringreel.Ring("config.yaml")
    >>> for sample in ring.stream(rank=0, world_size=2, equal="drop", run="tumor-3", epochs=1):
    ...     print(sample["data"].shape, sorted(sample))
    (2, 3) ['data', 'label']
    (2, 3) ['data', 'label']

    The newest generation by index:

    >>> len(ring.dataset())
    4
"""

from ringreel._batch import Batch
from ringreel._dataset import Dataset
from ringreel._errors import (
    ConfigError,
    CoordinationDeniedError,
    CoordinationUnavailableError,
    DamagedSampleError,
    ReclaimedError,
    RingMismatchError,
    RingNotFoundError,
    RingreelError,
    RingTimeoutError,
    SampleError,
    StaleError,
)
from ringreel._files import Files
from ringreel._generator import Generator, Summary
from ringreel._hold_out import HoldOut
from ringreel._input_split import InputSplit
from ringreel._loader import StreamLoader
from ringreel._mapped_stream import MappedStream
from ringreel._mixture import Mixture, MixtureStats
from ringreel._prefetch import Prefetch
from ringreel._ring import Ring
from ringreel._ringreel import __version__
from ringreel._run import run_generator, run_manager
from ringreel._sample import Sample, Tensor
from ringreel._shard import PADDING, Shard
from ringreel._stats import StreamStats
from ringreel._stream import Stream
from ringreel._validation import Validation

__all__ = [  # noqa: RUF022 (in the order of sorted())
    "Batch",
    "ConfigError",
    "CoordinationDeniedError",
    "CoordinationUnavailableError",
    "DamagedSampleError",
    "Dataset",
    "Files",
    "Generator",
    "HoldOut",
    "InputSplit",
    "MappedStream",
    "Mixture",
    "MixtureStats",
    "PADDING",
    "Prefetch",
    "ReclaimedError",
    "Ring",
    "RingMismatchError",
    "RingNotFoundError",
    "RingTimeoutError",
    "RingreelError",
    "Sample",
    "SampleError",
    "Shard",
    "StaleError",
    "Stream",
    "StreamLoader",
    "StreamStats",
    "Summary",
    "Tensor",
    "Validation",
    "__version__",
    "run_generator",
    "run_manager",
]
