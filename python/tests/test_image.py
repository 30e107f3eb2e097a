"""`ringreel.image` alone: order, epochs, memory, errors, random choices. test_image_mxnet.py compares it with MXNet."""

import multiprocessing
import pickle

import numpy as np
import pytest
from conftest import zip_equal
from image_files import encoded, write

import ringreel
from ringreel import image, recordio


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.rec"
    write(path)
    return path


def labels(batches):
    return [batch.label[0].tolist() for batch in batches]


def test_epochs_follow_each_other_without_a_gap(path):
    batches = image.ImageRecordIter(path, (3, 32, 32), 4)
    assert batches.num_images == 10 and batches.epoch == 0
    batches.reset()  # before the first batch: nothing
    assert labels(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]] and batches.getpad is not None
    with pytest.raises(StopIteration):
        batches.next()
    batches.reset()
    assert batches.epoch == 1
    assert labels(batches) == [[2, 3, 4, 5], [6, 7, 8, 9]]
    batches.reset()
    assert batches.next().label[0].tolist() == [0, 1, 2, 3]
    batches.reset()  # in the middle of an epoch: the next one begins with its first image
    assert batches.epoch == 3
    assert labels(batches)[0] == [0, 1, 2, 3]


def test_methods_of_the_current_batch(path):
    batches = image.ImageRecordIter(path, (3, 32, 32), 8)
    with pytest.raises(ValueError):
        batches.getdata()
    assert batches.iter_next() and batches.getpad() == 0 and batches.getindex().tolist() == list(range(8))
    assert batches.iter_next() and batches.getlabel().tolist() == [8, 9, 0, 1, 2, 3, 4, 5] and batches.getpad() == 6
    assert batches.getdata().shape == (8, 3, 32, 32)
    assert not batches.iter_next()


def test_last_batch_has_zeros_without_round_batch(path):
    batches = image.ImageRecordIter(path, (3, 32, 32), 4, round_batch=False)
    for _ in range(2):
        *_, last = batches
        assert last.pad == 2 and last.label[0].tolist() == [8, 9, 0, 0]
        assert last.data[0][:2].any() and not last.data[0][2:].any()
        batches.reset()


def test_descriptions_are_those_of_the_arrays(path):
    batches = image.ImageRecordIter(path, (3, 20, 30), 4, layout="NHWC", dtype=np.uint8, label_name="y")
    [data], [label] = batches.provide_data, batches.provide_label
    batch = batches.next()
    assert (data.name, data.shape, data.dtype, data.layout) == ("data", (4, 20, 30, 3), np.uint8, "NHWC")
    assert (label.name, label.shape) == ("y", (4,)) and batch.provide_data == [data]
    assert batch.data[0].shape == data.shape and batch.data[0].dtype == np.uint8
    assert image.DataDesc.get_batch_axis("NCHW") == 0 and "data" in repr(data) and "pad: 0" in repr(batch)
    planes = image.ImageRecordIter(path, (3, 20, 30), 4, dtype="uint8").next().data[0]
    assert np.array_equal(planes.transpose(0, 2, 3, 1), batch.data[0])


def test_arrays_stay_as_they_are_and_may_be_written_into(path):
    batches = image.ImageRecordIter(path, (3, 32, 32), 2, prefetch_buffer=1)
    held = [(batch.data[0], batch.data[0].copy()) for batch in batches]
    assert all(np.array_equal(array, copy) for array, copy in held)
    held[0][0][:] = -1
    assert all(np.array_equal(array, copy) for array, copy in held[1:])
    del held
    for _ in range(3):  # memory that was written into is used again
        batches.reset()
        for batch in batches:
            assert batch.data[0].min() >= 0
            batch.data[0][:] = -1


def test_memory_of_batches_that_are_gone_is_used_again(path):
    batches = image.ImageRecordIter(path, (3, 32, 32), 2, prefetch_buffer=2)
    addresses = set()
    for _ in range(4):
        for batch in batches:
            addresses.add(batch.data[0].ctypes.data)
            del batch
        batches.reset()
    assert len(addresses) <= 5


RANDOM = {
    "shuffle": True,
    "rand_crop": True,
    "rand_mirror": True,
    "brightness": 0.2,
    "contrast": 0.2,
    "saturation": 0.2,
    "random_h": 10,
    "max_rotate_angle": 10,
    "pca_noise": 0.05,
    "seed": 7,
}


