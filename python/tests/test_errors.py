"""Each error of the core is the exception that mirrors it, and says what to do."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import add, numbered

import ringreel

BAD_CONFIGS = [
    ({"RING": "x", "SWAP_CAPP": 3}, r"given as a dict: SWAP_CAPP: unknown key \(did you mean SWAP_CAP\?\)"),
    ({"SWAP_CAP": 3}, "neither RING nor DBNAME"),
    ({"RING": "x", "SWAP_CAP": 0}, "SWAP_CAP: expected a whole number"),
    ({"RING": "x", "SWAP_CAP": float("nan")}, "not JSON compliant"),
    ({"RING": "x", "SAMPLE": [object()]}, "which no configuration holds"),
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


def test_a_dict_may_hold_paths_and_numpy_numbers(tmp_path):
    ring = ringreel.Ring({"RING": tmp_path / "ring", "SWAP_CAP": np.int64(2), "SAMPLE": ("a", "b")})
    assert ring.path == str(tmp_path / "ring") and ring.sample == ["a", "b"] and ring.path in repr(ring)
    assert not os.path.exists(ring.path)  # nothing is opened


def test_no_ring_is_a_no_ring_error(config):
    with pytest.raises(ringreel.RingNotFoundError, match="no ring at .*: start `ringreel manager` or a"):
        ringreel.Ring(config()).status()


def test_another_ring_is_a_wrong_ring_error(filled, config):
    filled(numbered(2))
    for keys in ({"SWAP_CAP": 3}, {"SWAP_CAP": 2, "SAMPLE": ["other"]}):
        ring = ringreel.Ring(config(**keys))
        for use in (ring.status, ring.generator, lambda ring=ring: len(ring.dataset())):
            with pytest.raises(ringreel.RingMismatchError, match="it was made with"):
                use()


@pytest.mark.skipif(os.geteuid() == 0, reason="for root nothing is forbidden: the PermissionError is NOT tested here")
def test_what_the_filesystem_refuses_is_an_os_error(config, tmp_path):
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="check the owner") as caught:
        ringreel.Ring(config(RING=str(forbidden / "ring"))).generator()
    assert caught.value.filename == str(forbidden / "ring")


def test_what_the_system_refuses_has_its_number_and_its_path(filled):
    ring = filled(numbered(1))
    manifests = os.path.join(ring.path, "manifests")
    shutil.rmtree(manifests)
    open(manifests, "w").close()
    with pytest.raises(NotADirectoryError) as caught:
        ring.status()
    assert caught.value.errno == 20 and caught.value.filename.startswith(manifests)
    assert "Not a directory (" in str(caught.value)


def test_a_finished_generator_takes_no_more(config):
    generator = ringreel.Ring(config()).generator()
    generator.write((1,))
    first = generator.finish()
    assert generator.finish() == first == generator.summary
    for use in (lambda: generator.write((1,)), generator.flush):
        with pytest.raises(ringreel.RingreelError, match="finished: open another"):
            use()


def test_a_generator_in_a_with_statement_finishes_after_an_exception_too(config):
    ring = ringreel.Ring(config(SEGMENT_SAMPLES=4))
    with pytest.raises(ZeroDivisionError), ring.generator() as generator:
        generator.write((1,))
        raise ZeroDivisionError
    assert generator.summary.finished == 1
    assert ring.status()["samples_waiting"] == 1 and ring.status()["generators"] == []


def test_the_status_counts_what_there_is(config):
    ring = ringreel.Ring(config(KEEP=5))
    add(ring, numbered(4))
    add(ring, numbered(3), promote=False)
    status = ring.status()
    assert (status["swaps"], status["newest"], status["swap_cap"], status["sample"]) == (1, 1, 4, ["data"])
    assert (status["samples_delivered"], status["samples_waiting"], status["samples_generated"]) == (4, 3, 7)
    writing = status["writing"]
    assert (writing["generation"], writing["samples"], writing["cap"], writing["swapping"]) == (2, 3, 4, False)
    assert writing["bytes"] > 0
    assert [generation["samples"] for generation in status["generations"]] == [4]
    assert status["ring"] == ring.path and status["manager"] is None and status["quarantined"] == 0
    with ring.generator():
        assert [member["pid"] for member in ring.status()["generators"]] == [os.getpid()]


def test_importing_and_describing_a_ring_imports_neither_torch_nor_ml_dtypes(tmp_path):
    code = "import sys, ringreel; ringreel.Ring({'RING': 'x'}); print({'torch', 'ml_dtypes'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
