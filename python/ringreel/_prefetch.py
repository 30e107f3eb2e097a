"""Items of an iterable, read ahead in a thread."""

from __future__ import annotations

import atexit
import collections
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ringreel._arguments import integer
from ringreel._closing import Closing
from ringreel._errors import RingreelError

if TYPE_CHECKING:
    from typing_extensions import Self

# Seconds that the exit of the program waits for all threads together.
_PATIENCE = 5.0


class _Work:
    """What the thread and its consumer share. The thread holds no reference to the ``Prefetch``."""

    def __init__(self, source: Iterable[Any], depth: int) -> None:
        self.pid = os.getpid()
        self.source: Iterable[Any] | None = source
        self.room = depth
        self.done: collections.deque[tuple[bool, Any]] = collections.deque()
        self.paused = False  # after an error, until the next item is requested
        self.ended = False
        self.stop = False
        self.changed = threading.Condition()

    def run(self) -> None:
        try:
            iterator = iter(self.source)  # type: ignore[arg-type]
            self.source = None
            try:
                while self._wait_for_room() and self._read(iterator):
                    pass
            finally:
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            self._put(False, error)
        finally:
            self.source = None
            with self.changed:
                self.ended = True
                self.changed.notify_all()

    def _wait_for_room(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.stop or (self.room > 0 and not self.paused))
            self.room -= 1
            return not self.stop

    def _read(self, iterator: Iterator[Any]) -> bool:
        try:
            item = next(iterator)
        except StopIteration:
            return False
        except BaseException as error:
            self._put(False, error)
            return True
        self._put(True, item)
        return True

    def _put(self, good: bool, item: Any) -> None:
        with self.changed:
            self.paused = not good
            if not self.stop:
                self.done.append((good, item))
            self.changed.notify_all()

    def take(self) -> tuple[bool, Any]:
        """Returns the next item, or the error, or raises StopIteration."""
        with self.changed:
            if not self.done and self.paused:
                self.paused = False
                self.changed.notify_all()
            self.changed.wait_for(lambda: self.done or self.ended)
            if not self.done:
                raise StopIteration
            self.room += 1
            self.changed.notify_all()
            return self.done.popleft()

    def end(self) -> None:
        """Makes the thread stop after its current item. Does nothing in a forked child, which has no such thread."""
        if self.pid != os.getpid():
            return
        with self.changed:
            self.stop = True
            self.done.clear()
            self.changed.notify_all()


class Prefetch(Closing, Iterator[Any]):
    """Reads an iterable in a thread, some items ahead of its consumer.

    Items and errors arrive in the order in which the iterable produced them. After an error the thread
    pauses; the request for the next item continues the iterable, as without a thread. An iterator that
    was not read to its end stops when it is closed, or no longer referenced.

    The thread shares the interpreter lock with the program. It helps where reading and parsing wait, or
    release the lock: files, decompression, NumPy.

    It belongs to the process that made it. It is a context manager: leaving the ``with`` block closes it.

    Args:
        source (Iterable): What is read. Only the thread may use it.
        depth (int): Number of items that are read ahead at most, 1 or more. Default 2.

    Raises:
        TypeError: ``source`` is not iterable, or ``depth`` is not an integer.
        ValueError: ``depth`` is below 1.

    ``next`` raises what the iterable raises, unchanged, and ``RingreelError`` in a forked child.

    Example:
        >>> with ringreel.Prefetch((n * n for n in range(4)), depth=2) as squares:
        ...     list(squares)
        [0, 1, 4, 9]
    """

    def __init__(self, source: Iterable[Any], depth: int = 2) -> None:
        if not hasattr(type(source), "__iter__") and not hasattr(type(source), "__getitem__"):
            raise TypeError(f"source: expected an iterable, found {type(source).__name__}")
        self._work = _Work(source, integer("depth", depth, 1))
        self._thread = threading.Thread(target=self._work.run, name="ringreel-prefetch", daemon=True)
        self._finalizer = weakref.finalize(self, self._work.end)
        self._finalizer.atexit = False
        _threads[self._thread] = self._work
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._work.pid != os.getpid():
            raise RingreelError(
                f"this Prefetch was made in process {self._work.pid}, not in this one ({os.getpid()}): after a fork, "
                "make a new one in the child"
            )
        good, item = self._work.take()
        if not good:
            raise item
        return item

    def close(self) -> None:
        """Stops the thread after the item that it reads, if any, and waits for it. There are no more items.

        Example:
            >>> import itertools
            >>> numbers = ringreel.Prefetch(itertools.count())
            >>> next(numbers)
            0
            >>> numbers.close()
            >>> list(numbers)
            []
        """
        if self._work.pid == os.getpid():
            self._work.end()
            if threading.current_thread() is not self._thread:
                self._thread.join()


# The threads that may run, for the end of the program.
_threads: weakref.WeakKeyDictionary[threading.Thread, _Work] = weakref.WeakKeyDictionary()


@atexit.register
def _end_all() -> None:
    """Stops the threads before the interpreter ends, because none may use it afterwards."""
    running = [(thread, work) for thread, work in list(_threads.items()) if thread.is_alive()]
    for _, work in running:
        work.end()
    deadline = time.monotonic() + _PATIENCE
    for thread, _ in running:
        thread.join(max(deadline - time.monotonic(), 0))