def test_random_choices_depend_on_seed_epoch_and_record_alone(path):
    def pixels(epochs=2, **options):
        batches = image.ImageRecordIter(path, (3, 24, 24), 5, **{**RANDOM, **options})
        found = []
        for _ in range(epochs):
            found += [(batch.label[0].copy(), batch.data[0].copy()) for batch in batches]
            batches.reset()
        return found

    def same(left, right):
        pairs = zip_equal(left, right)
        return all(np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1]) for one, other in pairs)

    first = pixels(preprocess_threads=1)
    assert same(first, pixels(preprocess_threads=3, prefetch_buffer=1))
    assert not same(first, pixels(seed=8))
    assert not same(first[:2], first[2:])
    other = pixels(seed_aug=8)
    assert [a[0].tolist() for a in other] == [a[0].tolist() for a in first] and not same(first, other)


def test_random_crops_and_mirrors_are_parts_of_the_image(tmp_path):
    [picture] = write(tmp_path / "x.rec", 1)
    batches = image.ImageRecordIter(
        tmp_path / "x.rec", (3, 32, 32), 64, rand_crop=True, rand_mirror=True, dtype="uint8", layout="NHWC"
    )
    windows = {}
    for y in range(picture.shape[0] - 31):
        for x in range(picture.shape[1] - 31):
            window = picture[y : y + 32, x : x + 32]
            windows[window.tobytes()] = (y, x, False)
            windows[window[:, ::-1].tobytes()] = (y, x, True)
    seen = [windows[found.tobytes()] for found in batches.next().data[0]]
    assert len({place[:2] for place in seen}) > 40 and 16 < sum(place[2] for place in seen) < 48


def test_random_resized_crops_cover_the_requested_area(tmp_path):
    """The pixels of a ramp say which columns and rows a crop has."""
    rows, columns = np.mgrid[0:100, 0:100]
    ramp = np.stack([rows, columns, 0 * rows], -1).astype(np.uint8) * np.uint8(2)
    with recordio.MXRecordIO(tmp_path / "x.rec", "w") as out:
        out.write(recordio.pack_img((0, 0, 0, 0), ramp[:, :, ::-1], img_fmt=".png"))
    batches = image.ImageRecordIter(
        tmp_path / "x.rec", (3, 50, 50), 200, random_resized_crop=True, min_random_area=0.2, max_random_area=0.4,
        min_aspect_ratio=0.8, max_aspect_ratio=1.25,
    )  # fmt: skip
    data = batches.next().data[0]
    height = (data[:, 0, -1, 0] - data[:, 0, 0, 0]) / 2 * 50 / 49
    width = (data[:, 1, 0, -1] - data[:, 1, 0, 0]) / 2 * 50 / 49
    area, aspect = height * width / 10_000, width / height
    assert area.min() > 0.18 and area.max() < 0.42 and np.ptp(area) > 0.15
    assert aspect.min() > 0.75 and aspect.max() < 1.32 and np.ptp(aspect) > 0.3


def test_parts_have_all_records_once(path, tmp_path):
    for index in (None, tmp_path / "x.idx"):
        found = []
        for part in range(3):
            batches = image.ImageRecordIter(
                path, (3, 32, 32), 1, num_parts=3, part_index=part, path_imgidx=index, shuffle=True
            )
            found += [label for [label] in labels(batches)]
        assert sorted(found) == list(range(10))


def test_several_files_are_read_one_after_the_other(tmp_path):
    write(tmp_path / "a.rec", 3)
    write(tmp_path / "b.rec", 2)
    for paths in (tmp_path, [tmp_path / "b.rec", tmp_path / "a.rec"]):
        assert labels(image.ImageRecordIter(paths, (3, 32, 32), 5)) == [[0, 1, 2, 0, 1]]


def test_mean_image_is_made_once_and_subtracted(path, tmp_path):
    given = {"data_shape": (3, 32, 32), "batch_size": 10, "mean_img": tmp_path / "mean.bin"}
    first = image.ImageRecordIter(path, **given).next().data[0].copy()
    plain = image.ImageRecordIter(path, (3, 32, 32), 10).next().data[0]
    assert np.abs(plain - plain.mean(0) - first).max() < 1e-3
    before = (tmp_path / "mean.bin").read_bytes()
    assert np.array_equal(image.ImageRecordIter(path, **given).next().data[0], first)
    assert (tmp_path / "mean.bin").read_bytes() == before
    with pytest.raises(ValueError, match="mean_img"):
        image.ImageRecordIter(path, **{**given, "data_shape": (3, 30, 30)})


