"""Each error of the core becomes the matching exception, which says what to do."""

import os
import pickle
import shutil
import sys

import pytest
from conftest import numbered

import ringreel
from ringreel._errors import add_note

BAD_CONFIGS = [
    ({"RING": "x", "SWAP_CAPP": 3}, r"given as a dict: SWAP_CAPP: unknown key \(did you mean SWAP_CAP\?\)"),
    ({"SWAP_CAP": 3}, "neither RING nor DBNAME"),
    ({"RING": "x", "SWAP_CAP": 0}, "SWAP_CAP: expected a whole number"),
    ({"RING": "x", "SWAP_CAP": float("nan")}, "not JSON compliant"),
    ({"RING": "x", "SAMPLE": [object()]}, "a configuration cannot hold an object of type object"),
    ({}, "neither RING nor DBNAME"),
    (7, "a path or a dict, found int"),
]


@pytest.mark.parametrize(("given", "message"), BAD_CONFIGS)
def test_a_bad_configuration_is_a_config_error_and_a_value_error(given, message):
    with pytest.raises(ringreel.ConfigError, match=message) as caught:
        ringreel.Ring(given)
    assert isinstance(caught.value, ValueError)


def test_an_error_in_a_file_names_file_and_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("RING: x\n\nVERIFY: allways\n")
    with pytest.raises(ringreel.ConfigError, match=r"config.yaml:3: VERIFY: .*did you mean always"):
        ringreel.Ring(path)
    with pytest.raises(ringreel.ConfigError, match=r"no\.yaml: cannot read the configuration"):
        ringreel.Ring(tmp_path / "no.yaml")


def test_missing_ring_is_a_ring_not_found_error(config):
    with pytest.raises(ringreel.RingNotFoundError, match="no ring at .*: start `ringreel manager` or a"):
        ringreel.Ring(config()).status()


def test_other_ring_is_a_ring_mismatch_error(filled, config):
    filled(numbered(2))
    for keys in ({"SWAP_CAP": 3}, {"SWAP_CAP": 2, "SAMPLE": ["other"]}):
        ring = ringreel.Ring(config(**keys))
        for use in (ring.status, ring.generator, lambda ring=ring: len(ring.dataset())):
            with pytest.raises(ringreel.RingMismatchError, match="it was made with"):
                use()


@pytest.mark.skipif(os.geteuid() == 0, reason="for root nothing is forbidden: the PermissionError is NOT tested here")
def test_filesystem_error_is_an_os_error(config, tmp_path):
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="check the owner") as caught:
        ringreel.Ring(config(RING=str(forbidden / "ring"))).generator()
    assert caught.value.filename == str(forbidden / "ring")


def test_os_error_has_errno_and_filename(filled):
    ring = filled(numbered(1))
    manifests = os.path.join(ring.path, "manifests")
    shutil.rmtree(manifests)
    open(manifests, "w").close()
    with pytest.raises(NotADirectoryError) as caught:
        ring.status()
    assert caught.value.errno == 20 and caught.value.filename.startswith(manifests)
    assert "Not a directory (" in str(caught.value)


EXCEPTIONS = [
    ringreel.RingreelError,
    ringreel.ConfigError,
    ringreel.RingNotFoundError,
    ringreel.RingMismatchError,
    ringreel.DamagedSampleError,
    ringreel.ReclaimedError,
    ringreel.CoordinationUnavailableError,
    ringreel.CoordinationDeniedError,
    ringreel.SampleError,
    ringreel.RingTimeoutError,
]


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_exceptions_can_be_pickled(kind):
    error = kind("what happened")
    add_note(error, "a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == "what happened" and again.__notes__ == ["a note"]
    assert isinstance(error, ringreel.RingreelError) and isinstance(error, RuntimeError)
    assert kind.__module__ == "ringreel"


@pytest.mark.parametrize(
    ("version", "logged"), [((3, 10), ["ValueError: note 1", "ValueError: note 2"]), ((3, 11), [])]
)
def test_notes_are_logged_if_tracebacks_do_not_show_them(version, logged, monkeypatch, caplog):
    monkeypatch.setattr(sys, "version_info", version)
    error = ValueError("what happened")
    add_note(error, "note 1")
    add_note(error, "note 2")
    assert error.__notes__ == ["note 1", "note 2"]
    assert [record.getMessage() for record in caplog.records] == logged
