"""A ring, by its configuration."""

import json
import os
from collections.abc import Mapping
from typing import Any

from ringreel import _ringreel
from ringreel._dataset import Dataset
from ringreel._errors import ConfigError
from ringreel._generator import Generator
from ringreel._log import logger
from ringreel._stream import Stream

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

        Raises ConfigError or WrongRingError when the ring cannot be made or does not fit, IndexAwayError or
        IndexRefusedError when the index is on a server that is not there or will not serve us, OSError for what the
        filesystem says.
        """
        return Generator(self._config)

    def dataset(self, timeout: float | None = None) -> Dataset:
        """The samples of the newest generation, as a sequence.

        timeout : seconds for which it waits, when it is first used, for the ring's first generation; None: for ever.
        """
        return Dataset(self._config, timeout)

    def stream(
        self,
        rank: int = 0,
        world_size: int = 1,
        epochs: int | None = None,
        repeat: bool = True,
        timeout: float | None = None,
    ) -> Stream:
        """An iterator over samples: this rank's share of the newest generation, then of the one that is newest then.

        Parameters
        ----------
        rank, world_size : rank r of n gets the positions r, r + n, r + 2 n, ... of each generation. Where a rank has
            several reading processes (workers of a data loader), count them: rank * workers + worker of n * workers.
        epochs : passes after which it ends; None: never.
        repeat : whether a generation is read again while there is no newer one; else it waits for a newer one.
        timeout : seconds for which it waits for the ring's first generation, and for a newer one; None: for ever.

        Raises ValueError for a rank that is not one of 0 to world_size - 1, or a number that makes no sense.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not one of the {world_size} ranks of the world, which count from 0")
        if epochs is not None and epochs < 0:
            raise ValueError(f"epochs: expected 0 or more, or None, found {epochs}")
        return Stream(self._config, rank, world_size, epochs, repeat, timeout)

    def status(self) -> dict[str, Any]:
        """What the ring looks like now: generations, fill, rates, and who takes part. Changes nothing.

        Among others: newest (generation), swaps, swap_ms_mean, samples_delivered, samples_waiting, samples_generated,
        samples_per_second, bytes, generations, writing, manager, managers, generators, readers, quarantined, index
        (where that is), index_away (why it does not answer; then nothing is known of who takes part; else None).

        Raises NoRingError when there is no ring yet.
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
    raise ConfigError(f"a configuration is a path or a dict, found {type(config).__name__}")


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is {type(value).__name__}, which no configuration holds")
