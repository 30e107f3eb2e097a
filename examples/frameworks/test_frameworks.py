"""The programs of this folder: stopped and started again, they read each sample of an epoch once."""

import ast
import glob
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STEP = re.compile(r"rank (\d+) step (\d+) loss \S+ samples ((?:\d+:\d+ ?)+)")
# Catches a program that hangs.
SECONDS = 300

# Debian's torch 1.13 calls itself a pre-release, which Lightning takes for an older version, and its sharded tensors
# cannot be imported with Python 3.11.
DEBIAN = """
import sys, types
import torch
if torch.__version__ == "1.13.0a0":
    torch.__version__ = "1.13.0"
    sharded = types.ModuleType("torch.distributed._shard.sharded_tensor")
    sharded.pre_load_state_dict_hook = sharded.state_dict_hook = lambda *args, **kwargs: None
    sys.modules["torch.distributed._shard"] = types.ModuleType("torch.distributed._shard")
    sys.modules[sharded.__name__] = sharded
"""


def needs(*packages):
    """Skips the test if a package is missing. Does not import the packages, which takes many seconds."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: this example is NOT tested")


# A generation that is complete before the second start. A position continues in the generation before it.
ADD = """
import numpy as np, ringreel
image = np.zeros((1, 16, 16, 16), np.float32)
ringreel.run_generator([{"image": image, "mask": image.astype(np.uint8), "label": np.int64(0)}] * 32, "config.yaml")
"""


def run(folder, *command, **variables):
    """Runs Python in a folder and returns its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "KMP_WARNINGS": "0", **variables}
    # Each rank writes to the same pipe; with a buffer, each line is written at once.
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, timeout=SECONDS,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def steps_of(output):
    """Returns the samples that each rank trained on in each step."""
    return {(int(step), int(rank)): samples.split() for rank, step, samples in STEP.findall(output)}


