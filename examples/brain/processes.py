"""Child processes with log files, which are ended by a signal."""

import signal
import subprocess
import sys
import time


class Process:
    """One script of this folder, running as a separate process.

    The process has its own session, so that a Ctrl-C in the terminal reaches
    only the script that started it, which then ends the others in order.
    """

    def __init__(self, name, arguments, folder, log):
        self.name = name
        self.log = log
        with open(log, "wb") as file:
            self._child = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def running(self):
        return self._child.poll() is None

    def ask_to_stop(self):
        """Send SIGTERM if the process is still running."""
        if self.running():
            self._child.send_signal(signal.SIGTERM)

    def wait(self, deadline):
        """Wait until `deadline` (of time.monotonic), then kill. Return True for a clean exit."""
        try:
            return self._child.wait(max(0.0, deadline - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            return False

    def ending(self):
        """How the process ended, in words, with the end of its log."""
        status = self._child.returncode
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"{self.name} ended with {how}; the end of its log:\n{self._last_lines()}"

    def _last_lines(self, count=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def stop(processes, patience_s=20.0):
    """Ask all processes to stop, and wait for them; return those that did not exit cleanly."""
    for process in processes:
        process.ask_to_stop()
    deadline = time.monotonic() + patience_s
    return [process for process in processes if not process.wait(deadline)]
