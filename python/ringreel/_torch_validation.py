"""Held-out samples as a map-style dataset."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from ringreel._dataset import Dataset
from ringreel._hold_out import HoldOut, checked_rule
from ringreel._ring import Config, Ring
from ringreel._torch_bases import MapStyle
from ringreel._torch_transforms import Conversion
from ringreel._validation import Validation
from ringreel._wording import counted


class ValidationDataset(MapStyle):
    """The held-out samples of a ring, by index: a map-style ``torch.utils.data.Dataset``.

    Without ``hold_out`` they are the first ``n`` samples of a ring that was created with ``VALIDATION: n``,
    and never change. With ``hold_out`` they are the samples of one generation that the rule holds out: the
    newest generation when the dataset is made, or the given one. ``RingStream`` and ``RingDataset`` with the
    same rule never return them.

    A sample is what ``RingDataset`` returns. The order is always the same, and so is ``len``. The dataset
    can be pickled, and used in forked and spawned workers.

    A generation with held-out samples of a rule is reclaimed like any other. Reading then raises
    ``ReclaimedError``: make a new dataset before each validation. Ranks that validate together, each with a
    ``DistributedSampler``, have to agree on a generation: send the ``generation`` of one of them to the
    others.

    Args:
        config (str | os.PathLike | Mapping | Ring): Path of a YAML file, a dict of the same keys, or a
            ``ringreel.Ring``.
        hold_out (HoldOut | None): The rule. None (the default): the ring's ``VALIDATION``.
        generation (int | None): Number of the generation, with ``hold_out``. None (the default): the newest.
        parts (Sequence[str] | None): Names of the parts to return, in this order. None (the default)
            returns all, in the order of ``SAMPLE``.
        as_tuple (bool): Whether a sample is a tuple of its parts instead of a dict. Default False.
        transform (Callable | None): As for ``RingDataset``. The epoch is 0, so each sample always gets the same
            ``rng``. Default None.
        timeout (float | None): Seconds to wait until the samples are readable. None (the default) waits
            without limit.
        seed (int): Seed of ``rng``. Default 0.
        info (bool): Whether a sample has three more items, as for ``RingDataset``. Default False.
        nested (bool): As for ``RingDataset``. Default False.

    Raises:
        ConfigError: The configuration cannot be used.
        ReclaimedError: Generation ``generation`` does not exist.
        RingMismatchError: The ring was created without ``VALIDATION``, and ``hold_out`` is None.
        RingTimeoutError: The samples were not readable within ``timeout`` seconds.
        ValueError: As for ``RingDataset``; ``generation`` is given without ``hold_out``.
        TypeError: An argument has the wrong type.

    Example:
        >>> import ringreel.torch
        >>> odd = ringreel.HoldOut(choose=lambda sample: sample["label"] % 2 == 1)
        >>> validation = ringreel.torch.ValidationDataset("config.yaml", odd)
        >>> len(validation), validation[0]["label"], validation[1]["data"].shape
        (2, tensor(1), torch.Size([2, 3]))
    """

    def __init__(
        self,
        config: Config | Ring,
        hold_out: HoldOut | None = None,
        generation: int | None = None,
        parts: Sequence[str] | None = None,
        as_tuple: bool = False,
        transform: Callable[..., Any] | None = None,
        timeout: float | None = None,
        seed: int = 0,
        info: bool = False,
        nested: bool = False,
    ) -> None:
        ring = Ring._of(config)
        self._given = Conversion(ring.sample, parts, as_tuple, transform, seed, info, nested)
        self._path = ring.path
        self._samples: Dataset | Validation
        if checked_rule(hold_out) is None:
            if generation is not None:
                raise ValueError("generation: expected None without hold_out, because VALIDATION names the samples")
            self._samples = ring.validation(timeout)
        else:
            self._samples = Dataset(
                ring._config, timeout, generation, own=True, hold_out=hold_out, held_out=True, follows=False
            )
        self._length = len(self._samples)

    def __repr__(self) -> str:
        return f"<ringreel.torch.ValidationDataset {self._path} ({counted(self._length, 'sample')})>"

    @property
    def generation(self) -> int | None:
        """Number of the generation that a rule divides; None for the samples of ``VALIDATION``.

        Example:
            >>> import ringreel.torch
            >>> ringreel.torch.ValidationDataset("config.yaml", ringreel.HoldOut(0.5)).generation
            1
        """
        return self._samples.generation if isinstance(self._samples, Dataset) else None

    def __len__(self) -> int:
        """Returns the number of held-out samples. It never changes."""
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Returns a sample as a dict or a tuple of tensors, or the result of ``transform``.

        Args:
            index (int): Position of the sample; negative positions count from the end.

        Raises:
            IndexError: There is no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The generation was reclaimed.
            TypeError: torch does not have a part's element type. Name the other ``parts`` to leave that one
                out.
            KeyError: The sample has no part of a name in ``parts``.
        """
        return self._given(self._samples[operator.index(index)])
