"""`ringreel.image` against `mxnet.io.ImageRecordIter` of MXNet 1.9.1, which runs in an interpreter of its own.

Where nothing is random, records, batches and labels are the same. Pixels of PNG files, of which both decode the same
bytes, are equal but for the rounding that a case names. Pixels of JPEG files differ by the decoders' rounding, too: by
at most JPEG_BOUND, and by JPEG_MEAN in the mean.
"""

import json
import subprocess

import numpy as np
import pytest
from conftest import zip_equal
from image_files import write
from test_recordio_mxnet import mxnet_python

from ringreel import image

# Of 255.
JPEG_BOUND = 8
JPEG_MEAN = 0.5


@pytest.fixture(autouse=True)
def needed():
    reason = mxnet_python()[1]
    if reason is not None:
        pytest.skip(f"ringreel.image is NOT compared with MXNet: {reason}")


EPOCHS = """
import json, sys
import mxnet as mx
import numpy as np

found = {}
for number, case in enumerate(json.loads(sys.argv[1])):
    batches = mx.io.ImageRecordIter(verbose=False, **case)
    for epoch in range(2):
        for n, batch in enumerate(batches):
            key = f"{number}.{epoch}.{n}"
            found[key + ".data"] = batch.data[0].asnumpy()
            found[key + ".label"] = batch.label[0].asnumpy()
            found[key + ".pad"] = np.int64(batch.pad)
        batches.reset()
    described = [list(it) + [np.dtype(it.dtype).name, it.layout] for it in batches.provide_data + batches.provide_label]
    found[f"{number}.provided"] = np.array(json.dumps(described))
np.savez(sys.argv[2], **found)
"""


