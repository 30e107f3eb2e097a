"""Wirehead's logger on a ring: ``wirehead.log``. Swaps and snapshots have the names of Wirehead 0.9.3."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from ringreel import _ringreel
from ringreel._errors import ConfigError, RingNotFoundError, RingreelError
from ringreel._log import logger, on_stderr
from ringreel._ring import Config, Ring

__all__ = ["SwapLog", "WireheadLogger", "WireheadSnapshot"]

#: Number of swaps that are remembered. A ring keeps at least as many manifests.
_SWAPS = 1024


class _Fields:
    """Fields that are read as attributes or as a mapping: ``dict(log)``, ``log["swap_count"]``."""

    def keys(self) -> list[str]:
        """Returns the names of the fields.

        Example:
            >>> from ringreel.wirehead import SwapLog
            >>> dict(SwapLog(swap_timestamp=0.0, swap_count=3))["swap_count"]
            3
        """
        return [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def to_jsonl(self) -> str:
        """Returns all fields as one line of JSON.

        Example:
            >>> from ringreel.wirehead import SwapLog
            >>> SwapLog(swap_timestamp=0.0, swap_count=3, db_name="demo").to_jsonl()
            '{"swap_timestamp": 0.0, ..., "swap_count": 3, "db_name": "demo"}'
        """
        return json.dumps(dataclasses.asdict(self))  # type: ignore[call-overload]

    def __str__(self) -> str:
        return self.to_jsonl()


@dataclasses.dataclass
class SwapLog(_Fields):
    """One swap: the promotion of a generation.

    Attributes:
        swap_timestamp (float): Time of the swap, in seconds since 1970.
        prev_swap_timestamp (float | None): Time of the previous swap.
        swap_duration (float | None): Seconds for which the previous generation was the newest one. None
            for the first swap, if the previous manifest is gone, and if the clocks of two machines
            contradict the order of swaps.
        swap_count (int): Number of swaps up to this one, which is the generation's number.
        db_name (str): Name of the ring.

    Example:
        >>> from ringreel.wirehead import WireheadLogger
        >>> swap = WireheadLogger("config.yaml").history()[-1]
        >>> swap.swap_count, swap.db_name, swap.swap_duration
        (1, 'demo', None)
    """

    swap_timestamp: float
    prev_swap_timestamp: float | None = None
    swap_duration: float | None = None
    swap_count: int = 0
    db_name: str = ""


@dataclasses.dataclass
class WireheadSnapshot(_Fields):
    """The state of a ring at one moment. Sizes are in MiB.

    Rates are averages since the previous snapshot, and in the first one over the known swaps.

    Attributes:
        samples_started (int): Sum of ``samples_completed`` and ``in_flight``.
        samples_completed (int): Samples in the generation that fills.
        in_flight (int): Finished samples that are not in a generation yet.
        swap_cap (int): Samples in a generation.
        fill_pct (float): How full the generation that fills is, in percent.
        is_swapping (bool): Whether a generation is being promoted.
        swap_lock_duration (None): Always None, because no lock is held during a swap.
        swap_count (int): Number of swaps.
        swap_timestamp (float | None): Time of the last swap, in seconds since 1970.
        swap_duration (float | None): Seconds for which the generation before was the newest one.
        time_since_last_swap (float | None): Seconds since the last swap.
        avg_swap_duration (float | None): Mean of ``swap_duration`` over the known swaps, in seconds.
        samples_per_s (float): Samples finished per second.
        swaps_per_s (float): Swaps per second.
        write_mb_per_s (float): MiB added to generations per second.
        write_docs (int): Samples in the generation that fills.
        write_size_mb (float): Size of the generation that fills.
        read_docs (int): Samples in the newest generation.
        read_size_mb (float): Size of the newest generation.
        mongo_active_ops (int): Always 0, because no sample passes through a server.
        db_name (str): Name of the ring.
        poll_interval (float): Seconds between two snapshots.
        timestamp (float): Time of the snapshot, in seconds since 1970.
        recent_swaps (list[SwapLog]): The last ten swaps.

    Example:
        >>> from ringreel.wirehead import WireheadLogger
        >>> snapshot = WireheadLogger("config.yaml").snapshot()
        >>> snapshot.swap_cap, snapshot["swap_count"], snapshot.read_docs
        (4, 1, 4)
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
    """A writer of a ring's swaps, or of snapshots of its state, as lines of JSON.

    It only reads the ring.

    Args:
        config_path (str | os.PathLike | Mapping): Path of the configuration, or a dict.
        poll_interval (float): Seconds between two checks of ``run`` and ``run_daemon``. Default 2.

    Raises:
        ConfigError: The configuration cannot be used, or ``poll_interval`` is out of range.

    Example:
        >>> from ringreel.wirehead import WireheadLogger
        >>> logger = WireheadLogger("config.yaml", poll_interval=0.5)
        >>> [swap.swap_count for swap in logger.history()]
        [1]
    """

    def __init__(self, config_path: Config, poll_interval: float = 2.0) -> None:
        self.poll_interval = _interval(poll_interval)
        self._config_path = config_path
        self._config = Ring(config_path)._config
        self._watcher, self._process = _ringreel.Watcher(self._config, _SWAPS), os.getpid()
        self._stopped = threading.Event()

    def snapshot(self) -> WireheadSnapshot:
        """Returns the state of the ring.

        Returns:
            WireheadSnapshot: The state.

        Raises:
            RingNotFoundError: The ring does not exist.
            OSError: The filesystem reports an error.

        Example:
            >>> from ringreel.wirehead import WireheadLogger
            >>> WireheadLogger("config.yaml").snapshot().db_name
            'demo'
        """
        return self._look(self.poll_interval)[0]

    def history(self) -> list[SwapLog]:
        """Returns all swaps whose manifests are kept, oldest first: at most the last 1,024.

        Returns:
            list[SwapLog]: The swaps; empty if the ring does not exist.

        Example:
            >>> from ringreel.wirehead import WireheadLogger
            >>> len(WireheadLogger("config.yaml").history())
            1
        """
        try:
            return self._look(self.poll_interval)[1]
        except RingNotFoundError:
            return []

    def run(self, interval: float | None = None, out: TextIO | str | os.PathLike[str] | None = None) -> None:
        """Writes a line for each known swap, and for each one that follows, until ``stop`` is called.

        Args:
            interval (float | None): Seconds between two checks. None (the default) is ``poll_interval``.
            out (TextIO | str | os.PathLike | None): An open file, or the path of a file to which lines are
                appended. None (the default) is stdout.

        Example:
            >>> import json, pathlib, threading
            >>> from ringreel.wirehead import WireheadLogger
            >>> logger = WireheadLogger("config.yaml", poll_interval=0.1)
            >>> threading.Timer(0.5, logger.stop).start()
            >>> logger.run(out="swaps.jsonl")
            >>> json.loads(pathlib.Path("swaps.jsonl").read_text())["swap_count"]
            1
        """
        told = 0

        def lines(_: WireheadSnapshot, swaps: list[SwapLog]) -> list[str]:
            nonlocal told
            if swaps and swaps[-1].swap_count < told:
                told = 0  # the ring was replaced by another one
            new = [swap for swap in swaps if swap.swap_count > told]
            told = new[-1].swap_count if new else told
            return [swap.to_jsonl() for swap in new]

        self._write(interval, out, lines)

    def run_daemon(self, interval: float | None = None, out: TextIO | str | os.PathLike[str] | None = None) -> None:
        """Writes a snapshot as a line at each check, until ``stop`` is called.

        Args:
            interval (float | None): Seconds between two checks. None (the default) is ``poll_interval``.
            out (TextIO | str | os.PathLike | None): An open file, or the path of a file to which lines are
                appended. None (the default) is stdout.

        Example:
            >>> import json, pathlib, threading
            >>> from ringreel.wirehead import WireheadLogger
            >>> logger = WireheadLogger("config.yaml", poll_interval=0.1)
            >>> threading.Timer(0.5, logger.stop).start()
            >>> logger.run_daemon(out="snapshots.jsonl")
            >>> first = pathlib.Path("snapshots.jsonl").read_text().splitlines()[0]
            >>> json.loads(first)["swap_cap"]
            4
        """
        self._write(interval, out, lambda snapshot, _: [snapshot.to_jsonl()])

    def run_tui(self) -> None:
        """Shows a live view on the terminal, as the command ``ringreel top`` does.

        Raises:
            ConfigError: The configuration is a dict, or there is no terminal.

        Example:
            >>> from ringreel.wirehead import WireheadLogger
            >>> WireheadLogger("config.yaml").run_tui()             # doctest: +SKIP
        """
        if isinstance(self._config_path, Mapping):
            raise ConfigError("run_tui needs a configuration in a file, not a dict")
        path, interval = os.fspath(self._config_path), str(self.poll_interval)
        if _ringreel.run_command(["ringreel", "top", "--config", path, "--interval", interval]) != 0:
            raise ConfigError("the live view could not be shown: it needs a terminal")

    def stop(self) -> None:
        """Ends ``run`` or ``run_daemon``, which can be called again afterwards. Any thread may call it.

        Example:
            >>> import io, threading
            >>> from ringreel.wirehead import WireheadLogger
            >>> logger = WireheadLogger("config.yaml", poll_interval=0.1)
            >>> thread = threading.Thread(target=logger.run, kwargs={"out": io.StringIO()})
            >>> thread.start()
            >>> logger.stop()
            >>> thread.join()
        """
        self._stopped.set()

    def _write(
        self,
        interval: float | None,
        out: TextIO | str | os.PathLike[str] | None,
        lines: Callable[[WireheadSnapshot, list[SwapLog]], list[str]],
    ) -> None:
        """Writes lines until ``stop`` is called. Waits for a ring that is missing or unreachable."""
        seconds = self.poll_interval if interval is None else _interval(interval)
        with on_stderr(), _opened(out) as file:
            away = ""
            while not self._stopped.is_set():
                try:
                    seen = self._look(seconds)
                except (RingreelError, OSError) as error:
                    if str(error) != away:
                        logger.warning("%s: retrying every %g s", error, seconds)
                    away = str(error)
                else:
                    away = ""
                    for line in lines(*seen):
                        file.write(line + "\n")
                    file.flush()
                self._stopped.wait(seconds)
        self._stopped.clear()

    def _look(self, interval: float) -> tuple[WireheadSnapshot, list[SwapLog]]:
        if self._process != os.getpid():  # a forked child needs its own watcher
            self._watcher, self._process = _ringreel.Watcher(self._config, _SWAPS), os.getpid()
        seen, swaps = (json.loads(text) for text in self._watcher.look(interval))
        fields = {field.name: seen[field.name] for field in dataclasses.fields(WireheadSnapshot)}
        fields["recent_swaps"] = [SwapLog(**swap) for swap in fields["recent_swaps"]]
        return WireheadSnapshot(**fields), [SwapLog(**swap) for swap in swaps]


