"""`ringreel._image_options`: the parameters of `ringreel.image`."""

import pytest
from image_files import write

from ringreel import _image_options, image


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.rec"
    write(path)
    return path


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rand_corp": True}, TypeError, "rand_corp"),
        ({"data_shape": (2, 8, 8)}, ValueError, "channels"),
        ({"data_shape": (8, 8)}, ValueError, "data_shape"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"dtype": "float64"}, ValueError, "dtype"),
        ({"layout": "CHWN"}, ValueError, "layout"),
        ({"inter_method": 4}, ValueError, "inter_method"),
        ({"part_index": 2, "num_parts": 2}, ValueError, "rank 2"),
        ({"path_imgrec": "missing.rec"}, FileNotFoundError, "missing.rec"),
        ({"path_imglist": "missing.lst"}, FileNotFoundError, "missing.lst"),
        ({"min_crop_size": 9, "max_crop_size": 8}, ValueError, "min_crop_size"),
    ],
)
def test_wrong_parameters_are_errors(path, options, error, message):
    with pytest.raises(error, match=message):
        image.ImageRecordIter(**{"path_imgrec": path, "data_shape": (3, 8, 8), "batch_size": 2, **options})


def test_all_parameters_have_a_default_and_a_description():
    names = set(image.ImageOptions.__annotations__)
    assert names == set(_image_options._DEFAULTS)
    text = image.ImageOptions.__doc__
    assert all(name in text for name in names)


def test_defaults_may_be_given(path):
    """Also as None and as the empty text, as programs for MXNet do."""
    given = {**_image_options._DEFAULTS, "mean_img": "", "path_imgidx": "", "dtype": None}
    batches = image.ImageRecordIter(path, (3, 8, 8), 2, **given)
    assert batches.next().data[0].dtype == "float32"


def test_seeds_are_any_integers(path):
    for seed in (-1, 2**70):
        assert image.ImageRecordIter(path, (3, 8, 8), 2, seed=seed, shuffle=True).next().pad == 0


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, ()),
        ({"label_width": 3}, (3,)),
        ({"max_objects": 4}, (4, 5)),
        ({"max_objects": 4, "object_width": 6}, (4, 6)),
    ],
)
def test_shape_of_labels(options, shape):
    assert _image_options.label_shape(_image_options.arguments("x.rec", (3, 8, 8), 2, options)) == shape