def by_mxnet(directory, cases):
    """Of each case the batches of two epochs: data, label, pad; and what it provides."""
    path = directory / "mxnet.npz"
    code = [mxnet_python()[0], "-c", EPOCHS, json.dumps(cases), str(path)]
    done = subprocess.run(code, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(path) as found:
        return dict(found)


def by_ours(cases):
    found = {}
    for number, case in enumerate(cases):
        batches = image.ImageRecordIter(**case)
        for epoch in range(2):
            for n, batch in enumerate(batches):
                key = f"{number}.{epoch}.{n}"
                found[key + ".data"] = batch.data[0].copy()
                found[key + ".label"] = batch.label[0]
                found[key + ".pad"] = np.int64(batch.pad)
            batches.reset()
        provided = batches.provide_data + batches.provide_label
        described = [[it.name, it.shape, np.dtype(it.dtype).name, it.layout] for it in provided]
        found[f"{number}.provided"] = np.array(json.dumps(described))
    return found


# Each with the largest difference of a pixel of PNG files, of 255.
CASES = [
    ({}, 0),
    ({"batch_size": 5, "preprocess_threads": 1}, 0),
    ({"data_shape": (3, 20, 31)}, 0),
    ({"data_shape": (3, 60, 60)}, 0),
    ({"data_shape": (1, 32, 32)}, 0),
    ({"resize": 32}, 0),
    ({"resize": 45, "data_shape": (3, 40, 45)}, 0),
    ({"resize": 90}, 0),
    ({"mirror": True, "resize": 40}, 0),
    ({"dtype": "uint8", "pad": 4, "fill_value": 9}, 0),
    ({"mean_r": 123.68, "mean_g": 116.78, "mean_b": 103.94, "std_r": 58.4, "std_g": 57.1, "std_b": 57.4}, 1e-4),
    ({"scale": 1 / 255, "mean_g": 7.5}, 1e-6),
    ({"pad": 10, "fill_value": 128, "data_shape": (3, 50, 50)}, 0),
    ({"inter_method": 0, "resize": 50}, 0),
    ({"inter_method": 2, "resize": 60, "data_shape": (3, 50, 50)}, 1),
    ({"inter_method": 3, "resize": 33}, 0),
    ({"inter_method": 9, "resize": 34}, 0),
    ({"rotate": 30, "fill_value": 0}, 0),
    ({"rotate": 90, "data_shape": (3, 36, 33)}, 0),
    ({"max_random_scale": 0.75, "min_random_scale": 0.75, "data_shape": (3, 24, 24)}, 0),
    ({"max_crop_size": 30, "min_crop_size": 30}, 0),
    ({"num_parts": 3, "part_index": 0, "batch_size": 2}, 0),
    ({"num_parts": 3, "part_index": 1, "batch_size": 2}, 0),
    ({"num_parts": 3, "part_index": 2, "batch_size": 2}, 0),
    ({"num_parts": 3, "part_index": 2, "batch_size": 2, "path_imgidx": True}, 0),
    ({"path_imglist": True, "label_width": 2}, 0),
]


def compare(tmp_path, kind, **options):
    """The largest and the mean difference of the pixels of each case."""
    path = tmp_path / "x.rec"
    write(path, 10, kind, **options)
    (tmp_path / "x.lst").write_text("".join(f"{n}\t{n + 100}\t{n / 2}\tx\n" for n in range(10)))
    cases = []
    for given, _ in CASES:
        case = {"path_imgrec": str(path), "data_shape": (3, 32, 32), "batch_size": 4, **given}
        if "path_imgidx" in given:
            case["path_imgidx"] = str(tmp_path / "x.idx")
        if "path_imglist" in given:
            case["path_imglist"] = str(tmp_path / "x.lst")
        cases.append(case)
    theirs, ours = by_mxnet(tmp_path, cases), by_ours(cases)
    assert theirs.keys() == ours.keys()
    differences = []
    for number, case in enumerate(cases):
        keys = [key for key in ours if key.startswith(f"{number}.")]
        for key in keys:
            if not key.endswith(".data"):
                assert np.array_equal(ours[key], theirs[key]), (case, key, ours[key], theirs[key])
        data = [key for key in keys if key.endswith(".data")]
        assert data and all(ours[key].dtype == theirs[key].dtype for key in data)
        off = np.concatenate([np.abs(ours[key] - theirs[key].astype(np.float64)).ravel() for key in data])
        differences.append((off.max(), off.mean()))
    return differences


def test_batches_of_png_files_equal_mxnet(tmp_path):
    assert len(CASES) >= 20
    found = compare(tmp_path, "png")
    wrong = [(given, off) for (given, bound), off in zip_equal(CASES, found) if off[0] > bound]
    assert not wrong


@pytest.mark.parametrize("subsampling", [0, 2])
def test_batches_of_jpeg_files_equal_mxnet_up_to_rounding(tmp_path, subsampling):
    found = compare(tmp_path, "jpeg", quality=92, subsampling=subsampling)
    for (given, bound), (most, mean) in zip_equal(CASES, found):
        unit = given.get("scale", 1) / min(given.get(f"std_{channel}", 1) for channel in "rgb")
        assert most <= (JPEG_BOUND + bound) * unit and mean <= JPEG_MEAN * unit, (given, most, mean)


def test_several_labels_and_alpha_channels_equal_mxnet(tmp_path):
    write(tmp_path / "x.rec", 7, labels=3)
    write(tmp_path / "y.rec", 7, channels=4)
    cases = [
        {"path_imgrec": "x.rec", "data_shape": (3, 30, 30), "batch_size": 3, "label_width": 3},
        {"path_imgrec": "y.rec", "data_shape": (4, 30, 30), "batch_size": 3, "mean_a": 100, "std_b": 2},
        {"path_imgrec": "y.rec", "data_shape": (3, 30, 30), "batch_size": 3},
    ]
    theirs = by_mxnet(tmp_path, cases)
    for case in cases:
        case["path_imgrec"] = str(tmp_path / case["path_imgrec"])
    ours = by_ours(cases)
    assert theirs.keys() == ours.keys()
    for key in ours:
        assert np.array_equal(ours[key], theirs[key]), key


def test_mean_images_are_exchanged_with_mxnet(tmp_path):
    """The one that either makes is the same, and the other one reads it."""
    write(tmp_path / "x.rec")
    case = {"path_imgrec": str(tmp_path / "x.rec"), "data_shape": (3, 32, 32), "batch_size": 4}
    ours = by_ours([{**case, "mean_img": str(tmp_path / "ours.bin")}])
    theirs = by_mxnet(tmp_path, [{**case, "mean_img": str(tmp_path / "theirs.bin")}])
    assert (tmp_path / "ours.bin").stat().st_size == (tmp_path / "theirs.bin").stat().st_size
    crossed = by_mxnet(tmp_path, [{**case, "mean_img": str(tmp_path / "ours.bin")}])
    ours_crossed = by_ours([{**case, "mean_img": str(tmp_path / "theirs.bin")}])
    for key in ours:
        if key.endswith(".data"):
            for other in (theirs, crossed, ours_crossed):
                assert np.abs(ours[key] - other[key]).max() < 1e-3, key


def test_exif_orientation_is_applied_as_by_mxnet(tmp_path):
    from image_files import encoded, picture
    from PIL import Image

    from ringreel import recordio

    with recordio.MXRecordIO(tmp_path / "x.rec", "w") as out:
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            content = encoded(picture(1, 40, 60), "jpeg", quality=95, exif=exif)
            out.write(recordio.pack(recordio.IRHeader(0, orientation, orientation, 0), content))
    case = {"path_imgrec": str(tmp_path / "x.rec"), "data_shape": (3, 40, 40), "batch_size": 8}
    ours, theirs = by_ours([case]), by_mxnet(tmp_path, [case])
    assert np.abs(ours["0.0.0.data"] - theirs["0.0.0.data"]).max() <= JPEG_BOUND
