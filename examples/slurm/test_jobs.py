"""The batch scripts, with a `scontrol` that notes its arguments. `scripts/cluster.sh slurm` runs them under SLURM."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ringreel

HERE = Path(__file__).resolve().parent
SECONDS = 120
SCRIPTS = sorted(path.name for path in HERE.glob("*.sbatch"))
JOB = {"SLURM_JOB_ID": "70", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3", "SLURM_CPUS_PER_TASK": "2"}


@pytest.fixture
def job(tmp_path):
    """Starts a script in a directory with the configuration; ends it after the test."""
    shutil.copytree(HERE, tmp_path / "job")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text('#!/bin/sh\necho "$@" >>requeued\n')
    (tools / "scontrol").chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    jobs = []

    def start(name):
        variables = {**os.environ, **JOB, "PATH": path, "OPTIONS": "--shape 4 --rate 20"}
        with (tmp_path / "job" / "log").open("w") as log:
            jobs.append(subprocess.Popen(["bash", name], cwd=tmp_path / "job", env=variables, stdout=log, stderr=log))
        return jobs[-1]

    start.directory = tmp_path / "job"
    start.requeued = lambda: (
        (start.directory / "requeued").read_text() if (start.directory / "requeued").exists() else ""
    )
    yield start
    for each in jobs:
        each.send_signal(signal.SIGTERM)
        each.wait(SECONDS)


def wait_for(what, process, log):
    end = time.monotonic() + SECONDS
    while not what():
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def alive(directory, role):
    """Returns the processes of a role, which handle signals before they are seen."""
    try:
        return ringreel.Ring(directory / "config.yaml").status()[role]
    except ringreel.RingNotFoundError:
        return []


@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR1, "requeue 70\n"), (signal.SIGTERM, "")])
def test_manager_is_requeued_before_its_time_limit_only(job, number, requeued):
    running = job("manager.sbatch")
    wait_for(lambda: alive(job.directory, "managers"), running, job.directory / "log")
    running.send_signal(number)
    assert running.wait(SECONDS) == 0
    assert job.requeued() == requeued
    assert not alive(job.directory, "managers")  # it has ended, and released its lease


@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR1, "requeue 70_3\n"), (signal.SIGTERM, "")])
def test_generators_are_requeued_before_their_time_limit_only(job, number, requeued):
    running = job("generators.sbatch")
    log = job.directory / "log"
    wait_for(lambda: len(alive(job.directory, "generators")) == 2, running, log)
    running.send_signal(number)
    assert running.wait(SECONDS) == 0, log.read_text()
    assert job.requeued() == requeued


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_preempted_job_is_requeued_and_keeps_its_log(name):
    options = re.findall(r"^#SBATCH (--\S+)", (HERE / name).read_text(), re.MULTILINE)
    assert {"--requeue", "--open-mode=append"} <= set(options)
    assert any(option.startswith("--signal=") for option in options) == (name != "readers.sbatch")
