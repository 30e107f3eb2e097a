"""The generator for SynthSeg, with a stand-in for SynthSeg; and with the real one, if an interpreter can import it.

To test with the real one, name an interpreter with its environment, and a clone:

    SYNTHSEG_PYTHON=~/synthseg-env/bin/python SYNTHSEG=~/SynthSeg python -m pytest examples/synthseg

It then makes two samples, which takes several minutes on a CPU.
"""

import ast
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import ringreel

HERE = Path(__file__).resolve().parent
# Catches a program that hangs.
SECONDS = 900
CONFIG = "RING: ring\nSAMPLE: [image, label]\nSWAP_CAP: 4\nKEEP: 100\nCOMPRESS: {label: auto}\n"
STARTED = []
# FreeSurfer's values of the labels that the stand-in generates, and the values that training is to predict.
GENERATED, PREDICTED = [0, 24, 2, 3, 41, 42], [0, 0, 2, 3, 41, 42]

# BrainGenerator with the parameters, shapes and dtypes of SynthSeg's. It prints, as `predict` of Keras does, and calls
# a layer twice, as Keras after 2.3 does. The value 42 is in one voxel: the lowest, last to the left and back.
STAND_IN = {
    "SynthSeg/__init__.py": "",
    "SynthSeg/brain_generator.py": """
        import os
        import numpy as np
        from ext.lab2im.layers import SampleResolution


        class BrainGenerator:
            aff = "left, down, front"

            def __init__(self, labels_dir, generation_labels=None, n_neutral_labels=None, output_labels=None,
                         batchsize=1, n_channels=1, output_shape=None, generation_classes=None):
                assert os.listdir(labels_dir) == ["training_seg_01.nii.gz"]
                generated, classes = np.load(generation_labels), np.load(generation_classes)
                assert generated.shape == classes.shape == output_labels.shape and n_neutral_labels == 18
                self.shape, self.labels, self.layer = (output_shape,) * 3, output_labels, SampleResolution()

            def generate_brain(self):
                for _ in range(2):
                    self.layer.call(None, training=False)
                print("1/1 [==============================] - 0s 9ms/step", flush=True)
                label = np.random.choice(self.labels[:-1], self.shape).astype(np.int32)
                label[-1, -1, 0] = self.labels[-1]
                return (label / 64).astype(np.float32), label
        """,
    "ext/__init__.py": "",
    "ext/lab2im/__init__.py": "",
    "ext/lab2im/edit_volumes.py": """
        def align_volume_to_ref(volume, aff, aff_ref=None):
            assert aff == "left, down, front" and aff_ref is None
            return volume[::-1, ::-1].swapaxes(1, 2)
        """,
    "ext/lab2im/layers.py": """
        class SampleResolution:
            min_res_tens = "without a batch axis"

            def call(self, inputs, **kwargs):
                assert self.min_res_tens == "without a batch axis"
                self.min_res_tens = "with a batch axis"
        """,
}


@pytest.fixture
def clone(tmp_path):
    """A stand-in for a clone of SynthSeg: modules, label maps and priors."""
    clone = tmp_path / "SynthSeg"
    for name, text in STAND_IN.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(textwrap.dedent(text))
    priors, maps = clone / "data" / "labels_classes_priors", clone / "data" / "training_label_maps"
    priors.mkdir(parents=True)
    maps.mkdir()
    (maps / "training_seg_01.nii.gz").touch()
    np.save(priors / "generation_labels.npy", np.array(GENERATED))
    np.save(priors / "generation_classes.npy", np.arange(len(GENERATED)))
    np.save(priors / "synthseg_segmentation_labels.npy", np.array(PREDICTED))
    return clone


@pytest.fixture
def here(tmp_path):
    """A directory with a configuration."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def environment(clone):
    """The variables with which the generator finds a clone, and the command ringreel of this interpreter."""
    return {**os.environ, "PYTHONPATH": str(clone), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture(autouse=True)
def no_process_is_left():
    """Ends what a failed test has left running; `put` ends when its stdin is closed."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()


def start(here, clone, *options, python=sys.executable, name="generator"):
    """Starts a generator, with a file for what it prints."""
    command = [python, str(HERE / "generator.py"), "--data", str(clone / "data"), *options]
    with (here / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=here, env=environment(clone), stdout=log, stderr=log)
    STARTED.append(process)
    return process


def ids_of(here, name="generator"):
    """The ids of finished samples in what a generator and its `put` have printed, between other text."""
    return re.findall(r"[0-9a-f]{32}\.\d+", (here / f"{name}.log").read_text())


def wait_for_samples(here, process):
    """Waits until the process has printed six ids."""
    deadline = time.monotonic() + SECONDS
    while len(ids_of(here)) < 6:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)


