"""Wirehead's datasets on a ring: ``wirehead.dataset``."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ringreel._arguments import position_of
from ringreel._dataset import Dataset
from ringreel._errors import ConfigError
from ringreel._log import logger, on_stderr
from ringreel._ring import Config, Ring
from ringreel._sample import Sample, writable_values
from ringreel._wording import counted
from ringreel.wirehead._hints import hint_at_files

__all__ = [
    "MongoTupleheadDataset",
    "MongoheadDataset",
    "binary_to_tensor",
    "quantile_normalize",
    "unit_interval_normalize",
]

# As in Wirehead, so that isinstance checks of Lightning, MONAI and others hold. A class cannot get another base after
# its creation, so this module imports torch if it is installed, which takes 3 s and 200 MB with torch 1.13. A dataset
# needs torch anyway, for its tensors. Generators and managers do not, and do not import this module.
try:
    from ringreel._torch_bases import MapStyle
except ImportError:
    MapStyle = object  # type: ignore[assignment,misc]

_HAS_TORCH = MapStyle is not object


def unit_interval_normalize(img: Any) -> Any:
    """Scales ``img`` linearly so that its values run from 0 to 1.

    Args:
        img (numpy.ndarray | torch.Tensor): Array of any shape.

    Returns:
        numpy.ndarray | torch.Tensor: An array of the same shape.

    Example:
        >>> from ringreel.wirehead import unit_interval_normalize
        >>> unit_interval_normalize(np.array([2.0, 4.0, 6.0]))
        array([0. , 0.5, 1. ])
    """
    low, high = img.min(), img.max()
    return (img - low) / (high - low)


def quantile_normalize(img: Any, qmin: float = 0.01, qmax: float = 0.99) -> Any:
    """Scales ``img`` linearly so that its quantiles ``qmin`` and ``qmax`` become 0 and 1.

    Args:
        img (numpy.ndarray | torch.Tensor): Array of any shape.
        qmin (float): The lower quantile, 0 to 1. Default 0.01.
        qmax (float): The upper quantile, 0 to 1. Default 0.99.

    Returns:
        numpy.ndarray | torch.Tensor: An array of the same shape.

    Example:
        >>> from ringreel.wirehead import quantile_normalize
        >>> quantile_normalize(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 0.25, 0.75)
        array([-0.5,  0. ,  0.5,  1. ,  1.5])
    """
    quantile = img.quantile if hasattr(img, "quantile") else lambda q: np.quantile(img, q)
    low, high = quantile(qmin), quantile(qmax)
    return (img - low) / (high - low)


def binary_to_tensor(tensor_binary: Any) -> Any:
    """Returns a part of a sample as a tensor: Wirehead's default ``transform``, for transforms that call it.

    A dataset reads tensors, so a tensor (an array without torch) is returned as it is. Only bytes, which a generator
    stored as ``torch.save`` makes them, are loaded.

    Args:
        tensor_binary (torch.Tensor | numpy.ndarray | bytes): The part as it was read.

    Returns:
        torch.Tensor | numpy.ndarray: The tensor.

    Example:
        >>> from ringreel.wirehead import MongoheadDataset, binary_to_tensor
        >>> dataset = MongoheadDataset("config.yaml", transform=lambda part: binary_to_tensor(part) * 2)
        >>> float(dataset[3]["input"][0, 0])
        6.0
    """
    if not isinstance(tensor_binary, (bytes, bytearray, memoryview)):
        return tensor_binary
    import torch

    return torch.load(io.BytesIO(tensor_binary), weights_only=True)


def _unchanged(img: Any) -> Any:
    return img


class MongoheadDataset(MapStyle):
    """The samples of the newest generation, as dicts of "input" and "label".

    ``ds[0]["input"]`` is one input; ``ds[[0, 3]][3]["label"]`` is one label of two samples.

    The dataset opens the ring when it is constructed, and logs that it waits for data. Each time it is
    indexed, it switches to the newest generation first.

    Inputs are float32. Labels have the element type that was generated. Both are torch tensors if torch
    is installed, and otherwise NumPy arrays. In both cases they are writable and private to the caller.

    With torch the class is a ``torch.utils.data.Dataset``.

    Args:
        config_path (str | os.PathLike | Mapping): Path of the configuration, or a dict. The first two
            parts of its ``SAMPLE`` are the input and the label.
        timeout (float | None): Seconds to wait for data. Default 60.
        collection (Ring | str | os.PathLike | Mapping | pymongo.collection.Collection | None): The ring, or its
            configuration, if ``config_path`` is not given; or any collection of the database that has the ring's
            index. The database names the directory of the ring, which has to be visible here under the same path,
            and to have a generation.
        sample (tuple[str, ...]): Names of the input and the label, used with ``collection``. Default
            ``("data", "label")``.
        transform (Callable | None): Applied to the input and to the label, as they were read. Default
            None.
        normalize (Callable): Applied to the input, as float32. The default changes nothing.
        id (str): Ignored. Default ``"id"``.
        keeptrying (bool): Whether a sample whose generation was reclaimed is read from the newest one
            (the default). False raises ``ReclaimedError``.

    Attributes:
        indices (range): The indices of the samples.

    Raises:
        TimeoutError: No data arrived within ``timeout`` seconds.
        ConfigError: The configuration cannot be used.
        RingMismatchError: The ring does not match the configuration.

    Example:
        >>> from ringreel.wirehead import MongoheadDataset, unit_interval_normalize
        >>> dataset = MongoheadDataset("config.yaml", normalize=lambda img: img / 4)
        >>> len(dataset), dataset.indices, float(dataset[2]["input"][0, 0])
        (4, range(0, 4), 0.5)
        >>> batch = dataset[[0, 3]]
        >>> {index: int(sample["label"]) for index, sample in batch.items()}
        {0: 0, 3: 3}
    """

    def __init__(
        self,
        config_path: Config = "",
        timeout: float | None = 60,
        collection: Any = None,
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
        with on_stderr(), hint_at_files():
            ring._tell_notes()
            self._dataset = Dataset(ring._config, timeout)
            self._length = len(self._dataset)
            self.indices = range(self._length)
            samples = counted(self._length, "sample")
            logger.info("data is ready: %s in generation %d", samples, self._dataset.generation)

    def __len__(self) -> int:
        """Returns the number of samples of the generation on which the dataset was opened."""
        return self._length

    @property
    def missing(self) -> list[int]:
        """Generations that ``KEEP`` covers and that were missing.

        See ``ringreel.Dataset.missing``.

        Example:
            >>> from ringreel.wirehead import MongoheadDataset
            >>> MongoheadDataset("config.yaml").missing
            []
        """
        return self._dataset.missing

    def __getitem__(self, batch: Any) -> Any:
        """Returns one sample or several.

        Args:
            batch (Any): An index, or indices: a list, a tuple, a range, an array or a slice.

        Returns:
            dict: For an index, a dict of "input" and "label". For indices, a dict of such dicts by index.

        Raises:
            IndexError: The generation has no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The generation was reclaimed, and ``keeptrying`` is False or no newer one exists.
        """
        indices = self._indices(batch)
        if isinstance(indices, int):
            return self._as_dict(indices)
        return {index: self._as_dict(index) for index in indices}

    def _as_dict(self, index: int) -> dict[str, Any]:
        data, label = self._pair(index)
        return {"input": data, "label": label}

    def _indices(self, batch: Any) -> int | list[int]:
        """Switches to the newest generation, once for all indices, and returns the indices of ``batch``."""
        self._advance()
        if isinstance(batch, slice):
            return list(range(*batch.indices(self._length)))
        axes = getattr(batch, "ndim", 0 if hasattr(batch, "__index__") else 1)
        if axes == 0:
            return operator.index(batch)
        return [operator.index(index) for index in batch]

    def _advance(self) -> None:
        """Switches to the newest generation if it has at least ``len`` samples.

        A generation that was promoted before it was full is skipped while another one exists, because it
        lacks some of the indices that ``len`` promises.
        """
        self._dataset._advance(at_least=self._length)

    def _pair(self, index: int) -> tuple[Any, Any]:
        position = position_of(index, self._length, "the generation has")
        sample = self._dataset._at(position, follow=self.keeptrying)
        names = self.sample or tuple(sample)  # empty if the configuration leaves SAMPLE to the ring
        if len(names) < 2:
            raise ConfigError(f"SAMPLE: expected at least 2 parts, an input and a label, found {len(names)}")
        data, label = (self._value(sample, name) for name in names[:2])
        return self.normalize(_float32(data)), label

    def _value(self, sample: Sample, name: str) -> Any:
        value = sample.torch(name)[name] if _HAS_TORCH else writable_values(sample, [name])[name]
        return value if self.transform is None else self.transform(value)


class MongoTupleheadDataset(MongoheadDataset):
    """The samples of the newest generation, as tuples of input and label.

    Takes the same arguments as ``MongoheadDataset``.

    Example:
        >>> from ringreel.wirehead import MongoTupleheadDataset
        >>> dataset = MongoTupleheadDataset("config.yaml")
        >>> data, label = dataset[2]
        >>> tuple(data.shape), int(label)
        ((2, 3), 2)
    """

    def __getitem__(self, batch: Any) -> Any:
        """Returns ``(input, label)`` for an index, and a list of such tuples for indices, in their order.

        Args:
            batch (Any): An index, or indices: a list, a tuple, a range, an array or a slice.

        Raises:
            IndexError: The generation has no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The generation was reclaimed, and ``keeptrying`` is False or no newer one exists.
        """
        indices = self._indices(batch)
        return self._pair(indices) if isinstance(indices, int) else [self._pair(index) for index in indices]


def _ring_of(collection: Any) -> Ring:
    if collection is None:
        raise ConfigError("no configuration was given: pass config_path, the path of the configuration")
    if type(collection).__module__.split(".")[0] == "pymongo":
        # By index, samples are read without the coordination index. KEEP is not recorded in the ring.
        return Ring({"RING": _path_in(collection.database), "INDEX": "files", "KEEP": 0})
    return Ring._of(collection)


def _path_in(database: Any) -> str:
    """Returns the path of the ring whose index is in this database of pymongo, as its swap status names it.

    Raises:
        ConfigError: The database has the index of no ring with a generation, or those of several rings, or the ring's
            directory does not exist here.
    """
    paths = sorted(swap["path"] for swap in database["status"].find({"path": {"$exists": True}, "swapped": True}))
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return str(paths[0])
    if len(paths) == 1:
        found = f"of the ring {paths[0]}, which does not exist on this machine"
    else:
        found = f"of {len(paths)} rings ({', '.join(paths)})" if paths else "of no ring that has a generation"
    raise ConfigError(f"collection: database {database.name} has the index {found}: pass config_path instead")


def _float32(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.float32, copy=False)
    return value.float() if hasattr(value, "float") else value
