"""Wirehead's generator on a ring: ``wirehead.generator``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ringreel import _run
from ringreel._generator import Summary
from ringreel._log import logger
from ringreel._ring import Config, Ring
from ringreel.wirehead._hints import hint_at_files

__all__ = ["WireheadGenerator"]


class WireheadGenerator:
    """A generator of a ring, which writes the samples that an iterable yields.

    Args:
        generator (Iterable): The samples: tuples of arrays in the order of ``SAMPLE``, or what
            ``ringreel.Generator.write`` accepts.
        config_path (str | os.PathLike | Mapping): Path of the configuration, or a dict. Default
            ``"config.yaml"``.
        n_samples (int | None): Number of samples at most. None (the default) writes all.

    Attributes:
        ring (Ring): The ring.
        generator (Iterable): The samples.
        n_samples (int | None): Number of samples at most.

    Raises:
        ConfigError: The configuration cannot be used.

    Example:
        >>> from ringreel.wirehead import WireheadGenerator
        >>> def samples():
        ...     while True:
        ...         yield np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint8)
        >>> WireheadGenerator(samples(), "config.yaml", n_samples=3).run_generator().finished
        3
    """

    def __init__(
        self, generator: Iterable[Any], config_path: Config = "config.yaml", n_samples: int | None = None
    ) -> None:
        self.ring = Ring(config_path)
        self.generator = generator
        self.n_samples = n_samples

    def run_generator(self) -> Summary:
        """Runs until the generator ends, or until SIGINT or SIGTERM. See ``ringreel.run_generator``.

        Returns:
            Summary: The counts of the generator.

        Raises:
            CoordinationUnavailableError: The server that keeps the index does not answer.
            CoordinationDeniedError: The server that keeps the index refuses this user.

        Example:
            >>> from ringreel.wirehead import WireheadGenerator
            >>> summary = WireheadGenerator([(np.zeros(3), 0)] * 2, "config.yaml").run_generator()
            >>> summary.finished
            2
        """
        return self._run(self.generator)

    def run(self, verbose: bool = False) -> Summary:
        """Runs as ``run_generator`` does.

        Args:
            verbose (bool): Whether to log a line per sample. Default False.

        Returns:
            Summary: The counts of the generator.

        Example:
            >>> from ringreel.wirehead import WireheadGenerator
            >>> WireheadGenerator([(np.zeros(3), 0)] * 2, "config.yaml").run(verbose=True).finished
            2
        """
        return self._run(self._told() if verbose else self.generator)

    def _run(self, samples: Iterable[Any]) -> Summary:
        with hint_at_files():
            return _run.run_generator(samples, self.ring, self.n_samples)

    def _told(self) -> Iterable[Any]:
        for number, sample in enumerate(self.generator):
            logger.info("sample %d", number)
            yield sample
