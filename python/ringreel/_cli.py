"""The command ``ringreel``."""

import signal
import sys

from ringreel._ringreel import run_command


def main() -> int:
    """Runs the command with this process's arguments, and returns its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command installs its own signal handlers
    return run_command(["ringreel", *sys.argv[1:]])
