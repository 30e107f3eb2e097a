"""Wirehead's programs with only their import changed, without a server; `test_mongodb.py` has one."""

import io
import os
import pickle
import signal
import socket
import threading

import numpy as np
import pytest
from conftest import add, until

import ringreel
from ringreel.wirehead import MongoheadDataset, MongoTupleheadDataset, WireheadGenerator, WireheadManager

# The configuration of Wirehead's unit example, except for the cap.
WIREHEADS_CONFIG = """\
MONGOHOST: "localhost" # hostname or ip of node hosting mongodb
DBNAME: "unit-test"    # name of database inside mongodb
SWAP_CAP: 10           # max size for write/read collection

# Change if you know what you're doing
SAMPLE: ["data", "label"]
WRITE_COLLECTION: "write"
READ_COLLECTION: "read"
COUNTER_COLLECTION: "counter"
TEMP_COLLECTION: "temp"
CHUNKSIZE: 10
"""

# Without MongoDB.
CONFIG = WIREHEADS_CONFIG + "INDEX: files\n"

MANAGER = """
    from ringreel.wirehead import WireheadManager

    if __name__ == "__main__":
        wirehead_runtime = WireheadManager(config_path="config.yaml")
        wirehead_runtime.run_manager()
"""

GENERATOR = """
    import numpy as np
    from ringreel.wirehead import WireheadGenerator

    def create_generator():
        number = 0
        while True:
            img = np.random.rand(24,24,24)
            lab = np.random.rand(24,24,24)
            np.savez(f"made-{number}.tmp.npz", img=img, lab=lab)
            import os
            os.rename(f"made-{number}.tmp.npz", f"made-{number}.npz")
            number += 1
            yield (img, lab)

    if __name__ == "__main__":
        brain_generator     = create_generator()
        wirehead_runtime    = WireheadGenerator(
            generator = brain_generator,
            config_path = "config.yaml"
        )
        wirehead_runtime.run_generator()
"""

LOADER = """
    import numpy as np
    from ringreel.wirehead import MongoheadDataset

    dataset = MongoheadDataset(config_path = "config.yaml")

    idx = [0]
    data = dataset[idx]
    sample, label = data[0]['input'], data[0]['label']

    np.savez("loaded.npz", sample=np.asarray(sample), label=np.asarray(label))
    print("loaded", len(dataset))
"""


def run_the_tutorial(tmp_path, script, config):
    """Manager, generator and loader are separate processes. The loader gets exactly the generated floats."""
    (tmp_path / "config.yaml").write_text(config)
    manager, loader = script(MANAGER), script(LOADER)
    loader.wait_for("waiting for")
    generator = script(GENERATOR)
    assert loader.end(seconds=60) == 0, loader.said
    assert "loaded 10" in loader.said and "data is ready" in loader.said
    assert generator.end(signal.SIGINT) == 0 and manager.end(signal.SIGINT) == 0, generator.said + manager.said
    assert "swap: generation 1 is readable" in manager.said
    with np.load(tmp_path / "loaded.npz") as loaded:
        sample, label = loaded["sample"], loaded["label"]
    assert sample.dtype == np.float32 and label.dtype == np.float64
    found = 0
    for path in tmp_path.glob("made-*[0-9].npz"):
        with np.load(path) as made:
            found += bool((made["lab"] == label).all() and (made["img"].astype(np.float32) == sample).all())
    assert found == 1
    assert not list(tmp_path.glob("*.tmp.npz"))


def test_tutorial_keeps_the_generated_floats_exactly(tmp_path, script):
    run_the_tutorial(tmp_path, script, CONFIG)
    assert (tmp_path / "unit-test.ring").is_dir()


