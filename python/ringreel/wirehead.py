"""Wirehead's interface (https://github.com/neuroneural/wirehead) on a ring.

A program written for Wirehead runs with only its import changed::

    from ringreel.wirehead import MongoheadDataset, WireheadGenerator, WireheadManager

Its ``config.yaml`` is used as it is. The ring is the directory ``<DBNAME>.ring`` beside the configuration. With
MONGOHOST the index (counter, swap status, leases) is kept in that MongoDB, which has to run; with ``INDEX: files`` no
MongoDB is needed.

What differs: samples keep the element type that they were generated with (nothing is cast to uint8), a sample is
delivered once it is finished, and a dataset fails with an exception instead of ending the program.
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ringreel import _run
from ringreel._dataset import Dataset
from ringreel._errors import ConfigError, CoordinationDeniedError, CoordinationUnavailableError
from ringreel._generator import Summary
from ringreel._log import logger, on_stderr
from ringreel._ring import Config, Ring
from ringreel._sample import Sample
from ringreel._wirehead_logger import SwapLog, WireheadLogger, WireheadSnapshot

__all__ = [
    "MongoTupleheadDataset",
    "MongoheadDataset",
    "SwapLog",
    "WireheadGenerator",
    "WireheadLogger",
    "WireheadManager",
    "WireheadSnapshot",
    "quantile_normalize",
    "unit_interval_normalize",
]


def unit_interval_normalize(img: Any) -> Any:
    """`img` (a tensor or an array) shifted and scaled so that its values run from 0 to 1."""
    low, high = img.min(), img.max()
    return (img - low) / (high - low)


def quantile_normalize(img: Any, qmin: float = 0.01, qmax: float = 0.99) -> Any:
    """`img` (a tensor or an array) shifted and scaled so that its quantiles `qmin` and `qmax` become 0 and 1."""
    quantile = img.quantile if hasattr(img, "quantile") else lambda q: np.quantile(img, q)
    low, high = quantile(qmin), quantile(qmax)
    return (img - low) / (high - low)


def _unchanged(img: Any) -> Any:
    return img


class WireheadManager:
    """Keeps the ring turning: `WireheadManager("config.yaml").run_manager()`.

    Raises ConfigError if the configuration cannot be used; `run_manager` raises CoordinationUnavailableError or
    CoordinationDeniedError if the server that it names does not answer, or refuses this user.
    """

    def __init__(self, config_path: Config = "config.yaml") -> None:
        self.ring = Ring(config_path)

    def run_manager(self) -> None:
        """Runs until SIGINT or SIGTERM. See `ringreel.run_manager`."""
        with _hint_at_files():
            _run.run_manager(self.ring)


class WireheadGenerator:
    """Puts what a generator yields into the ring.

    Parameters
    ----------
    generator : iterable of samples, tuples of arrays in the order of SAMPLE (or as `ringreel.Generator.write` says).
    config_path : path of the configuration, or a dict.
    n_samples : int, at most so many; None: for as long as the generator yields.

    Raises ConfigError if the configuration cannot be used; `run_generator` raises CoordinationUnavailableError or
    CoordinationDeniedError if the server that it names does not answer, or refuses this user.
    """

    def __init__(
        self, generator: Iterable[Any], config_path: Config = "config.yaml", n_samples: int | None = None
    ) -> None:
        self.ring = Ring(config_path)
        self.generator = generator
        self.n_samples = n_samples

    def run_generator(self) -> Summary:
        """Runs until the generator ends, or until SIGINT or SIGTERM. See `ringreel.run_generator`."""
        return self._run(self.generator)

    def run(self, verbose: bool = False) -> Summary:
        """As `run_generator`; with `verbose`, a line for each sample."""
        return self._run(self._told() if verbose else self.generator)

    def _run(self, samples: Iterable[Any]) -> Summary:
        with _hint_at_files():
            return _run.run_generator(samples, self.ring, self.n_samples)

    def _told(self) -> Iterable[Any]:
        for number, sample in enumerate(self.generator):
            logger.info("sample %d", number)
            yield sample


class MongoheadDataset:
    """The samples of the newest generation: ``ds[[0, 3]][3]["input"]``, ``ds[[0, 3]][3]["label"]``; ``ds[0]["input"]``.

    It opens the ring when it is made and waits for data, saying so. Each time it is indexed, it looks for a newer
    generation and reads from that one.

    Inputs are float32. Labels have the type that was generated. Both are torch tensors where torch is installed, else
    NumPy arrays; in both cases they are the caller's own and may be changed.

    Parameters
    ----------
    config_path : path of the configuration, or a dict. Its SAMPLE says which parts are input and label: the first two.
    timeout : seconds to wait for data.
    collection : what to read where no configuration is given: a `ringreel.Ring`, or a configuration.
    sample : names of the input and the label, where `collection` is given.
    transform : applied to each of the two, as it was read.
    normalize : applied to the input, as float32.
    id : accepted, without effect.
    keeptrying : whether a sample whose generation was reclaimed is read from the newest one; else ReclaimedError.

    Raises
    ------
    TimeoutError : no data came in time.
    ConfigError, RingMismatchError : the configuration cannot be used, or the ring does not fit.
    """

    def __init__(
        self,
        config_path: Config = "",
        timeout: float | None = 60,
        collection: "Ring | Config | None" = None,
        sample: tuple[str, ...] = ("data", "label"),
        transform: Callable[[Any], Any] | None = None,
        normalize: Callable[[Any], Any] = _unchanged,
        id: str = "id",
        keeptrying: bool = True,
    ) -> None:
        self.transform = transform
        self.normalize = normalize
        self.keeptrying = keeptrying
        self.timeout = timeout
        self.id = id
        ring = Ring(config_path) if config_path != "" else _ring_of(collection)
        self.sample = tuple(sample) if config_path == "" else tuple(ring.sample or ())
        with on_stderr(), _hint_at_files():
            ring._tell_notes()
            self._dataset = Dataset(ring._config, timeout)
            self._length = len(self._dataset)
            logger.info("data is ready: %d samples in generation %d", self._length, self._dataset.generation)

    def __len__(self) -> int:
        return self._length

    @property
    def missing(self) -> list[int]:
        """Generations that KEEP covers and that were missing. See `ringreel.Dataset.missing`."""
        return self._dataset.missing

    def __getitem__(self, batch: Any) -> Any:
        """For an index: a dict of "input" and "label". For indices (a list, a tuple, a range, an array, a slice): a
        dict of such dicts, by index as given.

        Raises IndexError, DamagedSampleError, ReclaimedError.
        """
        indices = self._indices(batch)
        if isinstance(indices, int):
            return self._as_dict(indices)
        return {index: self._as_dict(index) for index in indices}

    def _as_dict(self, index: int) -> dict[str, Any]:
        data, label = self._pair(index)
        return {"input": data, "label": label}

    def _indices(self, batch: Any) -> int | list[int]:
        """What `batch` means; and the newest generation is looked for, once for all of it."""
        self._advance()
        if isinstance(batch, slice):
            return list(range(*batch.indices(self._length)))
        axes = getattr(batch, "ndim", 0 if hasattr(batch, "__index__") else 1)
        if axes == 0:
            return operator.index(batch)
        return [operator.index(index) for index in batch]

    def _advance(self) -> None:
        """To the newest generation; but not to a last one that was sealed before it was full, as long as there is
        another choice: it lacks some of the indices that `len` promises."""
        self._dataset._advance(at_least=self._length)

    def _pair(self, index: int) -> tuple[Any, Any]:
        if not -self._length <= index < self._length:
            raise IndexError(f"there is no sample {index}: there are {self._length}")
        sample = self._dataset._at(index % self._length, follow=self.keeptrying)
        names = self.sample or tuple(sample)  # a configuration may leave SAMPLE to the ring
        if len(names) < 2:
            raise ConfigError(f"SAMPLE names {len(names)} part, but an input and a label are needed")
        data, label = (self._value(sample, name) for name in names[:2])
        return self.normalize(_float32(data)), label

    def _value(self, sample: Sample, name: str) -> Any:
        value = sample.torch(name)[name] if _has_torch() else _own_array(sample, name)
        return value if self.transform is None else self.transform(value)


class MongoTupleheadDataset(MongoheadDataset):
    """As `MongoheadDataset`, but for an index a tuple ``(input, label)``, and for indices a list of such tuples."""

    def __getitem__(self, batch: Any) -> Any:
        """For an index: ``(input, label)``. For indices: a list of those, in the order given."""
        indices = self._indices(batch)
        return self._pair(indices) if isinstance(indices, int) else [self._pair(index) for index in indices]


@contextlib.contextmanager
def _hint_at_files() -> Iterator[None]:
    """Adds to an error of the index's server how to do without one."""
    try:
        yield
    except (CoordinationUnavailableError, CoordinationDeniedError) as error:
        hint = "to run without a server, put INDEX: files into the configuration of all processes"
        raise type(error)(f"{error}; {hint}") from error


def _ring_of(collection: Any) -> Ring:
    if collection is None:
        raise ConfigError("no data is named: give config_path, the path of the configuration")
    try:
        return Ring._of(collection)
    except ConfigError as error:
        if type(collection).__module__.split(".")[0] == "pymongo":
            raise ConfigError("a MongoDB collection holds no ring: give config_path instead of collection") from error
        raise


@functools.cache
def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def _own_array(sample: Sample, name: str) -> Any:
    value = sample[name]
    return value if isinstance(value, bytes) else value.copy()


def _float32(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.float32, copy=False)
    return value.float() if hasattr(value, "float") else value