def test_broken_images_are_errors_and_the_next_batch_is_read(tmp_path):
    write(tmp_path / "x.rec", 3)
    with recordio.MXRecordIO(tmp_path / "y.rec", "w") as out:
        out.write(recordio.pack((0, 5.0, 5, 0), b"\xff\xd8 no image"))
        for record in recordio.MXRecordIO(tmp_path / "x.rec", "r"):
            out.write(record)
    batches = image.ImageRecordIter(tmp_path / "y.rec", (3, 8, 8), 2)
    with pytest.raises(ringreel.RingreelError, match=r"y\.rec: the image at byte 0"):
        batches.next()
    assert labels(batches) == [[1, 2]]
    with pytest.raises(ringreel.RingreelError, match="has 1 labels, but label_width is 2"):
        image.ImageRecordIter(tmp_path / "x.rec", (3, 8, 8), 2, label_width=2).next()


def test_dataset_has_the_images_by_position(path):
    dataset = image.ImageRecordDataset(path, (3, 32, 32), rand_crop=True, seed=3)
    batch = image.ImageRecordIter(path, (3, 32, 32), 10, rand_crop=True, seed=3).next()
    copy = pickle.loads(pickle.dumps(dataset))
    for n in range(10):
        for other in (dataset, copy):
            pixels, label = other[n - 10]
            assert label == n and np.array_equal(pixels, batch.data[0][n])
    assert len(dataset) == 10 == len(list(dataset))
    with pytest.raises(IndexError):
        dataset[10]
    dataset.set_epoch(1)
    assert any(not np.array_equal(dataset[n][0], copy[n][0]) for n in range(10))


def _in_child(dataset, batches, pipe):
    found = [dataset[4][1]]
    try:
        batches.next()
    except ringreel.RingreelError as error:
        found.append(str(error))
    pipe.send(found)


def test_forked_children_use_datasets_but_not_batches(path):
    dataset = image.ImageRecordDataset(path, (3, 32, 32))
    batches = image.ImageRecordIter(path, (3, 32, 32), 2)
    batches.next()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(dataset, batches, theirs))
    child.start()
    label, message = ours.recv()
    child.join()
    assert label == 4 and "image iterator was opened in process" in message
    assert batches.next().label[0].tolist() == [2, 3]


def test_masks_and_boxes_take_the_steps_of_their_images(tmp_path):
    """The image is white where the mask is 1, and in the box."""
    with (
        recordio.MXRecordIO(tmp_path / "x.rec", "w") as images,
        recordio.MXIndexedRecordIO(tmp_path / "m.idx", tmp_path / "m.rec", "w") as masks,
    ):
        for n in range(6):
            mask = np.zeros((50, 60), np.uint8)
            mask[10 + n : 30, 20 : 40 - n] = 1
            picture = np.repeat(mask[:, :, None] * np.uint8(255), 3, 2)
            box = [20 / 60, (10 + n) / 50, (40 - n) / 60, 30 / 50]
            header = recordio.IRHeader(0, [2, 5, n, *box], 100 + n, 0)
            images.write(recordio.pack(header, encoded(picture)))
            masks.write_idx(100 + n, recordio.pack((0, 0, 100 + n, 0), encoded(mask)))
    options = {
        "path_maskrec": tmp_path / "m.rec",
        "path_maskidx": tmp_path / "m.idx",
        "max_objects": 3,
        "rand_mirror": True,
        "rand_crop": True,
        "dtype": "uint8",
        "mask_fill_value": 9,
        "fill_value": 0,
    }
    batches = image.ImageRecordIter(tmp_path / "x.rec", (1, 44, 44), 6, **options)
    assert [it.shape for it in batches.provide_label] == [(6, 3, 5), (6, 44, 44)]
    for _ in range(5):
        batch = batches.next()
        labels, masks = batch.label
        assert np.array_equal(batch.data[0][:, 0] == 255, masks == 1)
        for n in range(6):
            assert labels[n, 0, 0] == n and (labels[n, 1:] == -1).all()
            rows, columns = np.nonzero(masks[n])
            edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert np.allclose(labels[n, 0, 1:] * 44, edges, atol=1e-3)
        batches.reset()
    dataset = image.ImageRecordDataset(tmp_path / "x.rec", (1, 44, 44), **{**options, "pad": 2})
    picture, label, mask = dataset[1]
    assert picture.shape == (1, 44, 44) and label.shape == (3, 5) and mask.shape == (44, 44)
    with pytest.raises(ValueError, match="path_maskidx"):
        image.ImageRecordIter(tmp_path / "x.rec", (1, 44, 44), 6, path_maskrec=tmp_path / "m.rec")