def test_wireheads_unit_example_needs_no_manager(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    img, lab = np.random.rand(256), np.random.rand(256)
    summary = WireheadGenerator(generator=((img, lab) for _ in range(10)), config_path=str(path), n_samples=10).run(
        verbose=True
    )
    assert summary.finished == 10
    dataset = MongoTupleheadDataset(config_path=str(path), timeout=5)
    for i in range(20):
        data = dataset[[i % 10]]
        sample, label = data[0][0], data[0][1]
        assert (np.asarray(label) == lab).all() and (np.asarray(sample) == img.astype(np.float32)).all()


@pytest.fixture
def made(tmp_path):
    """Makes a Wirehead configuration and a ring of `count` numbered pairs."""

    def make(count=6, start=0, more="", promote=True):
        path = tmp_path / "config.yaml"
        if not path.exists():
            path.write_text(CONFIG + "POLL_SECONDS: 0.02\nLEASE_SECONDS: 0.5\n" + more)
        pairs = [(np.full(3, start + n, np.int16), np.full(2, -start - n, np.float64)) for n in range(count)]
        add(ringreel.Ring(path), pairs, promote)
        return str(path)

    return make


def test_indices_give_a_dict_by_index_as_given(made):
    dataset = MongoheadDataset(made())
    assert len(dataset) == 6
    for batch in ([4, 1], (4, 1), np.array([4, 1]), np.array([4, 1], np.uint8), iter([4, 1])):
        found = dataset[batch]
        assert list(found) == [4, 1]
        for index in (4, 1):
            assert np.asarray(found[index]["input"]).tolist() == [index] * 3
            assert np.asarray(found[index]["label"]).tolist() == [-index] * 2
    assert list(dataset[1:4]) == [1, 2, 3] and list(dataset[range(2)]) == [0, 1]
    assert np.asarray(dataset[[-1]][-1]["input"]).tolist() == [5] * 3


def test_an_index_gives_the_sample_itself(made):
    path = made()
    for index in (2, np.int64(2), np.array(2), -4):
        assert np.asarray(MongoheadDataset(path)[index]["input"]).tolist() == [2, 2, 2]
        data, label = MongoTupleheadDataset(path)[index]
        assert np.asarray(data).tolist() == [2, 2, 2] and np.asarray(label).tolist() == [-2, -2]


def test_tuple_dataset_gives_a_list_in_the_requested_order(made):
    found = MongoTupleheadDataset(made())[[5, 0, 5]]
    assert type(found) is list and all(type(pair) is tuple for pair in found)
    assert [int(data[0]) for data, _ in found] == [5, 0, 5]


@pytest.mark.parametrize("index", [6, -7, [0, 6]])
def test_index_beyond_the_end_is_an_index_error(made, index):
    with pytest.raises(IndexError, match="the generation has 6"):
        MongoheadDataset(made())[index]


def test_inputs_are_float32_and_labels_keep_their_type(made):
    sample = MongoheadDataset(made())[0]
    assert str(sample["input"].dtype).endswith("float32") and str(sample["label"].dtype).endswith("float64")


def test_samples_are_private_and_writable(made):
    dataset = MongoheadDataset(made())
    for _ in range(3):
        sample = dataset[1]
        assert np.asarray(sample["input"]).tolist() == [1, 1, 1] and np.asarray(sample["label"]).tolist() == [-1, -1]
        sample["input"] += 5
        sample["label"] *= 0


def test_samples_are_numpy_arrays_without_torch(made, monkeypatch):
    monkeypatch.setattr(ringreel.wirehead.dataset, "_HAS_TORCH", False)
    sample = MongoheadDataset(made())[1]
    assert type(sample["input"]) is np.ndarray and sample["input"].dtype == np.float32
    assert type(sample["label"]) is np.ndarray and sample["label"].flags.writeable


def test_samples_are_tensors_with_torch(made):
    torch = pytest.importorskip("torch", reason="torch is not installed: Wirehead's tensors are NOT tested")
    dataset = MongoheadDataset(made())
    sample = dataset[torch.tensor(1)]
    assert sample["input"].dtype == torch.float32 and sample["label"].dtype == torch.float64
    assert list(dataset[torch.tensor([1])]) == [1]


def test_transform_and_normalize_are_applied(made):
    path = made()
    sample = MongoheadDataset(path, transform=lambda x: x + 1, normalize=lambda x: x * 10)[2]
    assert np.asarray(sample["input"]).tolist() == [30] * 3 and np.asarray(sample["label"]).tolist() == [-1] * 2
    for normalize in (ringreel.wirehead.unit_interval_normalize, ringreel.wirehead.quantile_normalize):
        value = np.linspace(3, 9, 101)
        done = normalize(value)
        low, high = (0, 100) if normalize is ringreel.wirehead.unit_interval_normalize else (1, 99)
        assert abs(done[low]) < 1e-6 and abs(done[high] - 1) < 1e-6


def test_binary_to_tensor_loads_bytes_only(made, config):
    torch = pytest.importorskip("torch", reason="torch is not installed: binary_to_tensor is NOT tested")
    load = ringreel.wirehead.binary_to_tensor
    assert MongoheadDataset(made(), transform=load)[2]["input"].tolist() == [2] * 3
    saved = [io.BytesIO(), io.BytesIO()]
    for value, file in enumerate(saved):
        torch.save(torch.full((2,), value, dtype=torch.uint8), file)
    keys = config(SAMPLE=["data", "label"], RING=config()["RING"] + "-of-bytes")
    add(ringreel.Ring(keys), [tuple(file.getvalue() for file in saved)])
    data, label = MongoTupleheadDataset(keys, transform=load)[0]
    assert (data.tolist(), label.tolist()) == ([0, 0], [1, 1]) and label.dtype == torch.uint8


def test_dataset_switches_to_the_newest_generation(made):
    path = made(10)
    dataset = MongoheadDataset(path)
    made(10, start=100)
    assert int(dataset[0]["input"][0]) == 100
    made(3, start=200)  # promoted before it was full: it has no sample 9
    assert int(dataset[9]["input"][0]) == 109
    made(10, start=300)
    made(10, start=400)
    assert int(dataset[9]["input"][0]) == 409 and len(dataset) == 10


@pytest.mark.parametrize("keeptrying", [True, False])
def test_reclaimed_sample_is_read_from_the_newest_or_is_an_error(made, keeptrying, monkeypatch):
    path = made(10, more="KEEP: 0\n")
    dataset = MongoheadDataset(path, keeptrying=keeptrying)
    made(10, start=100)
    monkeypatch.setattr(MongoheadDataset, "_advance", lambda self: None)  # as if it happened right after the lookup
    if keeptrying:
        assert int(dataset[4]["input"][0]) == 104
    else:
        with pytest.raises(ringreel.ReclaimedError):
            dataset[4]


def test_first_two_names_are_input_and_label(config):
    keys = config(SAMPLE=["t1", "seg", "age"])
    ring = ringreel.Ring(keys)
    add(ring, [{"t1": 1, "seg": 2, "age": 3}])
    assert [int(x) for x in MongoTupleheadDataset(keys)[0]] == [1, 2]
    assert [int(x) for x in MongoTupleheadDataset(collection=ring, sample=("age", "t1"))[0]] == [3, 1]
    assert int(MongoheadDataset(collection=keys, sample=("seg", "age"))[0]["label"]) == 3


def test_sample_of_one_part_is_an_error(filled):
    with pytest.raises(ringreel.ConfigError, match="expected at least 2 parts, an input and a label"):
        MongoheadDataset(collection=filled([{"data": 1}]), sample=("data",))[0]


def test_dataset_waits_for_data_and_logs_it(tmp_path, capsys, made):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG + "POLL_SECONDS: 0.02\n")
    with pytest.raises(TimeoutError, match="a ring at"):
        MongoheadDataset(str(path), timeout=0.1)
    later = threading.Timer(0.3, made, (10,))
    later.start()
    assert len(MongoheadDataset(str(path), timeout=20)) == 10
    later.join()


