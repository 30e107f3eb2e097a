"""Rules that hold samples out of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringreel._arguments import integer, real
from ringreel._errors import DamagedSampleError
from ringreel._ringreel import Generation, Reader
from ringreel._sample import Sample
from ringreel._uniform import uniform_of

#: Number of generations whose choice is remembered.
_REMEMBERED = 4


class HoldOut:
    """A rule that decides for each sample whether it is held out of training, to validate with.

    The same rule, given to ``Ring.stream`` (or ``torch.RingStream``) and to ``Ring.held_out`` (or
    ``torch.ValidationDataset``), divides the samples of each generation into a training set and a
    validation set. Every process gets the same division: it depends on the rule and on the sample only.

    Held-out samples are reclaimed with their generation, so the validation set changes with each
    generation. The samples of a ring that was created with ``VALIDATION: n`` never change: see
    ``Ring.validation``. They are not in a generation's training set, with or without a rule.

    Args:
        fraction (float | None): The share of the samples that are held out, from 0 to 1. They are chosen by a
            hash of their ids, which needs no file. The number of held-out samples of a generation is random,
            with this share as its mean.
        choose (Callable | None): Called with each ``Sample``; it is held out if the result is true. The result
            must depend on the sample only, such as on its ``meta`` or a part. Each process reads all
            samples of a generation for this, when it first reads the generation. A damaged sample is not
            held out. Give either ``fraction`` or ``choose``.
        seed (int): Another seed gives another choice by ``fraction``. Default 0.

    Raises:
        ValueError: Both or none of ``fraction`` and ``choose`` are given, or ``fraction`` is not in 0 to 1.
        TypeError: ``fraction`` is not a number, ``choose`` is not callable, or ``seed`` is not an integer.

    Example:
        >>> ring = ringreel.Ring("config.yaml")
        >>> odd = ringreel.HoldOut(choose=lambda sample: sample["label"] % 2 == 1)
        >>> [int(sample["label"]) for sample in ring.stream(epochs=1, hold_out=odd)]
        [0, 2]
        >>> [int(sample["label"]) for sample in ring.held_out(odd)]
        [1, 3]
        >>> tenth = ringreel.HoldOut(fraction=0.1)
        >>> len(ring.held_out(tenth)) + len(list(ring.stream(epochs=1, hold_out=tenth)))
        4
    """

    def __init__(
        self, fraction: float | None = None, choose: Callable[[Sample], Any] | None = None, seed: int = 0
    ) -> None:
        if (fraction is None) == (choose is None):
            raise ValueError("fraction and choose: expected exactly one of them")
        if choose is not None and not callable(choose):
            raise TypeError(f"choose: expected a callable, found {choose!r}")
        self._fraction = 0.0 if fraction is None else real("fraction", fraction)
        if not 0 <= self._fraction <= 1:
            raise ValueError(f"fraction: expected a number from 0 to 1, found {fraction!r}")
        self._rule = choose
        self._seed = integer("seed", seed)
        # What the rule chose of the last generations, by ring and number, because each stream asks again.
        self._known: dict[tuple[str, int], list[int]] = {}

    def __repr__(self) -> str:
        if self._rule is not None:
            return f"<ringreel.HoldOut choose={self._rule!r}>"
        return f"<ringreel.HoldOut fraction={self._fraction} seed={self._seed}>"

    def holds(self, sample: Sample) -> bool:
        """Returns whether a sample is held out.

        Args:
            sample (Sample): A sample of any ring.

        Example:
            >>> samples = ringreel.Ring("config.yaml").dataset()
            >>> [ringreel.HoldOut(choose=lambda sample: sample.meta["number"] > 2).holds(each) for each in samples]
            [False, False, False, True]
        """
        return self._holds_id(sample.sample_id) if self._rule is None else bool(self._rule(sample))

    def _holds_id(self, sample_id: str) -> bool:
        return uniform_of(f"{self._seed} {sample_id}") < self._fraction

    def _indices(self, reader: Reader, generation: Generation) -> list[int]:
        """Returns the indices of the samples of ``generation`` that are held out, in order."""
        key = reader.ring_id, generation.number
        if key not in self._known:
            chosen = self._chosen(reader, generation)
            for old in list(self._known)[: 1 - _REMEMBERED]:
                self._known.pop(old, None)
            self._known[key] = chosen
            return chosen
        return self._known[key]

    def _chosen(self, reader: Reader, generation: Generation) -> list[int]:
        if self._rule is None:
            return [index for index, sample_id in enumerate(generation.sample_ids()) if self._holds_id(sample_id)]
        indices = []
        for index in range(len(generation)):
            try:
                sample = Sample(*reader.sample(generation, index))
            except DamagedSampleError:
                continue
            if self._rule(sample):
                indices.append(index)
        return indices

    def _part(self, reader: Reader, generation: Generation, held_out: bool) -> Generation:
        """Returns ``generation`` with only its samples that are held out, or only the others."""
        indices = self._indices(reader, generation)
        if not held_out:
            left_out = set(indices)
            indices = [index for index in range(len(generation)) if index not in left_out]
        return generation.only(indices)


def checked_rule(hold_out: Any) -> HoldOut | None:
    """Returns the argument ``hold_out``.

    Raises:
        TypeError: ``hold_out`` is neither a ``HoldOut`` nor None.
    """
    if hold_out is not None and not isinstance(hold_out, HoldOut):
        raise TypeError(f"hold_out: expected a ringreel.HoldOut, or None, found {hold_out!r}")
    return hold_out
