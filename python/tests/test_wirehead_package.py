"""Wirehead's submodules, the base of its datasets, and what an import costs."""

import importlib
import importlib.util
import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import add

import ringreel
import ringreel.wirehead

# Python 3.12 and later warn about a fork in a process with threads, which torch starts.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

HAS_TORCH = importlib.util.find_spec("torch") is not None

# The public names in the modules of Wirehead's main branch, and in `manager` of earlier versions.
NAMES = {
    "dataset": [
        "MongoheadDataset",
        "MongoTupleheadDataset",
        "binary_to_tensor",
        "quantile_normalize",
        "unit_interval_normalize",
    ],
    "generator": ["WireheadGenerator"],
    "log": ["SwapLog", "WireheadLogger", "WireheadSnapshot"],
    "manager": ["WireheadManager"],
}


def run(code):
    """Returns the output of a new interpreter that runs `code`."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("submodule", NAMES)
def test_submodule_has_wireheads_names(submodule):
    module = importlib.import_module(f"ringreel.wirehead.{submodule}")
    for name in NAMES[submodule]:
        assert getattr(module, name).__module__ == module.__name__
        assert getattr(ringreel.wirehead, name) is getattr(module, name)


def test_package_has_all_names_and_no_other():
    assert sorted(ringreel.wirehead.__all__) == sorted(name for names in NAMES.values() for name in names)
    assert set(ringreel.wirehead.__all__) | set(NAMES) <= set(dir(ringreel.wirehead))
    with pytest.raises(AttributeError, match=r"module 'ringreel\.wirehead' has no attribute 'WireheadRuntime'"):
        _ = ringreel.wirehead.WireheadRuntime


def test_submodules_are_attributes_of_the_package():
    code = "import ringreel.wirehead as w; print(*(getattr(w, name).__name__ for name in sys.argv[1:]))"
    names = [f"ringreel.wirehead.{name}" for name in NAMES]
    assert run(code.replace("sys.argv[1:]", repr([*NAMES]))).split() == names


def test_star_import_gets_all_names():
    assert run("from ringreel.wirehead import *; print(WireheadGenerator.__name__, MongoheadDataset.__name__)")


def test_generators_and_managers_do_not_import_torch():
    """Also where torch is not installed: then nothing tries to import it."""
    names = "WireheadGenerator, WireheadLogger, WireheadManager"
    assert run(f"import sys; from ringreel.wirehead import {names}; print('torch' in sys.modules)") == "False\n"
    loaded = run("import sys; from ringreel.wirehead import MongoheadDataset; print('torch' in sys.modules)")
    assert loaded == f"{HAS_TORCH}\n"


@pytest.fixture
def keys(config):
    """The configuration of a ring with three pairs."""
    keys = config(SAMPLE=["data", "label"], SWAP_CAP=3)
    add(ringreel.Ring(keys), [(np.full(2, n, np.float32), np.array(n)) for n in range(3)])
    return keys


def test_datasets_are_torchs_datasets(keys):
    torch = pytest.importorskip("torch", reason="torch is not installed: the base of the datasets is NOT tested")
    from ringreel.wirehead import MongoheadDataset, MongoTupleheadDataset

    for kind in (MongoheadDataset, MongoTupleheadDataset):
        dataset = kind(keys)
        assert isinstance(dataset, torch.utils.data.Dataset)
        assert not isinstance(dataset, torch.utils.data.IterableDataset)
        assert len(dataset + dataset) == 6
    loader = torch.utils.data.DataLoader(dataset, batch_size=3, num_workers=1)
    assert [label.tolist() for _, label in loader] == [[0, 1, 2]]
    assert [int(label) for _, label in torch.utils.data.Subset(dataset, [2, 0])] == [2, 0]


def test_datasets_have_no_base_without_torch(keys):
    code = """
        import sys
        sys.modules["torch"] = None  # as if it were not installed
        from ringreel.wirehead import MongoheadDataset
        assert MongoheadDataset.__mro__ == (MongoheadDataset, object)
        print(type(MongoheadDataset(KEYS)[2]["input"]).__module__)
    """
    lines = [line.strip() for line in code.strip().splitlines()]
    assert run("\n".join(lines).replace("KEYS", repr(keys))) == "numpy\n"


def _label(dataset):
    return int(dataset[1]["label"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_dataset_is_read_in_another_process(keys, method):
    from ringreel.wirehead import MongoheadDataset

    dataset = MongoheadDataset(keys)
    assert _label(pickle.loads(pickle.dumps(dataset))) == 1
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(_label, [dataset]) == [1]
