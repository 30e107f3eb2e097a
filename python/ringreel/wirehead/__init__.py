"""Wirehead's interface (https://github.com/neuroneural/wirehead) on a ring.

A program written for Wirehead runs with only its imports changed, and uses its ``config.yaml`` as it
is. The ring is the directory ``<DBNAME>.ring`` beside the configuration. With ``MONGOHOST`` the index
(counter, swap status, leases) is kept in that MongoDB, which has to run; with ``INDEX: files`` no
MongoDB is needed.

The submodules ``dataset``, ``generator`` and ``log`` are named as Wirehead's, and so is ``manager`` of its
earlier versions. Only ``dataset`` imports torch, if it is installed.

Differences from Wirehead: samples keep the element type that they were generated with (values are
not cast to uint8), a sample is delivered once it is finished, and a dataset raises an exception
instead of ending the program.

Example:
    >>> from ringreel.wirehead import MongoheadDataset, WireheadGenerator
    >>> samples = [(np.full((2, 3), n, np.float32), np.array(n)) for n in range(4)]
    >>> summary = WireheadGenerator(samples, "config.yaml").run_generator()
    >>> dataset = MongoheadDataset("config.yaml")
    >>> sorted(dataset[0])
    ['input', 'label']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringreel.wirehead.dataset import (
        MongoheadDataset,
        MongoTupleheadDataset,
        binary_to_tensor,
        quantile_normalize,
        unit_interval_normalize,
    )
    from ringreel.wirehead.generator import WireheadGenerator
    from ringreel.wirehead.log import SwapLog, WireheadLogger, WireheadSnapshot
    from ringreel.wirehead.manager import WireheadManager

__all__ = [
    "MongoTupleheadDataset",
    "MongoheadDataset",
    "SwapLog",
    "WireheadGenerator",
    "WireheadLogger",
    "WireheadManager",
    "WireheadSnapshot",
    "binary_to_tensor",
    "quantile_normalize",
    "unit_interval_normalize",
]

# Each name is imported from its submodule when it is first used: the datasets import torch if it is installed, and
# generators and managers do not need it.
_SUBMODULE_OF = {
    "MongoTupleheadDataset": "dataset",
    "MongoheadDataset": "dataset",
    "SwapLog": "log",
    "WireheadGenerator": "generator",
    "WireheadLogger": "log",
    "WireheadManager": "manager",
    "WireheadSnapshot": "log",
    "binary_to_tensor": "dataset",
    "quantile_normalize": "dataset",
    "unit_interval_normalize": "dataset",
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULE_OF.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _SUBMODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_SUBMODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULE_OF.values()})
