"""A missing generation that KEEP covers is an error, or is counted and named."""

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringreel
from ringreel.grain import RingSource
from ringreel.wirehead import MongoheadDataset


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """Three generations of two samples, all within KEEP."""
    keys = {"SWAP_CAP": 2, "SAMPLE": ["data", "label"], "KEEP": 5, "INDEX": "files", "LEASE_SECONDS": 1}
    config = {"RING": str(tmp_path / "r.ring"), "POLL_SECONDS": 0.02, **keys}
    with ringreel.Ring(config).generator() as generator:
        for number in range(6):
            generator.write({"data": np.full(3, number), "label": np.full(3, number)})
    assert (tmp_path / "r.ring" / "read.3").exists()
    return config


def remove(config: dict[str, Any], generation: int) -> None:
    shutil.rmtree(Path(config["RING"]) / f"read.{generation}")


def assert_named(caplog: pytest.LogCaptureFixture, generation: int) -> None:
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(f"read.{generation} is missing, although KEEP covers it" in error for error in errors), errors


def test_dataset_continues_and_names_the_missing_generation(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    dataset = ringreel.Ring(config).dataset(generation=1)
    assert dataset.missing == []
    remove(config, 1)
    assert [int(sample["data"][0]) for sample in dataset] == [4, 5]
    assert (dataset.missing, dataset.generation) == ([1], 3)
    assert_named(caplog, 1)


def test_dataset_of_the_newest_generation_fails(config: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    remove(config, 3)
    dataset = ringreel.Ring(config).dataset()
    with pytest.raises(ringreel.ReclaimedError):
        dataset[0]
    with pytest.raises(ringreel.ReclaimedError):
        dataset.batch([0, 1])
    assert dataset.missing == [3]
    assert_named(caplog, 3)


def test_dataset_names_a_missing_manifest(config: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    (Path(config["RING"]) / "manifests" / "2").unlink()
    dataset = ringreel.Ring(config).dataset(generation=2)
    assert (dataset.generation, dataset.missing) == (3, [2])
    assert "manifests/2 is missing, although KEEP covers it" in caplog.text


def test_stream_names_the_missing_generation_after_its_end(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    remove(config, 3)
    with ringreel.Ring(config).stream(epochs=1, repeat=False, timeout=3) as stream:
        with pytest.raises(ringreel.RingTimeoutError):
            next(stream)
        assert stream.missing == [3]
    assert stream.missing == [3]
    assert_named(caplog, 3)


def test_stream_loader_names_the_missing_generation(config: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    loader = ringreel.StreamLoader(ringreel.Ring(config), batch_size=1, epochs=2)
    batches = iter(loader)
    next(batches)
    remove(config, 3)
    with pytest.raises(ringreel.ReclaimedError):
        list(batches)
    assert loader.missing == [3]
    assert_named(caplog, 3)


def test_grain_source_says_missing_and_not_reclaimed(config: dict[str, Any]) -> None:
    source = RingSource(config, generation=2)
    remove(config, 2)
    with pytest.raises(ringreel.ReclaimedError, match="generation 2 of .* is missing, although KEEP covers it"):
        source[0]


def test_wirehead_dataset_names_the_missing_generation(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    dataset = MongoheadDataset(config, timeout=5)
    remove(config, 3)
    with pytest.raises(ringreel.ReclaimedError):
        dataset[0]
    assert dataset.missing == [3]


def test_torch_dataset_names_the_missing_generation(config: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("torch")
    from ringreel.torch import RingDataset

    dataset = RingDataset(config)
    dataset.refresh(1)
    remove(config, 1)
    assert int(dataset[0]["data"][0]) == 4
    assert dataset.missing == [1]
    dataset.refresh()
    assert dataset.missing == [1]
    assert_named(caplog, 1)
