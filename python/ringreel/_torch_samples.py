"""The samples of rings in this process, for torch's loaders: one open dataset for each generation that is in use."""

import weakref
from collections import deque
from typing import Any

from ringreel._dataset import Dataset
from ringreel._errors import ReclaimedError, RingreelError
from ringreel._log import logger
from ringreel._ringreel import Config
from ringreel._sample import Sample

#: A configuration, as what it is made from: it can be compared, and is small in a pickle.
Key = tuple[Any, ...]

# Reading goes on with the newest generation when its own is gone; so often is that looked for.
_TRIES = 10
# Seconds for a ring that another process has just read to be there.
_PATIENCE = 10.0

_open: "weakref.WeakValueDictionary[tuple[Key, int], Dataset]" = weakref.WeakValueDictionary()
# How many of its generation's samples are held out: they come first, and are not counted by an index.
_held_out: "weakref.WeakKeyDictionary[Dataset, int]" = weakref.WeakKeyDictionary()
# What nobody else holds: of generations that no RingDataset of this process stands at.
_recent: "deque[Dataset]" = deque(maxlen=2)


def key_of(config: Config) -> Key:
    """What `Config` makes the same configuration from again."""
    key: Key = config.__reduce__()[1]
    return key


def register(key: Key, number: int, dataset: Dataset) -> None:
    """From now on, `dataset` is what generation `number` is read from, for as long as somebody holds it."""
    _open[key, number] = dataset


def read(dataset: Dataset, index: int) -> Sample:
    """The sample at `index`, counted round from the beginning in a generation that is shorter.

    A dataset whose generation is reclaimed goes on with the newest one, which may be. Raises what `dataset[i]` raises.
    """
    for _ in range(_TRIES):
        inside = index % len(dataset)
        try:
            sample = dataset[inside]
        except IndexError:  # it went on to a shorter one just now
            continue
        if inside == index % len(dataset):
            return sample
    raise ReclaimedError(
        f"generations are reclaimed faster than sample {index} is read: raise KEEP or SWAP_CAP in the configuration"
    )


def read_again(key: Key, number: int, position: int, sample_id: str) -> Sample:
    """The sample that another process found at `position` of generation `number`.

    Where the generation was reclaimed meanwhile, it is a sample of the newest one. Raises RingreelError when it is
    another sample, and what `dataset[i]` raises.
    """
    dataset = _open.get((key, number))
    if dataset is None:
        dataset = Dataset(Config(*key), _PATIENCE, number)
        register(key, number, dataset)
        _recent.append(dataset)
    for _ in range(2):
        index = position - _held_out.get(dataset, 0)
        sample = read(dataset, index)
        if sample.generation != number:
            logger.warning(
                "sample %s of generation %d was reclaimed on its way from a worker, and sample %s of generation %d "
                "takes its place; a larger KEEP in the configuration keeps generations for longer",
                *(sample_id, number, sample.sample_id, sample.generation),
            )
            return sample
        if sample.sample_id == sample_id:
            return sample
        _held_out[dataset] = sample.position - index % len(dataset)
    raise RingreelError(
        f"sample {position} of generation {number} is another one than a worker found there: the ring was removed and "
        "made anew; make a new dataset"
    )
