"""Rank, world size and name of the run from a launcher's environment."""

import os
import re

import pytest
from conftest import add, numbered
from rank_processes import Ranks
from test_stream import told

import ringreel

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture(scope="module")
def ranks():
    with Ranks(2) as ranks:
        yield ranks


LAUNCHERS = ("RANK", "WORLD_SIZE", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_")


def in_environment(environment, ring, epochs=1):
    """Returns worker, world and run of a stream in this environment, and its samples."""
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        del os.environ[name]
    os.environ.update(environment)
    try:
        stream = ring.stream(epochs=epochs)
        found = [(sample.generation, told(sample)) for sample in stream]
        state = stream.state_dict()
        assert state["run"] == stream.run
        return state["worker"], state["world"], stream.run, found
    finally:
        for name in environment:
            del os.environ[name]


RANK_1_OF_2 = {"RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    "environment, rank, world, run",
    [
        ({}, 0, 1, r"own-[0-9a-f]{16}"),
        (RANK_1_OF_2, 1, 2, r"own-[0-9a-f]{16}"),
        ({"RANK": "1"}, 0, 1, r"own-[0-9a-f]{16}"),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}, 2, 3, r"own-[0-9a-f]{16}"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, 0, 1, r"7-[0-9a-f]{16}"),  # a batch script
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}, 2, 3, r"7\.1"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, 1, 4, r"own-[0-9a-f]{16}"),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, 1, 4, r"own-[0-9a-f]{16}"),
        ({**RANK_1_OF_2, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}, 1, 2, r"7"),
        ({**RANK_1_OF_2, "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, 1, 2, r"7-restart2"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "abc"}, 1, 2, r"abc"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "0"}, 1, 2, r"abc"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "3"}, 1, 2, r"abc-restart3"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "none"}, 1, 2, r"own-[0-9a-f]{16}"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"}, 1, 2, r"7"),
        ({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "abc"}, 0, 1, r"abc-[0-9a-f]{16}"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "../a b/c"}, 1, 2, r"-a-b-c-[0-9a-f]{8}"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "..."}, 1, 2, r"run-[0-9a-f]{8}"),
        ({**RANK_1_OF_2, "TORCHELASTIC_RUN_ID": "x" * 99}, 1, 2, r"x{55}-[0-9a-f]{8}"),
    ],
)
def test_rank_and_run_are_taken_from_the_launcher(ranks, rings, environment, rank, world, run):
    ranks.begin(0, in_environment, environment, rings(7))
    ranks.begin(1, in_environment, environment, rings(7))
    answers = [ranks.answer(0), ranks.answer(1)]
    for found in answers:
        assert found[:2] == (rank, world) and found[3] == [(1, n) for n in range(rank, 7, world)]
        assert re.fullmatch(run, found[2]), found[2]
    assert (answers[0][2] == answers[1][2]) == ("[0-9a-f]{16}" not in run)


def test_job_names_that_are_not_run_names_stay_distinct(monkeypatch):
    names = set()
    jobs = ["a/b", "a b", "a-b", "x" * 64, "x" * 65, "x" * 99, "y" * 98 + "1", "y" * 98 + "2", ".", "..", "\u00e9", ""]
    for job in jobs:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", job)
        for restart in "0", "1":
            monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)
            names.add(ringreel._environment.run_name(2))
    names.discard(None)
    assert len(names) == 2 * (len(jobs) - 1)
    assert all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name) for name in names)


def test_ranks_without_a_run_log_a_warning(rings, caplog, monkeypatch):
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    ring = rings(7)
    ring.stream(1, 3)
    assert caplog.text.count("this is rank 1 of 3, and no run is named") == 1
    caplog.clear()
    ring.stream()
    ring.stream(1, 3, run="named")
    ring.stream(1, 3, replay="named")
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    ring.stream(1, 3)
    assert "read together" not in caplog.text


def test_processes_of_one_job_follow_the_same_log(ranks, filled):
    """The second rank starts when the generation is old."""
    ring = filled(numbered(4), KEEP=5)
    job = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
    ranks.begin(0, in_environment, {**job, "RANK": "0"}, ring)
    assert ranks.answer(0) == (0, 2, "job", [(1, 0), (1, 2)])
    add(ring, numbered(4, start=10))
    ranks.begin(0, in_environment, {**job, "RANK": "0"}, ring, 2)
    ranks.begin(1, in_environment, {**job, "RANK": "1"}, ring, 2)
    assert ranks.answer(0)[3] == [(1, 0), (1, 2), (2, 10), (2, 12)]
    assert ranks.answer(1)[3] == [(1, 1), (1, 3), (2, 11), (2, 13)]
    ranks.begin(1, in_environment, {**job, "RANK": "1", "TORCHELASTIC_RUN_ID": "none"}, ring)
    assert ranks.answer(1)[3] == [(2, 11), (2, 13)]


@pytest.mark.parametrize(
    "environment, options, why",
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, {}, "RANK='x' and WORLD_SIZE='2' in the environment are not numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, {}, "rank: expected 0 or more and less than world_size=2, found 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, {}, "rank: expected 0 or more and less than world_size=2, found -1"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, {}, "rank: expected 0 or more and less than world_size=0, found 0"),
        (RANK_1_OF_2, {"rank": 0}, "rank and world_size: expected both or neither"),
        ({}, {"world_size": 2}, "rank and world_size: expected both or neither"),
    ],
)
def test_invalid_ranks_are_refused(config, monkeypatch, environment, options, why):
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=why):
        ringreel.Ring(config()).stream(**options)
