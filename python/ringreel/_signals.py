"""SIGINT, SIGTERM and a caller's ``stop`` as a request to end in an orderly way."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from ringreel._arguments import stop_function

if TYPE_CHECKING:
    from typing_extensions import Self


class StopOnSignal:
    """A callable that returns whether a stop was requested by SIGINT, SIGTERM or ``stop``.

    While it is entered, the first SIGINT or SIGTERM requests the stop, and a second SIGINT raises
    KeyboardInterrupt at once. Handlers are installed in the main thread only, because Python allows no
    other, and are restored on exit.

    Args:
        stop (Any): An event or a callable that requests the stop as well, or None.
    """

    def __init__(self, stop: Any = None) -> None:
        self.received: signal.Signals | None = None
        self._stop = stop_function(stop)
        self._since: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        if self._since is None and self._stop():
            self._since = time.monotonic()
        return self._since is not None

    def seconds(self) -> float:
        """Returns the seconds since the stop was requested, or 0."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None means that the handler was not installed by Python, so Python cannot restore it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number)
        if self._since is None:
            self._since = time.monotonic()
