"""A ring, by its configuration."""

import json
import os
from collections.abc import Mapping
from typing import Any

from ringreel import _ringreel
from ringreel._arguments import integer, optional_integer, real, seconds
from ringreel._dataset import Dataset
from ringreel._environment import rank_and_world, run_name
from ringreel._errors import ConfigError
from ringreel._generator import Generator
from ringreel._log import logger
from ringreel._stream import _THREADS, Stream
from ringreel._validation import Validation

#: What describes a ring: the path of a YAML file, or its contents as a mapping.
Config = str | os.PathLike[str] | Mapping[str, Any]


class Ring:
    """A ring: where generators put samples and readers take them.

    Cheap: it reads and checks the configuration, and opens nothing. It may be pickled, and used on in a forked child.

    Parameters
    ----------
    config : path of a YAML file, or a dict of the same keys. Relative paths are taken from the file's directory; in a
        dict, from the current directory.

    Raises
    ------
    ConfigError : the configuration cannot be read, has an unknown key, or a value that does not fit.
    """

    def __init__(self, config: Config) -> None:
        self._config = _parsed(config)

    @classmethod
    def _of(cls, config: "Config | Ring") -> "Ring":
        """`config` itself where it is a ring, else the ring that it describes."""
        return config if isinstance(config, Ring) else cls(config)

    def __repr__(self) -> str:
        return f"<ringreel.Ring {self.path}>"

    @property
    def path(self) -> str:
        """The ring's directory, whether it is there or not."""
        return self._config.ring

    @property
    def sample(self) -> list[str] | None:
        """The configuration's SAMPLE: names of the parts, in order. None where it is left to the ring."""
        return self._config.sample

    def generator(self) -> Generator:
        """A generator in this ring, which is made if it is not there. Use it in a `with` statement, or finish it.

        Raises ConfigError or RingMismatchError if the ring cannot be made or does not match the configuration,
        CoordinationUnavailableError if the server of the index does not answer, CoordinationDeniedError if it refuses
        this user, OSError for errors of the filesystem.
        """
        return Generator(self._config)

    def dataset(self, timeout: float | None = None, generation: int | None = None) -> Dataset:
        """The samples of the newest generation, as a sequence.

        timeout : seconds for which it waits, when it is first used, for the ring's first generation; None: for ever.
        generation : number of the one to begin with, where it is still there; else, and by default, the newest.
        """
        return Dataset(self._config, timeout, generation)

    def validation(self, timeout: float | None = None) -> Validation:
        """The samples that the ring holds out: its first n, where it was made with `VALIDATION: n`, as a sequence.

        They are never served by `dataset` and `stream`, stay when their generations are old, and are always the same.

        timeout : seconds for which it waits, when it is first used, until all n are there; None: for ever.
        """
        return Validation(self._config, timeout)

    def stream(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        equal: str | None = None,
        pad_value: float = -100,
        epochs: int | None = None,
        prefetch_bytes: int | None = None,
        run: str | None = None,
        replay: str | None = None,
        repeat: bool = True,
        timeout: float | None = None,
        threads: int | None = None,
    ) -> Stream:
        """An iterator over samples: this rank's share of a generation, then of the one that is newest then.

        Parameters
        ----------
        rank, world_size : rank r of n gets the samples r, r + n, r + 2 n, ... of each epoch's order. Where not given:
            by RANK and WORLD_SIZE in the environment, or what srun and mpirun set there; else 0 of 1. Where a rank has
            several reading processes (workers of a data loader), count them: rank * workers + worker of n * workers.
        shuffle, seed : whether each epoch has an order of its own, the same for all ranks, that follows from seed,
            generation and epoch; else the samples come as they lie there.
        equal : what makes all ranks have the same number of steps in each epoch. None: nothing, and some have one step
            more than others. "drop": what is left over is not read. "wrap": the first samples of the order come again.
            "pad": the missing steps give a padding sample: `is_padding` is set, and every element is `pad_value`.
        pad_value : the value of the elements of a padding sample, clamped to the range of their type; bytes are zeros.
        epochs : after so many epochs it ends; None: never.
        prefetch_bytes : bytes of samples that are read ahead at most (one sample at least); None: PREFETCH_BYTES; 0:
            nothing is read ahead.
        run : name of the run. Its ranks follow the same sequence of generations, and a generation is kept until all of
            them are through. None: the job's, by TORCHELASTIC_RUN_ID or SLURM_JOB_ID; without these, this stream is on
            its own. Give each training a name of its own: what begins under a name that was used follows its log.
        replay : name of a run. Reads what that one has read, in its order, as far as it is there, and ends.
        repeat : whether a generation is read again while there is no newer one; else it waits for a newer one.
        timeout : seconds for which it waits for the ring's first generation, and for a newer one; None: for ever.
        threads : threads that read ahead; None: up to 4. What comes does not depend on it.

        Raises ValueError for a rank that is not one of 0 to world_size - 1, or a value that makes no sense.
        """
        rank, world_size = _placed(rank, world_size)
        if run is None and replay is None:
            run = run_name(world_size)
            if run is None and world_size > 1:
                _tell_alone(rank, world_size)
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
        )

    def _stream(
        self, worker: int, workers: int, *, goes_on: tuple[int, str] | None = None, own: bool = False, **options: Any
    ) -> Stream:
        """The stream of one worker of all, whose run the caller names. `own`: each sample gets memory of its own."""
        if not 0 <= worker < workers:
            raise ValueError(f"rank {worker} is not one of the {workers} ranks of the world, which count from 0")
        for name in ("epochs", "prefetch_bytes", "threads"):
            options[name] = optional_integer(name, options[name], 0)
        if options["equal"] not in _EQUAL:
            raise ValueError(f"equal: expected one of {', '.join(map(repr, _EQUAL))}, found {options['equal']!r}")
        if options["run"] is not None and options["replay"] is not None:
            raise ValueError("run and replay are both given: a replay takes part in no run")
        options["seed"] = integer("seed", options["seed"]) % (1 << 64)
        options["threads"] = _THREADS if options["threads"] is None else options["threads"]
        options["pad_value"] = real("pad_value", options["pad_value"])
        options["timeout"] = seconds("timeout", options["timeout"])
        return Stream(self._config, worker, workers, goes_on=goes_on, own=own, **options)

    def status(self) -> dict[str, Any]:
        """What the ring looks like now: generations, fill, rates, and who takes part. Changes nothing.

        Among others: newest (generation), swaps, swap_ms_mean, samples_delivered, samples_waiting, samples_generated,
        samples_per_second, bytes, generations, writing, manager, managers, generators, readers, quarantined, index
        (where that is), index_away (why it does not answer; then nothing is known of who takes part; else None), reuse
        (how many of the last generations were read how often), failures (what ended generators and managers, newest
        first), validation (so many samples are held out), validation_readable and validation_damaged (how many of these
        can be read, and how many readers found damaged).

        Raises RingNotFoundError when there is no ring yet.
        """
        status: dict[str, Any] = json.loads(_ringreel.status(self._config))
        return status

    def _tell_notes(self) -> None:
        for note in self._config.notes:
            logger.info("note: %s", note)


_EQUAL = (None, "drop", "wrap", "pad")


def _tell_alone(rank: int, world_size: int) -> None:
    logger.warning(
        "this is rank %d of %d, and nothing says which ranks read together: they may read different generations. Give "
        "all of them the same run=",
        rank,
        world_size,
    )


def _placed(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world, as given, or as the environment says."""
    if rank is None and world_size is None:
        return rank_and_world()
    if rank is None or world_size is None:
        raise ValueError("rank and world_size are given together, or not at all")
    return integer("rank", rank), integer("world_size", world_size)


def _parsed(config: Config) -> _ringreel.Config:
    if isinstance(config, Mapping):
        try:
            text = json.dumps(dict(config), allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the configuration given as a dict: {error}") from error
        return _ringreel.Config(text, "the configuration given as a dict", os.getcwd(), False)
    if isinstance(config, (str, os.PathLike)):
        return _ringreel.Config.load(os.fspath(config))
    raise ConfigError(f"a configuration is a path or a dict, found {type(config).__name__}")


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is {type(value).__name__}, which no configuration holds")
