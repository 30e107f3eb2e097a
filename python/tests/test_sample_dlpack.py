"""DLPack: NumPy, JAX and TensorFlow import parts of each element type that they support."""

import os

import numpy as np
import pytest
from test_dtypes import NUMBERS, bits, same

import ringreel

OLD_NUMPY = np.lib.NumpyVersion(np.__version__) < "2.1.0"
SHAPES = [(), (0, 3), (7,), (3, 5), (300, 401)]


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax", reason="jax is not installed: DLPack into JAX is NOT tested")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)  # without it, JAX converts 64 bits to 32
    yield jax
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip("tensorflow", reason="tensorflow is not installed: DLPack into it is NOT tested")


def every_type():
    """Returns arrays of each type of number in several shapes, so that they are at many offsets of a file."""
    return [bits(dtype, shape) for dtype in NUMBERS for shape in SHAPES]


@pytest.fixture(params=["mmap", "pread"])
def samples(request, filled):
    """Samples with these arrays, many in one file."""
    ring = filled([{"data": array} for array in every_type()], SEGMENT_SAMPLES=16, READ=request.param)
    return list(ring.dataset())


def exported(part):
    """Returns NumPy's import of a part, also in versions that cannot import bool."""
    if part.dtype == "bool" and np.lib.NumpyVersion(np.__version__) < "1.25.0":
        return np.asarray(part)
    return np.from_dlpack(part)


def test_numpy_imports_every_type_bit_for_bit(samples):
    for sample in samples:
        found = exported(sample.dlpack("data"))
        assert same(found, sample["data"])
        if found.size:
            assert not np.shares_memory(found, sample["data"])


def test_export_is_aligned_so_that_it_is_not_copied_again(samples):
    for sample in samples:
        if sample["data"].size and sample["data"].dtype != bool:
            assert np.from_dlpack(sample.dlpack("data")).ctypes.data % 64 == 0, sample


@pytest.mark.skipif(OLD_NUMPY, reason="this NumPy takes whatever it imports by DLPack for read-only")
def test_export_is_a_private_writable_copy(filled):
    dataset = filled([{"data": np.arange(40_000)}]).dataset()
    sample = dataset[0]
    part = sample.dlpack("data")
    np.from_dlpack(part)[:] = 0
    for other in (sample["data"], np.from_dlpack(part), dataset[0]["data"]):
        assert (other == np.arange(40_000)).all()


@pytest.mark.skipif(OLD_NUMPY, reason="this NumPy knows no versions of DLPack")
def test_export_has_the_version_that_the_consumer_supports(filled):
    part = filled([{"data": np.arange(3)}]).dataset()[0].dlpack("data")
    assert '"dltensor"' in repr(part.__dlpack__()) and '"dltensor"' in repr(part.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(part.__dlpack__(max_version=(1, 0)))


def test_jax_imports_every_type_bit_for_bit(jax, samples):
    for sample in samples:
        for found in (jax.numpy.from_dlpack(sample.dlpack("data")), jax.dlpack.from_dlpack(sample.dlpack("data"))):
            assert same(np.asarray(found), sample["data"])


def test_jax_does_not_copy_an_export_again(jax, filled, monkeypatch):
    sample = filled([{"data": np.arange(100_000.0), "small": np.arange(3)}], SEGMENT_SAMPLES=1).dataset()[0]
    exports = []
    aligned = ringreel.Tensor._aligned
    monkeypatch.setattr(ringreel.Tensor, "_aligned", lambda self: exports.append(aligned(self)) or exports[-1])
    for name in sample:
        found = jax.numpy.from_dlpack(sample.dlpack(name))
        assert found.unsafe_buffer_pointer() == exports.pop().ctypes.data


def test_jax_keeps_what_it_imported(jax, filled):
    dataset = filled([{"data": np.arange(100_000.0)}]).dataset()
    found = jax.numpy.from_dlpack(dataset[0].dlpack("data"))
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    assert (np.asarray(step(found)) == np.arange(1, 100_001)).all()
    assert (dataset[0]["data"] == np.arange(100_000)).all()


def test_jax_shares_a_large_array_without_dlpack(jax, filled):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = {"data": np.arange(100_000, dtype=np.float32), "half": np.ones(100_000, ml_dtypes.bfloat16)}
    dataset = filled([arrays]).dataset()
    sample = dataset[0]
    found = jax.device_put(dict(sample))
    for name, want in arrays.items():
        assert found[name].dtype == want.dtype and (np.asarray(found[name]) == want).all()
        assert found[name].unsafe_buffer_pointer() == sample[name].ctypes.data, "it was copied"
    changed = jax.jit(lambda x: x * 0, donate_argnums=0)(found["data"])
    assert not np.asarray(changed).any() and (sample["data"] == arrays["data"]).all()


def test_tensorflow_imports_every_type_bit_for_bit(tensorflow, samples):
    for sample in samples:
        found = tensorflow.experimental.dlpack.from_dlpack(sample.dlpack("data").__dlpack__())
        assert same(found.numpy() if found.shape.rank else np.asarray(found.numpy()), sample["data"])


def test_tensorflow_takes_bfloat16_without_dlpack(tensorflow, filled):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    found = tensorflow.convert_to_tensor(filled([{"data": array}]).dataset()[0]["data"])
    assert found.dtype == tensorflow.bfloat16 and same(found.numpy(), array)
