"""The end of a worker process whose parent process has ended."""

import os
import signal

from conftest import until

PROGRAM = """
import multiprocessing, os, time
from ringreel._worker_watch import end_with_parent

def work():
    end_with_parent()
    end_with_parent()
    print(f"worker {os.getpid()}\\n", end="", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    end_with_parent()  # no worker: nothing to do
    multiprocessing.get_context("spawn").Process(target=work).start()
    time.sleep(600)
"""


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_worker_of_a_killed_process_ends(script):
    parent = script(PROGRAM)
    parent.wait_for("worker")
    worker = int(parent.said.split()[1])
    assert is_running(worker)
    try:
        parent.end(signal.SIGKILL)
        until(lambda: not is_running(worker))
    finally:
        if is_running(worker):
            os.kill(worker, signal.SIGKILL)
