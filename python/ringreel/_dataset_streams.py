"""The streams of a dataset of torch or Grain: their rank, their run and their options."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from ringreel._arguments import given_rank
from ringreel._environment import found_rank, run_name, tell_alone
from ringreel._ring import Config, Ring
from ringreel._stream import Stream


class DatasetStreams:
    """Opens the streams of an iterable dataset, which each of its workers reads.

    Args:
        config (str | os.PathLike | Mapping | Ring): The ring, or its configuration.
        kind (str): First word of the name of a run, if neither the caller nor the environment names one.
        rank (int | None): Rank of this process, or None with ``world_size``.
        world_size (int | None): Number of ranks, without workers.
        run (str | None): Name of the run.
        find (Callable | None): Finds a rank that was not given, before torch and the environment do.
        **options (Any): The other arguments of ``Ring.stream``.

    Raises:
        ConfigError: The configuration cannot be used.
        ValueError: An argument is out of range.
        TypeError: An argument has the wrong type.
    """

    def __init__(
        self,
        config: Config | Ring,
        kind: str,
        rank: int | None,
        world_size: int | None,
        run: str | None,
        find: Callable[[], tuple[int, int] | None] | None = None,
        **options: Any,
    ) -> None:
        self.ring = Ring._of(config)
        self.options = options
        #: Text that identifies the dataset, in all its workers.
        self.token = uuid.uuid4().hex[:16]
        self._kind = kind
        self._given = given_rank(rank, world_size)
        self._run = run
        self._find = find
        self._told = False
        # Raises errors of the arguments now, and not in a worker.
        self.ring._stream(*(self._given or (0, 1)), run=run, **options)

    def __getstate__(self) -> dict[str, Any]:
        # JAX and torch.distributed are not initialized in a worker that is a new process.
        return {**self.__dict__, "_given": self.rank()}

    def rank(self) -> tuple[int, int]:
        """Returns the rank of this process and the number of ranks."""
        return found_rank(self._given or (self._find and self._find()))

    def run_name(self) -> str | None:
        """Returns the name of the run of an iteration, or None for a replay."""
        if self._run is not None or self.options["replay"] is not None:
            return self._run
        rank, world_size = self.rank()
        name = run_name(world_size, self.token)
        if name is None and world_size > 1 and not self._told:
            self._told = True
            tell_alone(rank, world_size)
        # Without a named run, all workers of this dataset still share one.
        return name or f"{self._kind}-{self.token}"

    def open(self, worker: int, workers: int, run: str | None, turn: str | None) -> Stream:
        """Returns the stream of worker ``worker`` of ``workers``, counted over all ranks.

        Args:
            worker (int): Number of the worker.
            workers (int): Number of workers.
            run (str | None): Name of the run; None for a replay.
            turn (str | None): Text that the workers of this rank have in common in this iteration, which makes them
                start together; None to start at the beginning of the run.
        """
        goes_on = None if turn is None or run is None else (self.rank()[0], turn)
        return self.ring._stream(worker, workers, run=run, goes_on=goes_on, own=True, **self.options)
