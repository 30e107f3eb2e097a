"""The ring that a configuration describes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Union

from ringreel import _ringreel
from ringreel._arguments import checked_equal, given_rank, integer, optional_integer, pad_values, seconds
from ringreel._dataset import Dataset
from ringreel._environment import rank_and_world, run_name, tell_alone
from ringreel._errors import ConfigError
from ringreel._generator import Generator
from ringreel._hold_out import HoldOut, checked_rule
from ringreel._log import logger
from ringreel._stream import Stream
from ringreel._validation import Validation

#: The description of a ring: the path of a YAML file, or its contents as a mapping.
Config = Union[str, os.PathLike[str], Mapping[str, Any]]

#: Default number of threads that read ahead.
_THREADS = min(4, os.cpu_count() or 1)


class Ring:
    """A ring, described by its configuration.

    Constructing a ``Ring`` is cheap: it reads and checks the configuration, and opens no file of the
    ring. It can be pickled, and can be used in a forked child.

    Args:
        config (str | os.PathLike | Mapping): Path of a YAML file, or a dict of the same keys. Relative
            paths in it start at the file's directory; in a dict, at the current directory.

    Raises:
        ConfigError: The configuration cannot be read, has an unknown key, or has an invalid value.

    Example:
        >>> ring = ringreel.Ring("config.yaml")
        >>> ring.sample
        ['data', 'label']

        The same ring, described by a dict:

        >>> ringreel.Ring({"DBNAME": "demo", "SWAP_CAP": 4, "SAMPLE": ["data", "label"]}).path == ring.path
        True
    """

    def __init__(self, config: Config) -> None:
        self._config = _parsed(config)

    @classmethod
    def _of(cls, config: Config | Ring) -> Ring:
        """Returns ``config`` itself if it is a ring, and otherwise the ring that it describes."""
        return config if isinstance(config, Ring) else cls(config)

    def __repr__(self) -> str:
        return f"<ringreel.Ring {self.path}>"

    @property
    def path(self) -> str:
        """The ring's directory. It need not exist yet.

        Example:
            >>> ringreel.Ring("config.yaml").path
            '.../demo.ring'
        """
        return self._config.ring

    @property
    def sample(self) -> list[str] | None:
        """The configuration's ``SAMPLE``, the names of a sample's parts, in order.

        None if the configuration leaves the names to the ring.
        """
        return self._config.sample

    def generator(self) -> Generator:
        """Opens a generator, and creates the ring if it does not exist.

        Use the generator in a ``with`` statement, or call its ``finish``.

        Returns:
            Generator: A generator of this process.

        Raises:
            ConfigError: The configuration does not suffice to create the ring.
            RingMismatchError: The ring does not match the configuration.
            CoordinationUnavailableError: The server that keeps the index does not answer.
            CoordinationDeniedError: The server that keeps the index refuses this user.
            OSError: The filesystem reports an error.

        Example:
            >>> with ringreel.Ring("config.yaml").generator() as generator:
            ...     ids = generator.write((np.zeros((2, 3), np.float32), 7))
            >>> generator.summary.finished
            1
        """
        return Generator(self._config)

    def dataset(
        self, timeout: float | None = None, generation: int | None = None, hold_out: HoldOut | None = None
    ) -> Dataset:
        """Returns the samples of one generation as a sequence.

        Args:
            timeout (float | None): Seconds to wait for the ring's first generation, when the dataset is
                first used. None (the default) waits without limit.
            generation (int | None): Number of the generation to start with. None (the default), or the
                number of a generation that no longer exists, selects the newest one.
            hold_out (HoldOut | None): A rule that leaves samples out. None (the default): all samples for
                training.

        Returns:
            Dataset: The samples by index. It opens the ring when it is first used.

        Example:
            >>> dataset = ringreel.Ring("config.yaml").dataset()
            >>> dataset.generation, len(dataset)
            (1, 4)
        """
        return Dataset(self._config, timeout, generation, hold_out=checked_rule(hold_out))

    def held_out(self, hold_out: HoldOut, timeout: float | None = None, generation: int | None = None) -> Dataset:
        """Returns the samples of one generation that a rule holds out of training, as a sequence.

        ``stream`` and ``dataset`` with the same rule never return these samples.

        Args:
            hold_out (HoldOut): The rule.
            timeout (float | None): Seconds to wait for the ring's first generation, when the sequence is first
                used. None (the default) waits without limit.
            generation (int | None): Number of the generation, as for ``dataset``.

        Returns:
            Dataset: The held-out samples by index. It opens the ring when it is first used.

        Raises:
            TypeError: ``hold_out`` is not a ``HoldOut``.

        Example:
            >>> ring = ringreel.Ring("config.yaml")
            >>> last = ringreel.HoldOut(choose=lambda sample: sample.meta["number"] == 3)
            >>> [int(sample["label"]) for sample in ring.held_out(last)]
            [3]
        """
        if checked_rule(hold_out) is None:
            raise TypeError("hold_out: expected a ringreel.HoldOut, found None")
        return Dataset(self._config, timeout, generation, hold_out=hold_out, held_out=True)

    def validation(self, timeout: float | None = None) -> Validation:
        """Returns the samples that the ring holds out for validation, as a sequence.

        They are the first ``n`` samples of a ring that was created with ``VALIDATION: n``. They do not
        change, ``dataset`` and ``stream`` never serve them, and they are kept when their generations are
        old.

        Args:
            timeout (float | None): Seconds to wait, when the sequence is first used, until all ``n``
                samples are readable. None (the default) waits without limit.

        Returns:
            Validation: The held-out samples by index. It opens the ring when it is first used.

        Example:
            >>> ring = ringreel.Ring({"DBNAME": "split", "SWAP_CAP": 4, "SAMPLE": ["x"], "VALIDATION": 2})
            >>> summary = ringreel.run_generator([(n,) for n in range(4)], ring)
            >>> [int(sample["x"]) for sample in ring.validation()]
            [0, 1]
            >>> [int(sample["x"]) for sample in ring.dataset()]
            [2, 3]
        """
        return Validation(self._config, timeout)

    def stream(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        equal: str | None = None,
        pad_value: float | Mapping[str, float] = -100,
        epochs: int | None = None,
        prefetch_bytes: int | None = None,
        run: str | None = None,
        replay: str | None = None,
        repeat: bool = True,
        timeout: float | None = None,
        threads: int | None = None,
        hold_out: HoldOut | None = None,
    ) -> Stream:
        """Returns an iterator over one rank's share of each epoch.

        An epoch is one pass over the generation that is newest when the epoch starts.

        Args:
            rank (int | None): This process's number, from 0. Rank ``r`` of ``n`` gets the samples
                ``r, r + n, r + 2 n, ...`` of each epoch's order. Give ``rank`` and ``world_size`` together.
                None (the default) takes both from ``RANK`` and ``WORLD_SIZE`` in the environment, or from
                the variables that srun and mpirun set, and otherwise uses rank 0 of 1.
            world_size (int | None): Number of ranks. If a rank has several reading processes (workers of a
                data loader), count these: ``rank * workers + worker`` of ``world_size * workers``.
            shuffle (bool): Whether each epoch has its own random order. The order is the same for all ranks
                and is determined by seed, generation and epoch. False (the default) keeps the order of the
                generation.
            seed (int): Seed of the random order. Default 0.
            equal (str | None): How all ranks get the same number of steps in each epoch. ``"drop"`` leaves
                the surplus samples out; ``"wrap"`` repeats the first samples of the order; ``"pad"`` adds
                padding samples, which have ``is_padding`` set. None (the default) lets the shares differ by
                one step.
            pad_value (float | Mapping[str, float]): Value of each element of a padding sample, clamped to
                the range of the element type, or the values by part, as in ``{"input_ids": 0}``; the
                elements of the other parts are then -100. Parts of bytes are zeros. Default -100.
            epochs (int | None): Number of epochs after which the stream ends. None (the default): never.
            prefetch_bytes (int | None): Bytes of samples that are read ahead at most, but at least one
                sample. 0 reads nothing ahead; None (the default) uses ``PREFETCH_BYTES``.
            run (str | None): Name of the run. Its ranks follow the same sequence of generations, and a
                generation is kept until all of them have read it. A stream that starts under a name that
                was used before follows that run's log, so give each training a new name. None (the default)
                uses ``TORCHELASTIC_RUN_ID`` or ``SLURM_JOB_ID``; without these the stream is a run of its
                own.
            replay (str | None): Name of a past run. Yields the same samples in the same order, skipping
                those already reclaimed, then stops.
            repeat (bool): Whether a generation is read again while there is no newer one (the default).
                False waits for a newer one.
            timeout (float | None): Seconds to wait for the ring's first generation, and for a newer one.
                None (the default) waits without limit.
            threads (int | None): Number of threads that read ahead. It does not change the samples or their
                order. None (the default) uses up to 4.
            hold_out (HoldOut | None): A rule that leaves samples out, before the ranks share the others. All
                ranks of a run, and a stream that resumes, must have the same rule. None (the default): all
                samples for training.

        Returns:
            Stream: The iterator. It opens the ring with its first sample.

        Raises:
            ValueError: ``rank`` is not in 0 to ``world_size - 1``, or another argument is out of range, or
                ``pad_value`` names a part that is not in the configuration's ``SAMPLE``. (If the
                configuration has no ``SAMPLE``, the first sample of the stream raises ``SampleError``.)
            TypeError: An argument has the wrong type.

        Example:
            >>> ring = ringreel.Ring("config.yaml")
            >>> [int(sample["label"]) for sample in ring.stream(epochs=1)]
            [0, 1, 2, 3]
            >>> [int(sample["label"]) for sample in ring.stream(rank=1, world_size=2, run="a", epochs=1)]
            [1, 3]
        """
        rank, world_size = given_rank(rank, world_size) or rank_and_world()
        if run is None and replay is None:
            run = run_name(world_size)
            if run is None and world_size > 1:
                tell_alone(rank, world_size)
        return self._stream(
            rank,
            world_size,
            shuffle=shuffle,
            seed=seed,
            equal=equal,
            pad_value=pad_value,
            epochs=epochs,
            prefetch_bytes=prefetch_bytes,
            run=run,
            replay=replay,
            repeat=repeat,
            timeout=timeout,
            threads=threads,
            hold_out=hold_out,
        )

    def _stream(
        self, worker: int, workers: int, *, goes_on: tuple[int, str] | None = None, own: bool = False, **options: Any
    ) -> Stream:
        """Returns the stream of worker ``worker`` of ``workers``, for callers that name the run themselves.

        Args:
            worker (int): Number of this worker, counted over all ranks.
            workers (int): Number of workers of all ranks.
            goes_on (tuple[int, str] | None): The rank and the token of a loop of a data loader, whose
                workers start together where all workers of the loop before were.
            own (bool): Whether each sample gets private, writable memory.
            **options (Any): The other arguments of ``stream``.

        Raises:
            ValueError: An argument is out of range.
            TypeError: An argument has the wrong type.
        """
        if not 0 <= worker < workers:
            raise ValueError(f"rank: expected 0 or more and less than world_size={workers}, found {worker}")
        for name in ("epochs", "prefetch_bytes", "threads"):
            options[name] = optional_integer(name, options[name], 0)
        checked_equal(options["equal"])
        if options["run"] is not None and options["replay"] is not None:
            raise ValueError("run and replay: expected at most one, because a replay is not part of a run")
        options["seed"] = integer("seed", options["seed"]) % (1 << 64)
        options["threads"] = _THREADS if options["threads"] is None else options["threads"]
        options["pad_value"], options["pad_values"] = pad_values(options["pad_value"], self.sample)
        options["timeout"] = seconds("timeout", options["timeout"])
        rule = checked_rule(options.pop("hold_out", None))
        options["leave_out"] = None if rule is None else rule._indices
        return Stream(self._config, worker, workers, goes_on=goes_on, own=own, **options)

    def status(self) -> dict[str, Any]:
        """Returns the state of the ring. Reads the ring only, and writes nothing.

        Returns:
            dict: The values that ``ringreel status`` shows. The main keys are:

            - ``newest`` (int): number of the newest generation, 0 before the first;
            - ``swaps`` (int): number of promotions;
            - ``swap_ms_mean`` (float | None): mean time in milliseconds for which generators could not
              commit at a promotion;
            - ``samples_delivered``, ``samples_waiting``, ``samples_generated`` (int): samples that a
              manifest lists, finished samples that no manifest lists yet, and their sum;
            - ``samples_per_second`` (float | None), ``bytes`` (int): rate over the last promotions, and
              size of the ring's segments;
            - ``generations``, ``writing``: the readable generations, and the generation that fills;
            - ``manager``, ``managers``, ``generators``, ``readers``: the processes that take part;
            - ``quarantined``: number of segments in quarantine;
            - ``index``, ``index_away``: where the index is kept, and why it does not answer (None if it
              does). While it does not answer, the processes that take part are unknown;
            - ``reuse``: how often each of the last generations was read;
            - ``failures``: the errors that ended generators and managers, newest first;
            - ``validation``, ``validation_readable``, ``validation_damaged``: how many samples are held
              out, how many of them can be read, and how many of them readers found damaged.

        Raises:
            RingNotFoundError: The ring does not exist.
            RingMismatchError: The ring does not match the configuration.
            OSError: The filesystem reports an error.

        Example:
            >>> status = ringreel.Ring("config.yaml").status()
            >>> status["newest"], status["samples_delivered"]
            (1, 4)
        """
        status: dict[str, Any] = json.loads(_ringreel.status(self._config))
        return status

    def _tell_notes(self) -> None:
        for note in self._config.notes:
            logger.info("note: %s", note)


def _parsed(config: Config) -> _ringreel.Config:
    if isinstance(config, Mapping):
        try:
            text = json.dumps(dict(config), allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the configuration given as a dict: {error}") from error
        return _ringreel.Config(text, "the configuration given as a dict", os.getcwd(), False)
    if isinstance(config, (str, os.PathLike)):
        return _ringreel.Config.load(os.fspath(config))
    raise ConfigError(f"configuration: expected a path or a dict, found {type(config).__name__}")


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r}: a configuration cannot hold an object of type {type(value).__name__}")
