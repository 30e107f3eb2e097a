"""The jobs of examples/slurm on two nodes, under faults that batch jobs meet.

A process is killed, a whole task is killed and queued again, an urgent job preempts tasks, a task's time runs out, a
node loses power and returns. Exactly one manifest must list each sample that a ledger calls finished.
"""

import shutil
import time
from pathlib import Path

from judge import Manifests, judge, ledger_ids
from lab import LabError, until
from slurm import Slurm

EXAMPLES = Path("examples/slurm")


class Batch:
    """One run."""

    def __init__(self, lab):
        self.lab, self.slurm = lab, Slurm(lab)
        self.job = lab.shared / "job"
        self.ledgers = lab.dir / "ledgers"
        self.ledgers.mkdir()
        self.begun = time.monotonic()
        (lab.dir / "bin").mkdir()
        (lab.dir / "bin" / "ringreel").symlink_to(lab.ringreel)

    def tell(self, text):
        """Prints a progress line."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def submit(self, name, *options):
        """Submits a script of the examples."""
        path = f"{self.lab.dir / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        told = {"OPTIONS": "--shape 16,16,16 --rate 3", "LEDGERS": self.ledgers}
        return self.slurm.submit(f"--chdir={self.job}", *options, self.job / name, PATH=path, **told)

    def lines_of(self, task):
        """The lines in the ledgers of one task."""
        return sum(len(self.ledger(2 * task + n)) for n in range(2))

    def ledger(self, worker):
        """The path of one process's ledger."""
        paths = self.ledgers.glob(f"*.{worker}.ledger")
        return [line for path in paths for line in path.read_text().splitlines()]

    def grows(self, tasks, seconds=60):
        """Waits until these tasks finish samples (again)."""
        before = {task: self.lines_of(task) for task in tasks}
        until(f"samples of tasks {tasks}", lambda: all(self.lines_of(t) > n for t, n in before.items()), seconds)

    def pending(self, job, seconds=90):
        """Waits until a task of the job is queued again; returns these tasks."""
        return until("a task to be queued again", lambda: self.in_state(job, "PD"), seconds)

    def in_state(self, job, state):
        """The tasks in this state."""
        return sorted(int(task.split("_")[1]) for task, (is_, _) in self.slurm.states(job).items() if is_ == state)

    def resume(self, job):
        """Releases queued tasks at once, and waits until all eight run."""

        def all_run():
            self.slurm.start_now()
            return self.in_state(job, "R") == list(range(8))

        until("all tasks to run", all_run, 120, pause=1.0)

    def disturb(self, job):
        """Applies all faults to the array `job`."""
        self.grows(range(8))
        self.tell("all 16 generators of the array run")

        node = self.lab.nodes[0]
        victim = node.run("pgrep", "-nf", "^ringreel generate").strip()
        node.run("kill", "-9", victim)
        self.tell("a generator was killed")
        time.sleep(2)

        self.slurm.ask("scancel", "--signal=KILL", "--full", f"{job}_1", check=False)
        self.slurm.ask("scontrol", "requeue", f"{job}_1", check=False)
        self.resume(job)
        self.grows([1])
        self.tell("task 1 was killed and queued again, and runs")

        urgent = self.submit("urgent.sbatch")
        self.pending(job, 60)
        until("the urgent job's start", lambda: "R" in str(self.slurm.states(urgent)), 60)
        preempted = self.in_state(job, "PD")
        self.tell(f"an urgent job preempted tasks {preempted}; they are queued again")
        until("the urgent job's end", lambda: not self.slurm.states(urgent), 60)
        self.resume(job)
        self.grows(preempted)
        self.tell("the preempted tasks run again")

        late = self.in_state(job, "R")[-1]
        self.slurm.ask("scontrol", "update", f"JobId={job}_{late}", "TimeLimit=1")
        again = self.pending(job)
        self.tell(f"task {late} reached its time limit: it sealed its samples and queued itself again")
        if again != [late]:
            raise LabError(f"tasks {again} were queued again")
        self.slurm.ask("scontrol", "update", f"JobId={job}_{late}", "TimeLimit=240", check=False)
        self.resume(job)
        self.grows([late])

        self.lose_node(job)

    def lose_node(self, job):
        """Cuts the second node's power, and restores it when SLURM has noticed."""
        other = self.lab.nodes[1]
        other.stop()
        self.tell(f"{other.name} lost power")
        lost = self.pending(job, 180)
        self.tell(f"SLURM noticed: tasks {lost} are queued again")
        self.lab.start_node(other)
        self.slurm.start_node(other)
        time.sleep(10)  # SLURM's late messages about the old jobs would reach the new ones
        self.resume(job)
        self.grows(lost)
        self.tell(f"{other.name} is back, and its tasks run again")

    def run(self):
        """Runs all of it; returns the verdict."""
        self.slurm.start()
        job_dir = self.lab.nodes[0].path(self.job)
        shutil.copytree(EXAMPLES, job_dir)
        urgent = "#!/bin/bash\n#SBATCH --partition=urgent --nodes=1 --ntasks=9 --output=/dev/null\nsleep 3\n"
        (job_dir / "urgent.sbatch").write_text(urgent)
        try:
            self.submit("manager.sbatch")
            readers = self.submit("readers.sbatch")
            job = self.submit("generators.sbatch")
            self.disturb(job)
            return self.drain(job, readers)
        finally:
            logs = self.lab.dir / "jobs"
            logs.mkdir()
            for log in [*job_dir.glob("*.log"), *job_dir.glob("seen-*")]:
                shutil.copy(log, logs)

    def drain(self, job, readers):
        """Ends the generators as a user does, and waits until the manager has committed all finished samples."""
        self.slurm.ask("scancel", job)
        until("the generators' end", lambda: not self.slurm.states(job), 60)
        ids, manifests = ledger_ids(self.ledgers.iterdir()), Manifests(self.lab, "job/ring")
        config, end = self.job / "config.yaml", time.monotonic() + 120
        node, ringreel = self.lab.nodes[0], self.lab.dir / "bin" / "ringreel"
        while ids - manifests.look().keys() and time.monotonic() < end:
            node.run(ringreel, "promote", "-c", config, check=False)
            time.sleep(1)
        self.slurm.ask("scancel", "--user=root")
        until("all jobs' end", lambda: not self.slurm.ask("squeue", "-h").strip(), 60)
        seen = self.lab.server.path(self.lab.on_server(self.lab.shared / "job"))
        return judge(self.ledgers.iterdir(), manifests, seen.glob(f"seen-readers-{readers}-*.json"))


def run(lab):
    """Runs once; returns the verdict."""
    return Batch(lab).run()
