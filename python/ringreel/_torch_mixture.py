"""Several datasets as one iterable dataset, mixed by weight in each loader worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringreel._length import length_of
from ringreel._mixture import Mixture, mixture_length
from ringreel._shard import DatasetLike
from ringreel._stats import StreamStats
from ringreel._torch_bases import IterableStyle
from ringreel._torch_stream import RingStream
from ringreel._wording import counted


class MixtureStream(IterableStyle):
    """Several streams as one, each item chosen at random by weight: a ``torch.utils.data.IterableDataset``.

    Each worker of each rank draws from its own share of every source, so each item of a source is read once,
    as without the mixture. The choices are those of a ``ringreel.Mixture``: they depend on ``seed``, the
    number of the draw, and which sources have ended. So if every source gives all workers the same number of
    items (``equal``), all workers draw from the same sources in the same order, and have the same number of
    steps. Each iteration starts with the same choices.

    The iterator is a ``ringreel.Mixture``, which has ``state_dict`` and ``load_state_dict``, so a
    ``StatefulDataLoader`` of torchdata resumes exactly, with the same number of workers.

    Args:
        sources (Sequence): ``RingStream``, ``ringreel.Shard``, ``ringreel.StreamLoader`` or
            ``ringreel.InputSplit`` objects, which share their items among ranks and workers. Their samples
            have to fit into one batch: the same parts, shapes and element types.
        weights (Sequence[float] | None): A number per source, 0 or more; only their ratios matter. A
            source with weight 0 is never read. None (the default) weights all equally.
        seed (int): Seed of the choices. Default 0.
        stop (str): What happens when a source ends. ``"all"`` (the default): the other sources continue.
            ``"first"``: the iteration ends. See ``ringreel.Mixture``.

    Raises:
        ValueError: ``sources`` is empty, ``weights`` are invalid, or ``stop`` is unknown.
        TypeError: A source does not share its items, or ``seed`` is not an integer.

    Example:
        >>> import torch
        >>> from ringreel.torch import MixtureStream, RingStream
        >>> brains = RingStream("config.yaml", epochs=1, parts=["label"])
        >>> lesions = RingStream("config.yaml", epochs=1, parts=["label"])  # in practice another ring
        >>> loader = torch.utils.data.DataLoader(MixtureStream([brains, lesions], weights=[3, 1]), batch_size=4)
        >>> sorted(label for batch in loader for label in batch["label"].tolist())
        [0, 0, 1, 1, 2, 2, 3, 3]
        >>> len(loader)
        2
    """

    _shares_itself = True

    def __init__(
        self, sources: Sequence[Any], weights: Sequence[float] | None = None, seed: int = 0, stop: str = "all"
    ) -> None:
        self._sources = list(sources)
        for number, source in enumerate(self._sources):
            if not isinstance(source, (RingStream, DatasetLike)):
                raise TypeError(
                    f"source {number} of a MixtureStream: expected a RingStream, Shard, StreamLoader or InputSplit, "
                    f"which share their items among ranks and workers, found {type(source).__name__}. "
                    "A ringreel.Shard shares the items of a source that yields all items in every process"
                )
        # Raises errors of the arguments now, and not in a worker.
        mixture = Mixture([()] * len(self._sources), weights, seed, stop)
        self._weights, self._seed, self._stop = mixture._weights, mixture._seed, stop

    def __repr__(self) -> str:
        return f"<ringreel.torch.MixtureStream of {counted(len(self._sources), 'source')}>"

    def __iter__(self) -> Mixture:
        """Returns a mixture of this worker's shares of the sources."""
        # A source of weight 0 is left out, because the state of a RingStream opens its ring, which need not exist.
        opened = [self._opened(source) if self._weights[n] > 0 else () for n, source in enumerate(self._sources)]
        return Mixture(opened, self._weights, self._seed, self._stop)

    @staticmethod
    def _opened(source: Any) -> Any:
        """Returns what a mixture reads: the object that has the state of the source."""
        return iter(source) if isinstance(source, RingStream) else source

    def stats(self) -> StreamStats:
        """Returns how each ``RingStream`` among the sources, in this process, and its caller spent their time.

        Returns:
            StreamStats: The sums over these sources. See ``RingStream.stats``.

        Example:
            >>> from ringreel.torch import MixtureStream, RingStream
            >>> mixture = MixtureStream([RingStream("config.yaml", epochs=1), ringreel.Shard(range(2))])
            >>> items = list(mixture)
            >>> mixture.stats().distinct
            4
        """
        return StreamStats.sum(source.stats() for source in self._sources if isinstance(source, RingStream))

    def suspend(self) -> None:
        """Suspends each ``RingStream`` among the sources, in loader workers too. See ``RingStream.suspend``.

        Example:
            >>> from ringreel.torch import MixtureStream, RingStream
            >>> mixture = MixtureStream([RingStream("config.yaml", run="nightly")])
            >>> iterator = iter(mixture)
            >>> sample, state = next(iterator), iterator.state_dict()
            >>> mixture.suspend()
            >>> list(iterator)
            []
        """
        for source in self._sources:
            if isinstance(source, RingStream):
                source.suspend()

    def __len__(self) -> int:
        """Returns the number of items of this rank in one iteration, over all its workers.

        It is counted from the lengths of the sources, as ``RingStream.__len__`` describes. ``len`` of a
        ``DataLoader`` is the number of its batches.

        Raises:
            TypeError: The number is unknown, because that of a source is.
            RingTimeoutError: A ring has no generation after ``timeout`` seconds.

        Example:
            >>> from ringreel.torch import MixtureStream, RingStream
            >>> len(MixtureStream([RingStream("config.yaml", epochs=2), ringreel.Shard(range(5))]))
            13
        """
        return length_of(self)

    def _rank_and_world_size(self) -> tuple[int, int]:
        """Returns the rank of this process and the number of ranks."""
        place: tuple[int, int] = self._sources[0]._rank_and_world_size()
        return place

    def _count(self, share: int, shares: int) -> int:
        """Returns the number of items of one share in one iteration."""
        counts = []
        for number, source in enumerate(self._sources):
            try:
                count = getattr(source, "_count", None)
                if count is None:
                    raise TypeError(f"a {type(source).__name__} has no length until it was read")
                counts.append(count(share, shares) if self._weights[number] > 0 else 0)
            except TypeError as error:
                raise TypeError(f"a mixture has no length, because source {number} has none: {error}") from error
        return mixture_length(self._weights, self._seed, self._stop, counts)

    def __bool__(self) -> bool:
        """Returns True, because whether there are items is unknown before they are read."""
        return True
