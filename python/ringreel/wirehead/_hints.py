"""What Wirehead's classes add to errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ringreel._errors import CoordinationDeniedError, CoordinationUnavailableError


@contextlib.contextmanager
def hint_at_files() -> Iterator[None]:
    """Adds to an error of the index's server how to run without a server."""
    try:
        yield
    except (CoordinationUnavailableError, CoordinationDeniedError) as error:
        hint = "to run without a server, put INDEX: files into the configuration of all processes"
        raise type(error)(f"{error}; {hint}") from error