def check(first, second, saved, ranks, steps):
    """Checks that the second start continued after step `saved`, and that each epoch has each sample once."""
    assert min(first) == (1, 0) and min(second) == (saved + 1, 0) and max(second) == (steps, ranks - 1)
    for key in first.keys() & second.keys():
        assert first[key] == second[key], f"step and rank {key}"
    whole = {**first, **second}
    length = 32 // (4 * ranks)
    for epoch in range(steps // length):
        read = [
            sample
            for step in range(epoch * length + 1, epoch * length + length + 1)
            for rank in range(ranks)
            for sample in whole[step, rank]
        ]
        assert len(read) == len(set(read)) == 32, f"epoch {epoch}"
        assert len({sample.split(":")[0] for sample in read}) == 1, f"epoch {epoch}: one generation"


@pytest.fixture
def folder(tmp_path):
    """A folder with a ring of two generations of 32 samples."""
    run(tmp_path, HERE / "generate.py")
    return tmp_path


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_resumes_with_the_next_sample(folder, ranks):
    needs("torch", "lightning")
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(DEBIAN)
    path = f"{site}:{os.environ.get('PYTHONPATH', '')}"

    def start(steps):
        options = ["--devices", ranks, "--steps", steps, "--save-every", 2]
        return steps_of(run(folder, HERE / "lightning_train.py", *options, PYTHONPATH=path))

    first = start(3)
    run(folder, "-c", ADD)
    second = start(8)
    saved = min(second)[0] - 1
    assert saved in (2, 3)  # some versions of Lightning also save when max_steps is reached
    check(first, second, saved=saved, ranks=ranks, steps=8)


@pytest.mark.parametrize("ranks", [1, 2])
def test_hf_trainer_resumes_with_the_next_sample(folder, ranks):
    needs("torch", "torchdata", "transformers", "accelerate")

    def start(steps):
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
        return steps_of(run(folder, *launch, HERE / "hf_train.py", "--steps", steps, "--save-every", 3))

    # Trainer also saves after the last step, so the second start has nothing to repeat.
    first = start(5)
    run(folder, "-c", ADD)
    check(first, start(8), saved=5, ranks=ranks, steps=8)


def test_monai_trains_on_each_sample_of_an_epoch(folder):
    needs("torch", "monai")
    first, second = (steps_of(run(folder, HERE / "monai_train.py", "--epochs", epochs)) for epochs in (1, 2))
    check(first, second, saved=8, ranks=1, steps=16)
    assert [first[step, 0] for step in range(1, 9)] != [second[step, 0] for step in range(9, 17)]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_resumes_with_the_next_sample(folder, backend):
    needs("keras", backend)

    def start(steps):
        options = ["--steps", steps, "--save-every", 1]
        return steps_of(run(folder, HERE / "keras_train.py", *options, KERAS_BACKEND=backend, JAX_PLATFORMS="cpu"))

    first = start(1)  # Keras has read two batches then
    run(folder, "-c", ADD)
    check(first, start(16), saved=1, ranks=1, steps=16)


def test_jax_resumes_with_the_next_sample(folder):
    needs("jax")

    def start(steps):
        return steps_of(run(folder, HERE / "jax_train.py", "--steps", steps, "--save-every", 4, JAX_PLATFORMS="cpu"))

    first = start(6)
    run(folder, "-c", ADD)
    check(first, start(16), saved=4, ranks=1, steps=16)


def logged_by_tensorboard(folder):
    """Returns the steps and values of each metric in the files of TensorBoard."""
    script = """
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("runs").Reload()
print(json.dumps({name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}))
"""
    return json.loads(run(folder, "-c", script).splitlines()[-1])


def logged_by_wandb(folder):
    """Returns the steps and values of each metric in the file of an offline run, a log in the format of LevelDB."""
    script = """
import json, struct, sys
from wandb.proto.wandb_internal_pb2 import Record

def records(data, at=7, record=b""):
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:  # the end of a block
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last fragment
            yield record
            record = b""

found = {}
for data in records(open(sys.argv[1], "rb").read()):
    record = Record.FromString(data)
    values = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
    for name, value in values.items():
        found.setdefault(name, []).append((record.history.step.num, value))
print(json.dumps(found))
"""
    (path,) = glob.glob(f"{folder}/wandb/offline-run-*/*.wandb")
    return json.loads(run(folder, "-c", script, path).splitlines()[-1])


def logged_by_mlflow(folder):
    """Returns the steps and values of each metric in MLflow's store."""
    script = """
import json, mlflow
(run,) = mlflow.search_runs(output_format="list")
client = mlflow.MlflowClient()
names = run.data.metrics
print(json.dumps({n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)] for n in names}))
"""
    return json.loads(run(folder, "-c", script).splitlines()[-1])


@pytest.mark.parametrize(
    ("tracker", "package", "logged"),
    [
        ("tensorboard", "tensorboard", logged_by_tensorboard),
        ("wandb", "wandb", logged_by_wandb),
        ("mlflow", "mlflow", logged_by_mlflow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_stats_are_logged(folder, tracker, package, logged):
    needs(package)
    if tracker == "tensorboard":
        needs("torch")
    run(folder, HERE / "log_stats.py", "--to", tracker, "--steps", 40, WANDB_MODE="offline")
    found = logged(folder)
    for name in ("waited_seconds", "read_seconds", "starved", "age_seconds", "generation"):
        assert [step for step, _ in found[f"ring/{name}"]] == [10, 20, 30, 40]
    assert [value for _, value in found["ring/generation"]] == [2, 2, 2, 2]
    assert all(0 <= value < 1 for _, value in found["ring/starved"])


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.name)
def test_programs_need_no_newer_python_than_ringreel(path):
    """They are written for Python 3.9, which lacks ``zip(..., strict=...)``."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    zips = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "zip"]
    assert not [each.lineno for each in zips if each.keywords]
