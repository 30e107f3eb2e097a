"""Functions of the user that are applied to samples, and the random numbers that they get."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ringreel._sample import Sample

#: Names of the parameters by which a function requests more than the value that it changes.
_RNG, _INFO = "rng", "info"


def random_of(seed: int, sample: Sample) -> np.random.Generator:
    """Returns the random numbers of ``sample``.

    They are a function of ``seed``, the epoch, the generation and the sample's position in the generation.
    None of these depends on the number of ranks, workers or threads, or on whether reading was resumed.
    """
    return np.random.default_rng([seed, sample.epoch or 0, sample.generation, sample.position])


class Transform:
    """A function of the user, called with a value and with what its parameters request.

    A parameter named ``rng`` gets the random numbers of the sample, one named ``info`` the sample itself.
    The first parameter gets the value, whatever its name is. The signature is inspected once.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"{name}: expected a callable, found {function!r}")
        self._function = function
        requested = _requested(function)
        self.has_rng = _RNG in requested
        self._has_info = _INFO in requested

    def __call__(self, value: Any, sample: Sample, rng: np.random.Generator | None) -> Any:
        """Returns the function's result for ``value``, which comes from ``sample``.

        Args:
            value (Any): The function's first argument.
            sample (Sample): The sample, for a parameter ``info``.
            rng (np.random.Generator | None): The random numbers, for a parameter ``rng``.
        """
        given: dict[str, Any] = {}
        if self.has_rng:
            given[_RNG] = rng
        if self._has_info:
            given[_INFO] = sample
        return self._function(value, **given)


def _requested(function: Callable[..., Any]) -> set[str]:
    """Returns which of ``rng`` and ``info`` are parameters of ``function``, other than the first one."""
    try:
        # A torch.nn.Module passes all arguments on to its method forward, which has the names.
        parameters = list(inspect.signature(getattr(function, "forward", function)).parameters.values())
    except (ValueError, TypeError):  # a function of an extension module without a signature
        return set()
    bound = function.keywords if isinstance(function, functools.partial) else {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {each.name for each in parameters[1:] if each.kind in by_name} & {_RNG, _INFO} - bound.keys()
