"""A ring as a data source for Grain, the loader of JAX programs. Grain itself is not imported.

::

    import grain
    from ringreel.grain import RingSource

    source = RingSource("config.yaml", parts=["data", "label"])
    samples = grain.MapDataset.source(source).shuffle(seed=1)
    samples = samples.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=16))
    for batch in samples.batch(8, drop_remainder=True):
        batch["data"], batch["label"]

(Without `ReadOptions` Grain holds up to 500 items that it read ahead, in each process. That is much for large samples.)

Grain promises that the same seed gives the same samples in the same order, also after a restart. A ring goes on
changing meanwhile. So a source is one generation, the newest one of the moment it was made, and it stays that one: in
all threads, and in all processes that it is sent to. For fresh samples make a new source, for each epoch, say. When the
generation is reclaimed in the middle of an epoch, reading raises `ReclaimedError`; it never goes on with other samples.
A generation stays while the ring is swapped ``KEEP`` times: a larger ``KEEP`` in the configuration gives an epoch more
time.

A checkpoint of Grain's holds positions, not samples. To go on from it, make the source of the same generation again:
keep `RingSource.generation` beside the checkpoint, and give it as `generation`. `grain.DataLoader` refuses the state of
another source; `grain.MapDataset` takes it unseen.
"""

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from ringreel import _dtypes
from ringreel._dataset import Dataset
from ringreel._errors import ReclaimedError, RingMismatchError
from ringreel._ring import Config, Ring
from ringreel._sample import _array


class RingSource:
    """The samples of one generation of a ring, by position, as Grain asks for them.

    An item is a dict from the name of a part to a NumPy array, or to `bytes` for a part that was written as bytes.
    (Decode those before a batch is made: NumPy makes fixed-length text of them, which loses zeros at the end.) The
    arrays may be changed in place: they lie in memory of this item alone, and nobody else sees a change. A bfloat16
    part is as in `Sample`.

    It may be read by several threads, pickled (it goes on with the same generation of the same ring), and used on in a
    forked child. Its `repr`, which Grain keeps in checkpoints and compares, names the ring by its id, the generation
    and the parts: what decides which samples these are. Where the ring is mounted is no part of it.

    Parameters
    ----------
    config : path of a configuration file, a dict, or a `Ring`.
    parts : names of the parts to give, in this order; None: all. Others are never turned into arrays.
    timeout : seconds for which it waits for the ring's first generation, here and in every process; None: for ever.
    generation : number of the generation; None: the newest one.

    Raises
    ------
    ConfigError : the configuration cannot be used.
    RingMismatchError : the ring does not fit the configuration.
    RingTimeoutError : there was no generation in time.
    ReclaimedError : generation `generation` is gone, and its manifest too. (Where only its samples are gone, reading
        says so.)
    ValueError : `parts` names none of the ring's parts or nothing, or generation `generation` is not there yet.
    """

    def __init__(
        self,
        config: Config | Ring,
        parts: Iterable[str] | None = None,
        timeout: float | None = None,
        *,
        generation: int | None = None,
    ) -> None:
        ring = Ring._of(config)
        self._path = ring.path
        wanted = None if generation is None else max(operator.index(generation), 0)
        self._dataset = Dataset(ring._config, timeout, wanted, own=True)
        self._generation = self._dataset.generation  # opens the ring, so that what follows is there
        if generation is not None and generation != self._generation:
            if 0 < generation < self._generation:
                raise self._reclaimed(generation)
            raise ValueError(
                f"there is no generation {generation} in {self._path}: the newest is {self._generation}, the first is 1"
            )
        self._length = len(self._dataset)
        reader, _ = self._dataset._open()
        self._ring_id, names = reader.ring_id, reader.parts
        self._parts = _chosen(parts, names, self._path)
        self._pid = os.getpid()  # in other processes the generation is looked for, and checked, afresh

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pid": None}

    @property
    def generation(self) -> int:
        """The number of the generation that is read."""
        return self._generation

    def __repr__(self) -> str:
        parts = ", ".join(map(repr, self._parts))
        return f"RingSource(ring={self._ring_id!r}, generation={self._generation}, parts=[{parts}])"

    def __len__(self) -> int:
        """How many samples the generation holds."""
        return self._length

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """The parts of the sample at `index`, from the end when negative.

        Raises IndexError when there is no such sample; `DamagedSampleError` when it cannot be read; `ReclaimedError`
        when its generation is gone; `RingMismatchError` in another process, when the path leads to another ring there.
        """
        try:
            self._check()
            sample = self._dataset._at(operator.index(index), follow=False)
        except ReclaimedError as error:
            raise self._reclaimed(self._generation) from error
        values = {}
        for name in self._parts:
            part = sample._part(name)
            values[name] = bytes(part) if part.dtype == _dtypes.BYTES else _array(part, part.writable())
        return values

    def _getitems(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        """The items at `indices`, in this order: the name under which Grain asks for several at once."""
        return [self[index] for index in indices]

    def _check(self) -> None:
        """Whether this process, too, reads that generation of that ring."""
        if self._pid == os.getpid():
            return
        if self._dataset.generation != self._generation:
            raise ReclaimedError(f"generation {self._generation} has no manifest")
        found = self._dataset._open()[0].ring_id
        if found != self._ring_id:
            raise RingMismatchError(
                f"the ring at {self._path} is {found}, this source was made of {self._ring_id}: "
                "make the source anew, or give it the path of its own ring"
            )
        self._pid = os.getpid()

    def _reclaimed(self, generation: int) -> ReclaimedError:
        if generation in self._dataset.missing:
            return ReclaimedError(
                f"generation {generation} of {self._path} is missing, although KEEP covers it, and this source gives "
                "no other samples: `ringreel verify` tells what is lost; make a new source for the newest generation"
            )
        return ReclaimedError(
            f"generation {generation} of {self._path} was reclaimed, and this source gives no other samples: make a "
            "new one for the newest generation (for each epoch, say), or raise KEEP, so that generations stay longer"
        )


def _chosen(parts: Iterable[str] | None, names: list[str], path: str) -> tuple[str, ...]:
    """The parts to give, each once."""
    chosen = tuple(dict.fromkeys(names if parts is None else [parts] if isinstance(parts, str) else parts))
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        what = f"no part {unknown[0]!r}" if unknown else "nothing to read without a part"
        raise ValueError(f"parts: there is {what}; the parts of {path} are {', '.join(names)}")
    return chosen
