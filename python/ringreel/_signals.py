"""SIGINT and SIGTERM as a wish to end well."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self


class StopOnSignal:
    """While it is entered, the first SIGINT or SIGTERM makes it true (when called); a further SIGINT raises
    KeyboardInterrupt at once.

    Handlers are installed in the main thread only, the only one that Python lets do so, and put back afterwards.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._received_at = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.received is not None

    def seconds(self) -> float:
        """For how long it has been true."""
        return time.monotonic() - self._received_at if self.received is not None else 0.0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None: it was installed by other means than Python's, and cannot be put back by Python's.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is None:
            self._received_at = time.monotonic()
            self.received = signal.Signals(number)
