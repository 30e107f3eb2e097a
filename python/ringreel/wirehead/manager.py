"""Wirehead's manager on a ring: ``wirehead.manager`` of the versions of Wirehead that had one."""

from __future__ import annotations

from ringreel import _run
from ringreel._ring import Config, Ring
from ringreel.wirehead._hints import hint_at_files

__all__ = ["WireheadManager"]


class WireheadManager:
    """The manager of a ring.

    Args:
        config_path (str | os.PathLike | Mapping): Path of the configuration, or a dict. Default
            ``"config.yaml"``.

    Attributes:
        ring (Ring): The ring.

    Raises:
        ConfigError: The configuration cannot be used.

    Example:
        >>> from ringreel.wirehead import WireheadManager
        >>> WireheadManager("config.yaml").ring
        <ringreel.Ring .../demo.ring>
    """

    def __init__(self, config_path: Config = "config.yaml") -> None:
        self.ring = Ring(config_path)

    def run_manager(self) -> None:
        """Runs until SIGINT or SIGTERM. See ``ringreel.run_manager``.

        Raises:
            CoordinationUnavailableError: The server that keeps the index does not answer.
            CoordinationDeniedError: The server that keeps the index refuses this user.

        Example:
            >>> import signal, threading
            >>> from ringreel.wirehead import WireheadManager
            >>> threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()    # as Ctrl-C does
            >>> WireheadManager("config.yaml").run_manager()
        """
        with hint_at_files():
            _run.run_manager(self.ring)