@pytest.mark.parametrize("kind", [MongoheadDataset, WireheadManager, lambda path: WireheadGenerator([], path)])
def test_missing_configuration_file_is_an_error(kind, tmp_path):
    with pytest.raises(ringreel.ConfigError, match=r"no\.yaml: cannot read"):
        kind(str(tmp_path / "no.yaml"))


def test_missing_config_path_is_an_error_that_says_what_to_pass():
    with pytest.raises(ringreel.ConfigError, match="pass config_path"):
        MongoheadDataset()
    with pytest.raises(ringreel.ConfigError, match="expected a path or a dict, found int"):
        MongoheadDataset(collection=5)


def test_a_dataset_can_be_pickled(made):
    dataset = pickle.loads(pickle.dumps(MongoheadDataset(made())))
    assert int(dataset[3]["input"][0]) == 3


def test_verbose_logs_a_line_per_sample(tmp_path, script):
    (tmp_path / "config.yaml").write_text(CONFIG)
    process = script("""
        import numpy as np
        from ringreel.wirehead import WireheadGenerator
        WireheadGenerator(((np.zeros(3), np.zeros(3)) for _ in range(4)), "config.yaml").run(verbose=True)
    """)
    assert process.end() == 0
    assert all(f"INFO sample {n}" in process.said for n in range(4)) and os.path.isdir(tmp_path / "unit-test.ring")
    until(lambda: "4 samples are finished" in process.said)


WITHOUT_SERVER = {"SAMPLE": ["data", "label"], "DBNAME": "test", "MONGOHOST": "127.0.0.1"}


def a_port_without_server():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def test_error_of_a_missing_server_says_how_to_run_without(config):
    keys = config(**WITHOUT_SERVER, PORT=a_port_without_server())
    hint = "to run without a server, put INDEX: files into the configuration"
    for run in (
        WireheadGenerator([], keys).run_generator,
        WireheadGenerator([], keys).run,
        WireheadManager(keys).run_manager,
    ):
        with pytest.raises(ringreel.CoordinationUnavailableError, match=hint):
            run()


@pytest.mark.parametrize("begun", [False, True], ids=["no ring", "no generation"])
def test_dataset_that_waits_names_a_missing_server(config, caplog, begun):
    """Without a server no generator can create the ring, so the messages name the server, and no generator."""
    caplog.set_level("INFO", "ringreel")
    keys, port = config(SAMPLE=["data", "label"]), a_port_without_server()
    if begun:
        add(ringreel.Ring({**keys, "INDEX": "files"}), [(1, 2)], promote=False)
    keys |= {"MONGOURI": f"mongodb://me:s3cr3tWord@127.0.0.1:{port}/admin", "DBNAME": "test"}
    # In 4 s the server is tried again, which must not replace the cause by a worse one.
    for timeout, wait in (
        (0.1, lambda: next(ringreel.Ring(keys).stream(timeout=0.1))),
        (4, lambda: MongoheadDataset(keys, timeout=4)),
    ):
        caplog.clear()
        with pytest.raises(TimeoutError) as raised:
            wait()
        waits = [record.getMessage() for record in caplog.records if record.getMessage().startswith("waiting for")]
        for message in (str(raised.value), *waits):
            assert f"MongoDB at 127.0.0.1:{port}" in message and "nothing listens at" in message
            assert "no generator" not in message and begun == ("1 of 4 samples are written" in message)
            assert begun or "with INDEX: files, no server is needed" in message
        assert waits and str(raised.value).startswith(f"timed out after {timeout}")
        assert "s3cr3tWord" not in caplog.text + str(raised.value)
