"""Wirehead's logger on a ring: swaps and snapshots, under the names that Wirehead 0.9.3 gives them."""

import contextlib
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from ringreel import _ringreel
from ringreel._errors import ConfigError, RingNotFoundError, RingreelError
from ringreel._log import logger, on_stderr
from ringreel._ring import Config, Ring

#: Swaps that are remembered: as many as a ring keeps manifests of at least.
_SWAPS = 1024


class _Fields:
    """Fields that are read as attributes, or as a mapping: `dict(log)`, `log["swap_count"]`."""

    def keys(self) -> list[str]:
        """The names of the fields."""
        return [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def to_jsonl(self) -> str:
        """All of it on one line of JSON."""
        return json.dumps(dataclasses.asdict(self))  # type: ignore[call-overload]

    def __str__(self) -> str:
        return self.to_jsonl()


@dataclasses.dataclass
class SwapLog(_Fields):
    """One swap: a generation became readable. Times are seconds since 1970.

    swap_duration is for how many seconds the generation before it was the newest one; None for the first swap, where
    that one's manifest is gone, and where the clocks of two machines contradict the order of swaps.
    """

    swap_timestamp: float
    prev_swap_timestamp: float | None = None
    swap_duration: float | None = None
    swap_count: int = 0
    db_name: str = ""


@dataclasses.dataclass
class WireheadSnapshot(_Fields):
    """A ring at one moment. Sizes are in MiB, times in seconds (since 1970).

    samples_completed are in the generation that fills, in_flight are finished and not in it yet, samples_started are
    both. The rates are those since the snapshot before, and at the first one those over the swaps that are remembered.
    swap_lock_duration is always None and mongo_active_ops 0: there is no lock, and no sample passes through a server.
    """

    samples_started: int = 0
    samples_completed: int = 0
    in_flight: int = 0
    swap_cap: int = 0
    fill_pct: float = 0.0
    is_swapping: bool = False
    swap_lock_duration: float | None = None
    swap_count: int = 0
    swap_timestamp: float | None = None
    swap_duration: float | None = None
    time_since_last_swap: float | None = None
    avg_swap_duration: float | None = None
    samples_per_s: float = 0.0
    swaps_per_s: float = 0.0
    write_mb_per_s: float = 0.0
    write_docs: int = 0
    write_size_mb: float = 0.0
    read_docs: int = 0
    read_size_mb: float = 0.0
    mongo_active_ops: int = 0
    db_name: str = ""
    poll_interval: float = 2.0
    timestamp: float = 0.0
    recent_swaps: list[SwapLog] = dataclasses.field(default_factory=list)


class WireheadLogger:
    """Tells a ring's swaps, and how it is doing, as lines of JSON. It takes no part in the ring and changes nothing.

    Parameters
    ----------
    config_path : path of the configuration, or a dict.
    poll_interval : seconds between two looks of `run` and `run_daemon`.

    Raises
    ------
    ConfigError : the configuration cannot be used.
    """

    def __init__(self, config_path: Config, poll_interval: float = 2.0) -> None:
        self.poll_interval = _interval(poll_interval)
        self._config_path = config_path
        self._config = Ring(config_path)._config
        self._watcher, self._process = _ringreel.Watcher(self._config, _SWAPS), os.getpid()
        self._stopped = threading.Event()

    def snapshot(self) -> WireheadSnapshot:
        """The ring as it is now. Raises RingNotFoundError if there is none, OSError for errors of the filesystem."""
        return self._look(self.poll_interval)[0]

    def history(self) -> list[SwapLog]:
        """All swaps whose manifests are kept (the last 1,024 at most), the oldest first; none of a ring not there."""
        try:
            return self._look(self.poll_interval)[1]
        except RingNotFoundError:
            return []

    def run(self, interval: float | None = None, out: "TextIO | str | os.PathLike[str] | None" = None) -> None:
        """Writes a line for each swap that is known, and for each one that follows, until `stop` is called.

        interval : seconds between two looks; None: poll_interval.
        out : an open file, or the path of one, to which the lines are appended; None: stdout.
        """
        told = 0

        def lines(_: WireheadSnapshot, swaps: list[SwapLog]) -> list[str]:
            nonlocal told
            if swaps and swaps[-1].swap_count < told:
                told = 0  # another ring is in its place
            new = [swap for swap in swaps if swap.swap_count > told]
            told = new[-1].swap_count if new else told
            return [swap.to_jsonl() for swap in new]

        self._write(interval, out, lines)

    def run_daemon(self, interval: float | None = None, out: "TextIO | str | os.PathLike[str] | None" = None) -> None:
        """Writes a snapshot a line, again and again, as `run` writes swaps."""
        self._write(interval, out, lambda snapshot, _: [snapshot.to_jsonl()])

    def run_tui(self) -> None:
        """A live view on the terminal: the command `ringreel top`. Raises ConfigError where it cannot be shown."""
        if isinstance(self._config_path, Mapping):
            raise ConfigError("the view on the terminal needs a configuration in a file, not a dict")
        path, interval = os.fspath(self._config_path), str(self.poll_interval)
        if _ringreel.run_command(["ringreel", "top", "--config", path, "--interval", interval]) != 0:
            raise ConfigError("the view on the terminal could not be shown: is there a terminal?")

    def stop(self) -> None:
        """Ends `run` or `run_daemon`, which may be called again then. May be called by another thread."""
        self._stopped.set()

    def _write(
        self,
        interval: float | None,
        out: "TextIO | str | os.PathLike[str] | None",
        lines: Callable[[WireheadSnapshot, list[SwapLog]], list[str]],
    ) -> None:
        """A ring that is not there yet, or away, is waited for."""
        seconds = self.poll_interval if interval is None else _interval(interval)
        with on_stderr(), _opened(out) as file:
            away = ""
            while not self._stopped.is_set():
                try:
                    seen = self._look(seconds)
                except (RingreelError, OSError) as error:
                    if str(error) != away:
                        logger.warning("%s: looking again every %g s", error, seconds)
                    away = str(error)
                else:
                    away = ""
                    for line in lines(*seen):
                        file.write(line + "\n")
                    file.flush()
                self._stopped.wait(seconds)
        self._stopped.clear()

    def _look(self, interval: float) -> tuple[WireheadSnapshot, list[SwapLog]]:
        if self._process != os.getpid():  # a forked child looks for itself
            self._watcher, self._process = _ringreel.Watcher(self._config, _SWAPS), os.getpid()
        seen, swaps = (json.loads(text) for text in self._watcher.look(interval))
        fields = {field.name: seen[field.name] for field in dataclasses.fields(WireheadSnapshot)}
        fields["recent_swaps"] = [SwapLog(**swap) for swap in fields["recent_swaps"]]
        return WireheadSnapshot(**fields), [SwapLog(**swap) for swap in swaps]


def _interval(seconds: float) -> float:
    if not 0 < seconds < 1e6:
        raise ConfigError(f"the time between two looks: expected seconds, more than 0, found {seconds!r}")
    return float(seconds)


@contextlib.contextmanager
def _opened(out: "TextIO | str | os.PathLike[str] | None") -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
    elif isinstance(out, (str, os.PathLike)):
        with open(out, "a", encoding="utf-8") as file:
            yield file
    else:
        yield out
