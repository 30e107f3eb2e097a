"""The extension module: what the package is made of. Not for use by itself."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from typing_extensions import Buffer

from ringreel._errors import DamagedSampleError

__version__: Final[str]

#: Parts by name, meta, id, generation, position.
_Handed = tuple[dict[str, Part], dict[str, Any], str, int, int]
#: Name, element type, bytes of one element, shape, and the bytes.
_Given = tuple[str, str, int, Sequence[int], Buffer]

@final
class Config:
    """A configuration that was read and checked. Opens nothing."""

    def __new__(cls, text: str, origin: str, base: str | os.PathLike[str], has_lines: bool) -> Config: ...
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Config: ...
    @property
    def ring(self) -> str: ...
    @property
    def sample(self) -> list[str] | None: ...
    @property
    def notes(self) -> list[str]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Generator:
    """A generator in a ring."""

    @staticmethod
    def open(config: Config) -> Generator: ...
    @property
    def names(self) -> list[str]: ...
    def write(
        self, parts: Sequence[_Given], meta: dict[str, Any], stop: Callable[[], bool] | None = None
    ) -> list[str]: ...
    def flush(self, stop: Callable[[], bool] | None = None) -> list[str]: ...
    def finish(self, seal: bool, stop: Callable[[], bool] | None = None) -> dict[str, Any]: ...
    def summary(self) -> dict[str, Any]: ...
    def failed(self, message: str) -> None: ...

@final
class Generation:
    """A generation that was listed by its manifest."""

    @property
    def number(self) -> int: ...
    def __len__(self) -> int: ...

@final
class Part:
    """One part of a sample: its bytes, read-only for Python, and what they mean."""

    def __new__(cls, dtype: str, shape: Sequence[int], data: Buffer) -> Part: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def writable(self) -> WritablePart: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]: ...  # type: ignore[override]

@final
class WritablePart:
    """The memory of a `Part`, for writing."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Reader:
    """A ring that is open for reading."""

    @staticmethod
    def open(config: Config, timeout: float | None = None, tell: Callable[[str], object] | None = None) -> Reader: ...
    def newest(self) -> Generation: ...
    def generation(self, number: int) -> Generation | None: ...
    def sample(self, generation: Generation, position: int) -> _Handed: ...

@final
class Stream:
    """A stream of samples."""

    @staticmethod
    def open(
        config: Config,
        rank: int,
        world_size: int,
        epochs: int | None = None,
        repeat: bool = True,
        timeout: float | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> Stream: ...
    def next(self, tell: Callable[[str], object] | None = None) -> _Handed | DamagedSampleError | None: ...
    @property
    def epochs(self) -> int: ...

def run_command(args: Sequence[str]) -> int: ...
def run_manager(config: Config, stop: Callable[[], bool]) -> None: ...
def status(config: Config) -> str: ...
