"""The training job of examples/slurm: it is warned of its time limit, requeues itself, resumes, and ends.

Its two ranks must have taken every step once, in order, and must have read every sample of each epoch once.
"""

import shutil
import time
from pathlib import Path

from lab import LabError, until
from slurm import Slurm

ENVIRONMENT = Path(".venv-torch").absolute()
SAMPLES, STEPS, BATCH, RANKS = 64, 64, 4, 2
CONFIG = "RING: ring\nSWAP_CAP: 64\nSAMPLE: [image, label]\nINDEX: files\n"


class Training:
    """One run."""

    def __init__(self, lab):
        self.lab, self.slurm = lab, Slurm(lab)
        self.job = lab.shared / "job"
        self.begun = time.monotonic()

    def tell(self, text):
        """Print a line with the time."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def rows(self):
        """Return (step, rank, sample) of everything that was read."""
        found = []
        for rank in range(RANKS):
            path = self.lab.nodes[0].path(self.job) / f"seen.{rank}"
            lines = path.read_text().splitlines() if path.exists() else []
            found += [(int(step), rank, sample) for step, sample in (line.split() for line in lines)]
        return found

    def last_step(self):
        """Return the last step that every rank has taken."""
        rows = self.rows()
        return min(max((step for step, of, _ in rows if of == rank), default=0) for rank in range(RANKS))

    def run(self):
        """Run the job; return whether each step and sample came once."""
        self.slurm.start()
        job_dir = self.lab.nodes[0].path(self.job)
        try:
            return self.train(job_dir)
        finally:
            for log in job_dir.glob("*.log"):
                shutil.copy(log, self.lab.logs)

    def train(self, job_dir):
        """Submit the job, warn it, and wait for its end."""
        node = self.lab.nodes[0]
        shutil.copytree("examples/slurm", job_dir)
        shutil.copy("examples/pytorch/train.py", job_dir)
        (job_dir / "config.yaml").write_text(CONFIG)
        fill = f"--samples {SAMPLES} --shape 16,16,16 --promote".split()
        node.run(self.lab.ringreel, "generate", "-c", self.job / "config.yaml", *fill)
        options = f"--steps {STEPS} --batch-size {BATCH} --save-every 1000 --seen seen"
        told = {"VENV": ENVIRONMENT, "OPTIONS": options, "OMP_NUM_THREADS": 1}
        # The nodes of the lab have no names that resolve, so both ranks run on one.
        told["MASTER_ADDR"] = "127.0.0.1"
        job = self.slurm.submit(f"--chdir={self.job}", "--nodes=1", self.job / "train-pytorch.sbatch", **told)
        until("the first steps", lambda: self.last_step() >= 3, 60)
        self.slurm.ask("scancel", "--signal=USR1", job)
        until("the job to be queued again", lambda: "PD" in str(self.slurm.states(job)), 120)
        stopped = self.last_step()
        self.tell(f"the job was warned, saved step {stopped}, and is queued again")
        if stopped >= STEPS:
            raise LabError("the training had ended before it was warned")

        def ended():
            self.slurm.start_now()
            return not self.slurm.states(job)

        until("the training's end", ended, 300, pause=1.0)
        self.tell("it resumed, and ended")
        return self.judge()

    def judge(self):
        """Return whether each rank took each step once, and each epoch gave each sample once."""
        rows, good = self.rows(), True
        for rank in range(RANKS):
            steps = [step for step, of, _ in rows if of == rank]
            good &= steps == [step for step in range(1, STEPS + 1) for _ in range(BATCH)]
        per_epoch = SAMPLES // (BATCH * RANKS)
        for epoch in range(STEPS // per_epoch):
            ids = [sample for step, _, sample in rows if (step - 1) // per_epoch == epoch]
            good &= len(ids) == len(set(ids)) == SAMPLES
        print(f"    {len(rows)} samples in {STEPS} steps of {RANKS} ranks: {'each once' if good else 'NOT each once'}")
        return good


def run(lab):
    """One run; whether it was good."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        print(f"SKIPPED: there is no {ENVIRONMENT} with ringreel and torch (make test creates it)")
        return True
    return Training(lab).run()