def delivered(here):
    """All samples of the ring, after the last generation was made readable."""
    promote = [sys.executable, "-m", "ringreel", "promote", "-c", "config.yaml"]
    subprocess.run(promote, cwd=here, capture_output=True, check=False)  # fails if no sample is left
    ring = ringreel.Ring(here / "config.yaml")
    generations = range(1, ring.status()["newest"] + 1)
    return [sample for generation in generations for sample in ring.dataset(generation=generation)]


def assert_put_ended_in_order(here):
    """Checks that `put` has left the ring, and that each sample of the ring has a printed id."""
    log = (here / "generator.log").read_text()
    assert "generator ended" in log, log
    assert sorted(sample.sample_id for sample in delivered(here)) == sorted(ids_of(here))


def test_samples_of_two_generators_arrive(here, clone):
    """Text that SynthSeg and Keras print does not get into the stream, and a layer can be called twice."""
    names = ["first", "second"]
    generators = [start(here, clone, "--shape", "12", "-n", "5", name=name) for name in names]
    assert [generator.wait(SECONDS) for generator in generators] == [0, 0], (here / "first.log").read_text()
    ids = [id for name in names for id in ids_of(here, name)]
    samples = delivered(here)
    assert sorted(sample.sample_id for sample in samples) == sorted(ids) and len(set(ids)) == 10
    for sample in samples:
        image, label = sample["image"], sample["label"]
        assert image.shape == label.shape == (12, 12, 12)
        assert image.dtype == np.float32 and label.dtype == np.uint8 and set(np.unique(label)) == set(range(5))
        assert np.argwhere(label == 4).tolist() == [[0, 0, 0]]
        # The image was made of the values that the classes stand for.
        assert (np.unique(PREDICTED)[label] == image * 64).all()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signal_ends_generator_with_its_samples(here, clone, number):
    """The generator ends after `put`, which has finished what it received."""
    generator = start(here, clone, "--shape", "12")
    wait_for_samples(here, generator)
    generator.send_signal(number)
    assert generator.wait(SECONDS) == 0
    assert_put_ended_in_order(here)


def test_refused_configuration_ends_generator(here, clone):
    """The error is that of `put`, and no traceback of the generator."""
    (here / "config.yaml").write_text(CONFIG + "SWAP_CAPACITY: 4\n")
    command = [sys.executable, str(HERE / "generator.py"), "--data", str(clone / "data"), "--shape", "12"]
    done = subprocess.run(
        command, cwd=here, env=environment(clone), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 2 and "SWAP_CAPACITY" in done.stderr and "Traceback" not in done.stderr


def test_job_requeues_itself_before_its_time_limit(here, clone):
    """The batch script, at USR1: the generator ends with its samples, and only this task of the array is requeued."""
    tools = here / "tools" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f'PATH={tools}:"$PATH"\n')
    for name, script in {"python": f'exec {sys.executable} "$@"', "scontrol": 'echo "$@" >>requeued'}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    for name in ("generator.py", "newer_keras.py"):
        (here / name).write_text((HERE / name).read_text())
    variables = {
        "SYNTHSEG_VENV": str(here / "tools"), "SYNTHSEG": str(clone), "VENV": str(Path(sys.executable).parent.parent),
        "OPTIONS": "--shape 12", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3",
    }  # fmt: skip
    with (here / "generator.log").open("w") as log:
        command = ["bash", str(HERE / "generators.sbatch")]
        job = subprocess.Popen(command, cwd=here, env={**environment(clone), **variables}, stdout=log, stderr=log)
    wait_for_samples(here, job)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(SECONDS) == 0 and (here / "requeued").read_text() == "requeue 70_3\n"
    assert_put_ended_in_order(here)


@pytest.mark.parametrize("name", ["generator.py", "newer_keras.py"])
def test_program_needs_no_newer_python_than_synthseg(name):
    """SynthSeg's requirements are for Python 3.6 and 3.8."""
    ast.parse((HERE / name).read_text(), feature_version=(3, 6))


def test_synthseg_writes_samples(here):
    """The real SynthSeg, if there is an interpreter that can import it."""
    python = os.environ.get("SYNTHSEG_PYTHON", sys.executable)
    found = "import SynthSeg, os; print(os.path.dirname(os.path.dirname(SynthSeg.__file__)))"
    clone = os.environ.get("SYNTHSEG", "")
    done = subprocess.run([python, "-c", found], env=environment(clone), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("SynthSeg cannot be imported; SYNTHSEG and SYNTHSEG_PYTHON name a clone and an interpreter")
    clone = Path(done.stdout.splitlines()[-1])
    generator = start(here, clone, "--shape", "64", "-n", "2", python=python)
    assert generator.wait(SECONDS) == 0
    first, second = delivered(here)
    assert {first.sample_id, second.sample_id} == set(ids_of(here))
    for sample in (first, second):
        image, label = sample["image"], sample["label"]
        assert image.shape == label.shape == (64, 64, 64)
        assert image.dtype == np.float32 and label.dtype == np.uint8 and label.max() <= 31
        assert np.isfinite(image).all() and 0 <= image.min() < image.max() <= 1
    assert (first["image"] != second["image"]).any()
