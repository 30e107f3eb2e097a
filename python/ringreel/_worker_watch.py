"""The end of a worker process whose parent process has ended."""

import multiprocessing
import os
import threading
import time

# Seconds between two checks of the parent process.
_WATCH_SECONDS = 1.0
_watching = 0  # Id of the process in which the watch thread runs. A forked child does not inherit the thread.


def end_with_parent() -> None:
    """Makes this worker end when the process that it works for has ended, for whatever reason.

    A worker of Grain does not notice the end: it would remain a live reader, for which generators wait. A
    torch worker notices it, but then waits until its queue is written out. The queue has no reader any more,
    so a worker with more than a pipe's capacity left to send would never end. Any other worker would leave
    the run in an orderly way, and the run would then keep no generation for a restart.
    PR_SET_PDEATHSIG is no alternative: it fires at the end of the *thread* that started the worker.
    """
    global _watching
    trainer = multiprocessing.parent_process()
    if trainer is None or _watching == os.getpid():
        return
    _watching = os.getpid()
    parent = os.getppid()  # may be a fork server, or the process that adopts orphaned processes

    def watch() -> None:
        while os.getppid() == parent and trainer.is_alive():
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="ringreel-trainer-watch", daemon=True).start()
