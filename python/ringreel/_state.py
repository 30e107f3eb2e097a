"""Saved states of loaders, mixtures and splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_state(state: Any, kind: str, made: Mapping[str, Any]) -> None:
    """Checks that ``state`` has the format ``kind`` and was saved with the same arguments.

    Args:
        state (Any): The state.
        kind (str): The expected format.
        made (Mapping): The arguments, by name, that have to match.

    Raises:
        ValueError: It does not match.
    """
    if not isinstance(state, Mapping) or state.get("format") != kind:
        found = repr(state.get("format")) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"state: expected the format {kind!r}, found {found}")
    for name, value in made.items():
        if state.get(name) != value:
            raise ValueError(
                f"the state was saved with {name}={state.get(name)!r}, but {name} is {value!r}: use the same arguments"
            )