def _interval(seconds: float) -> float:
    if not 0 < seconds < 1e6:
        raise ConfigError(f"poll interval: expected more than 0 and less than 1e6 seconds, found {seconds!r}")
    return float(seconds)


@contextlib.contextmanager
def _opened(out: TextIO | str | os.PathLike[str] | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
    elif isinstance(out, (str, os.PathLike)):
        with open(out, "a", encoding="utf-8") as file:
            yield file
    else:
        yield out


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs Wirehead's command ``wirehead``, which is ``python -m ringreel.wirehead`` here.

    Args:
        arguments (Sequence[str] | None): The arguments. None (the default) takes them from ``sys.argv``.

    Returns:
        int: The exit status: 0, 1 after an error, 130 after Ctrl-C.

    Example:
        >>> from ringreel.wirehead.log import main
        >>> main(["config.yaml"])
        {"swap_timestamp": ..., "swap_count": 1, "db_name": "demo"}
        0
    """
    parser = argparse.ArgumentParser(
        prog="python -m ringreel.wirehead",
        description="Print the swaps of a ring as lines of JSON, as the command wirehead does.",
        epilog="The commands ringreel status, ringreel metrics and ringreel top show more.",
    )
    parser.add_argument("config", help="path of the configuration")
    parser.add_argument("--daemon", action="store_true", help="print a snapshot of the ring at each poll, until Ctrl-C")
    parser.add_argument("--tui", action="store_true", help="show a live view, as ringreel top does")
    parser.add_argument(
        "--poll-interval", type=float, default=2.0, metavar="SECONDS", help="seconds between two polls (default: 2.0)"
    )
    given = parser.parse_args(arguments)
    try:
        _print(WireheadLogger(given.config, given.poll_interval), given.tui, given.daemon)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RingreelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _print(log: WireheadLogger, tui: bool, daemon: bool) -> None:
    if tui:
        log.run_tui()
    elif daemon:
        log.run_daemon()
    else:
        print("\n".join(map(str, log.history())) or "No swaps recorded yet.")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
