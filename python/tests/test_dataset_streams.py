"""What the datasets of torch and Grain have in common: rank, run and options of their streams."""

import pickle

import pytest
from conftest import numbered, numbers

from ringreel import _environment
from ringreel._dataset_streams import DatasetStreams

OPTIONS = {
    "shuffle": False,
    "seed": 0,
    "equal": None,
    "pad_value": 0,
    "epochs": 1,
    "prefetch_bytes": None,
    "replay": None,
    "repeat": True,
    "timeout": None,
    "threads": None,
}


def streams(config, rank=None, world_size=None, run=None, find=lambda: None, **options):
    return DatasetStreams(config, "test", rank, world_size, run, find, **{**OPTIONS, **options})


def test_given_rank_comes_before_a_found_one(config, monkeypatch):
    monkeypatch.setattr(_environment, "distributed_rank", lambda: (3, 4))
    assert streams(config(), 1, 2, find=lambda: (2, 3)).rank() == (1, 2)
    assert streams(config(), find=lambda: (2, 3)).rank() == (2, 3)
    assert streams(config()).rank() == (3, 4)


FOUND = [(1, 2)]


def first_found():
    return FOUND[0] if FOUND else None


def test_copy_for_a_worker_keeps_rank_and_run(config, monkeypatch):
    made = streams(config(), find=first_found)
    pickled = pickle.dumps(made)
    monkeypatch.setattr("test_dataset_streams.FOUND", [])
    copy = pickle.loads(pickled)
    assert copy.rank() == (1, 2)
    assert made.rank() == (0, 1)
    assert copy.run_name() == made.run_name() == f"test-{made.token}"


def test_ranks_without_a_run_are_warned_about_once(config, caplog):
    made = streams(config(), 0, 2)
    assert made.run_name() == made.run_name()
    assert caplog.text.count("no run is named") == 1


def test_replay_has_no_run_of_its_own(config):
    assert streams(config(), replay="past").run_name() is None
    assert streams(config(), run="named").run_name() == "named"


def test_wrong_arguments_are_refused_at_once(config):
    with pytest.raises(ValueError, match="epochs: expected 0 or more"):
        streams(config(), epochs=-1)
    with pytest.raises(ValueError, match="expected both or neither"):
        streams(config(), rank=1)
    with pytest.raises(ValueError, match="less than world_size=2, found 2"):
        streams(config(), rank=2, world_size=2)


def test_workers_of_one_turn_start_where_the_last_one_ended(filled):
    ring = filled(numbered(4))
    made = streams(ring)
    run = made.run_name()
    first = [numbers(made.open(worker, 2, run, "a")) for worker in range(2)]
    second = [made.open(worker, 2, run, "b") for worker in range(2)]
    assert first == [[0, 2], [1, 3]]
    assert [[sample.epoch for sample in stream] for stream in second] == [[1, 1], [1, 1]]
