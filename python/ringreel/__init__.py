"""A ring of record segments on a shared filesystem, between many sample generators and a training job.

Generators put samples in, a manager keeps the ring turning, readers take samples out; any number of each, on any node,
started in any order, ended at any time. All of them are given the same configuration::

    # config.yaml
    DBNAME: demo                # the ring is the directory demo.ring beside this file
    SWAP_CAP: 100               # samples in a generation
    SAMPLE: [data, label]       # names of the parts of a sample

Generators, each a process of its own::

    import numpy as np, ringreel

    def samples():
        rng = np.random.default_rng()
        while True:
            yield rng.random((64, 64, 64), np.float32), rng.integers(0, 5, (64, 64, 64), np.uint8)

    ringreel.run_generator(samples(), "config.yaml")

A manager (without one, generators do its work)::

    ringreel.run_manager("config.yaml")

Readers::

    ring = ringreel.Ring("config.yaml")
    for sample in ring.stream(rank=0, world_size=8, equal="drop", run="tumor-3"):   # for ever, this rank's share
        sample["data"], sample["label"], sample.meta
    dataset = ring.dataset()                              # by index, in the newest generation
    dataset[0].torch()

What is waited for, and every problem that passes, is told through `logging`, by the logger ``ringreel``.
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
from ringreel._generator import Generator, Summary
from ringreel._loader import StreamLoader
from ringreel._mixture import Mixture
from ringreel._ring import Ring
from ringreel._ringreel import __version__
from ringreel._run import run_generator, run_manager
from ringreel._sample import Sample, Tensor
from ringreel._stream import Stream
from ringreel._validation import Validation

__all__ = [
    "Batch",
    "ConfigError",
    "CoordinationDeniedError",
    "CoordinationUnavailableError",
    "DamagedSampleError",
    "Dataset",
    "Generator",
    "Mixture",
    "ReclaimedError",
    "Ring",
    "RingMismatchError",
    "RingNotFoundError",
    "RingTimeoutError",
    "RingreelError",
    "Sample",
    "SampleError",
    "StaleError",
    "Stream",
    "StreamLoader",
    "Summary",
    "Tensor",
    "Validation",
    "__version__",
    "run_generator",
    "run_manager",
]
