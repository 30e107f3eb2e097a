"""Processes in the role of a training job's ranks. They are started once, and run one job after the other."""

import contextlib
import multiprocessing
import traceback


class Ranks:
    """A number of forked processes. Use it in a `with` statement."""

    def __init__(self, count):
        self._ranks = [_Rank() for _ in range(count)]

    def begin(self, rank, work, *args):
        """Starts `work(*args)`, which have to be picklable, on a rank. Ends the rank's previous job."""
        if self._ranks[rank].busy and not self._ranks[rank].pipe.poll(0):
            self._ranks[rank].end()
            self._ranks[rank] = _Rank()
        self._ranks[rank].begin(work, args)

    def answer(self, rank, seconds=60):
        """Returns the result of the rank's last job."""
        good, answer = self._ranks[rank].answer(seconds)
        assert good, f"rank {rank}: {answer}"
        return answer

    def pid(self, rank):
        """Returns the rank's process."""
        return self._ranks[rank].process.pid

    def together(self, world, work, *args, seconds=60):
        """Returns the results of `work(rank, *args)` on the first `world` ranks, run at the same time."""
        for rank in range(world):
            self.begin(rank, work, rank, *args)
        return [self.answer(rank, seconds) for rank in range(world)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self._ranks:
            rank.end()


class _Rank:
    def __init__(self):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()
        self.busy = False

    def begin(self, work, args):
        if self.busy:
            self.pipe.recv()  # the result of a job that was replaced
        self.pipe.send((work, args))
        self.busy = True

    def answer(self, seconds):
        assert self.pipe.poll(seconds), "a rank does not answer"
        self.busy = False
        return self.pipe.recv()

    def end(self):
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(0 if self.busy else 5)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe):
    while (job := pipe.recv()) is not None:
        work, args = job
        try:
            pipe.send((True, work(*args)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
