"""A ring as an iterable dataset: one epoch after the other, shared among ranks and loader workers."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ringreel._environment import rank_and_world, run_name
from ringreel._ring import Config, Ring, _placed, _tell_alone
from ringreel._sample import Sample
from ringreel._stream import Stream
from ringreel._torch_batches import _end_with_trainer, mark

if TYPE_CHECKING:  # with torch and without it, the checks of types see the same

    class _Iterable:
        pass
else:
    _Iterable = torch.utils.data.IterableDataset


class RingStream(_Iterable):
    """The samples of a ring, one epoch after the other, shared among ranks and workers: a
    `torch.utils.data.IterableDataset`.

    It finds by itself which rank it is (from `torch.distributed`, where that is initialized, else from the environment)
    and which worker of a `DataLoader`; each gets a share of its own, and all have the same number of steps, so that no
    rank waits for another at the end of an epoch. Each time it is iterated over, it gives `epochs` epochs (None:
    without end) and goes on where all workers were before, with the newest generation of that moment. A replay begins
    anew.

    A sample is a dict of tensors by the names of its parts, or a tuple of them; parts of bytes stay `bytes`. With
    `equal="pad"` there is one more, "is_padding" (the last one of a tuple): a tensor of one bool. Tensors lie on the
    CPU and may be changed in place; nobody else sees a change.

    The iterator has `state_dict` and `load_state_dict`, so a `StatefulDataLoader` of torchdata resumes exactly.

    Parameters
    ----------
    config : path of a YAML file, a dict of the same keys, or a `ringreel.Ring`.
    equal : "drop" (the default), "wrap", "pad", or None, which lets shares differ by one.
    parts : names of the parts that are given, in this order; None: all, in the order of SAMPLE.
    as_tuple : whether a sample is a tuple of its parts, in that order, instead of a dict.
    transform : called with each sample (dict or tuple); what it returns is given in its place. It runs in the worker.
    options : as `ringreel.Ring.stream` takes them: rank, world_size, shuffle, seed, pad_value, epochs, prefetch_bytes,
        run, replay, repeat, timeout, threads.

    Raises what `Ring.stream` raises, ValueError for `parts` that are empty or not in the configuration's SAMPLE, and
    for each sample what `RingDataset` raises.
    """

    def __init__(
        self,
        config: Config | Ring,
        *,
        equal: str | None = "drop",
        parts: Sequence[str] | None = None,
        as_tuple: bool = False,
        transform: Callable[[Any], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        pad_value: float = -100,
        epochs: int | None = None,
        prefetch_bytes: int | None = None,
        run: str | None = None,
        replay: str | None = None,
        repeat: bool = True,
        timeout: float | None = None,
        threads: int | None = None,
    ) -> None:
        from ringreel.torch import _checked  # which needs this module

        self._ring = Ring._of(config)
        self._parts = _checked(parts, self._ring.sample)
        self._as_tuple = as_tuple
        self._transform = transform
        self._share = None if rank is None and world_size is None else _placed(rank, world_size)
        self._run = run
        # All workers of this dataset's loaders read together, whatever happens to be known of the job.
        self._own = uuid.uuid4().hex[:16]
        self._turns = 0
        self._told = False
        self._options: dict[str, Any] = {
            "shuffle": shuffle,
            "seed": seed,
            "equal": equal,
            "pad_value": pad_value,
            "epochs": epochs,
            "prefetch_bytes": prefetch_bytes,
            "replay": replay,
            "repeat": repeat,
            "timeout": timeout,
            "threads": threads,
        }
        # What is wrong with them is said now, and not in a worker.
        self._ring._stream(*(self._share or (0, 1)), run=run, **self._options)

    def __repr__(self) -> str:
        return f"<ringreel.torch.RingStream {self._ring.path}>"

    def __getstate__(self) -> dict[str, Any]:
        # In a spawned worker torch.distributed is not initialized.
        return {**self.__dict__, "_share": self._placed()}

    def __iter__(self) -> "RingIterator":
        rank, world_size = self._placed()
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if info is not None:
            # Otherwise torch may end the worker of a killed process in order. The worker would
            # leave the run, which then keeps no generation for a restart.
            _end_with_trainer()
        # What the workers of this loop have in common, and no other loop has. Workers that stay are asked each time.
        self._turns += 1
        token = f"{self._own if info is None else info.seed - info.id}.{self._turns}"
        run = self._run
        if run is None and self._options["replay"] is None:
            run = run_name(world_size, self._own)
            if run is None:
                run = f"loader-{self._own}"
                if world_size > 1 and not self._told:
                    self._told = True
                    _tell_alone(rank, world_size)
        turn = None if run is None else (rank, token)
        stream = self._ring._stream(
            rank * workers + worker, world_size * workers, run=run, goes_on=turn, own=True, **self._options
        )
        return RingIterator(stream, self._given)

    def _placed(self) -> tuple[int, int]:
        """Rank and number of ranks of this process."""
        if self._share is not None:
            return self._share
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return rank_and_world()

    def _given(self, sample: Sample) -> Any:
        tensors: dict[str, Any] = sample.torch(*self._parts)
        if not sample.is_padding:
            for name, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor):
                    mark(tensor, sample, name)
        if self._options["equal"] == "pad":
            tensors["is_padding"] = torch.tensor(sample.is_padding)
        value = tuple(tensors.values()) if self._as_tuple else tensors
        return value if self._transform is None else self._transform(value)


class RingIterator(Iterator[Any]):
    """What `iter(RingStream(...))` gives."""

    def __init__(self, stream: Stream, given: Callable[[Sample], Any]) -> None:
        self._stream = stream
        self._given = given

    def __iter__(self) -> "RingIterator":
        return self

    def __next__(self) -> Any:
        return self._given(next(self._stream))

    @property
    def missing(self) -> list[int]:
        """See `ringreel.Stream.missing`."""
        return self._stream.missing

    def state_dict(self) -> dict[str, Any]:
        """Where this worker is; before its first sample, where it is going to begin (for which it opens the ring).
        While `__next__` waits, it opens nothing and answers at once.

        See `ringreel.Stream.state_dict`.
        """
        return self._stream._place()

    def load_state_dict(self, state: "Mapping[str, Any] | Sequence[Mapping[str, Any]]") -> None:
        """Goes on from there. See `ringreel.Stream.load_state_dict`."""
        self._stream.load_state_dict(state)
