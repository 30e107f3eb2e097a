"""The parameters of `ringreel.image`: MXNet's names, defaults and meaning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypedDict, Union

import numpy as np

#: The path of a file, as text.
Path = Union[str, os.PathLike[str]]


class ImageOptions(TypedDict, total=False):
    """Parameters that all classes of `ringreel.image` take, with MXNet's names and defaults.

    Attributes:
        path_imgidx: The `.idx` file. Without it the headers of all records are read first.
        path_imglist: A `.lst` file with other labels for the same records, by the ids in their headers.
        label_width: Number of labels of an image.
        dtype: "float32", or "uint8" for bytes as they are decoded, without normalisation.
        layout: "NCHW" or "NHWC". MXNet has only the first.
        shuffle: Whether each epoch has a random order of its own.
        seed: Seed of that order.
        seed_aug: Seed of the random augmentation; None: the same as `seed`.
        num_parts: Number of parts that the records are cut into.
        part_index: The part that is read, from 0.
        round_batch: Whether the last batch of an epoch is completed with the first images of the next epoch, which
            then begins behind them. Otherwise the remaining slots are zeros.
        preprocess_threads: Threads that decode.
        prefetch_buffer: Batches that are made ahead.
        resize: Length that the shorter edge is resized to first; -1: as it is.
        pad: Pixels that are added on each side before the crop.
        fill_value: Value of pixels outside the image.
        inter_method: Interpolation: 0 nearest, 1 bilinear, 2 cubic, 3 area, 9 cubic to enlarge and area to shrink,
            10 one of the first four at random.
        rand_crop: Whether the crop is at a random place instead of the centre.
        random_resized_crop: Whether a random part is cropped and resized.
        min_random_area, max_random_area: The share of the image's area that such a part has.
        min_aspect_ratio, max_aspect_ratio: The range of its ratio of width to height, either way round. Without a
            minimum it is 1 - max_aspect_ratio to 1 + max_aspect_ratio.
        min_crop_size, max_crop_size: Edge of a random square part that is resized; -1: none.
        mirror: Whether all images are mirrored.
        rand_mirror: Whether half of the images are mirrored.
        rotate: Degrees by which all images are rotated, if positive.
        max_rotate_angle: Largest random rotation in degrees, either way.
        max_shear_ratio: Largest random shear, either way.
        min_random_scale, max_random_scale: The range of a random scale.
        min_img_size, max_img_size: Bounds of the edges after rotation, shear and scale.
        brightness, contrast, saturation: Each is multiplied by a random number within 1 ± this.
        random_h, random_s, random_l: Largest random change of hue (of 180), saturation and lightness (of 255).
        pca_noise: Standard deviation of the noise along the principal components of ImageNet's colours.
        mean_img: A file with a mean for each pixel, which is subtracted. It is made and saved if it is missing.
        mean_r, mean_g, mean_b, mean_a: Means of the channels, which are subtracted if there is no `mean_img`.
        std_r, std_g, std_b, std_a: Standard deviations of the channels, by which they are divided.
        scale: Factor of all channels.
        max_random_contrast: Random contrast within 1 ± this.
        max_random_illumination: Random illumination within 0 ± this.
        path_maskrec: A `.rec` file of segmentation masks, which take the geometric steps of their images: PNG files of
            greys, or of numbers in a palette. Not MXNet's.
        path_maskidx: Its `.idx` file. The key of a mask is the id in the header of its image.
        mask_fill_value: Value of mask pixels outside the image.
        max_objects: Largest number of objects with boxes in an image; 0: labels are plain numbers. Each record has the
            labels of MXNet's detection records: header length, object width, and for each object its class and
            the left, upper, right and lower edge of its box, 0 to 1. A batch has the labels (batch_size, max_objects,
            object_width), with the boxes after the geometric steps; rows of -1 follow the last object.
        object_width: Numbers of an object.
        min_eject_coverage: The share of its box that has to be left in the result for an object to be given.
        verbose, ctx, device_id: Taken and ignored.
    """

    path_imgidx: Path | None
    path_imglist: Path | None
    label_width: int
    dtype: Any
    layout: str
    shuffle: bool
    seed: int
    seed_aug: int | None
    num_parts: int
    part_index: int
    round_batch: bool
    preprocess_threads: int
    prefetch_buffer: int
    resize: int
    pad: int
    fill_value: int
    inter_method: int
    rand_crop: bool
    random_resized_crop: bool
    min_random_area: float
    max_random_area: float
    min_aspect_ratio: float | None
    max_aspect_ratio: float
    min_crop_size: int
    max_crop_size: int
    mirror: bool
    rand_mirror: bool
    rotate: int
    max_rotate_angle: int
    max_shear_ratio: float
    min_random_scale: float
    max_random_scale: float
    min_img_size: float
    max_img_size: float
    brightness: float
    contrast: float
    saturation: float
    random_h: int
    random_s: int
    random_l: int
    pca_noise: float
    mean_img: Path | None
    mean_r: float
    mean_g: float
    mean_b: float
    mean_a: float
    std_r: float
    std_g: float
    std_b: float
    std_a: float
    scale: float
    max_random_contrast: float
    max_random_illumination: float
    path_maskrec: Path | None
    path_maskidx: Path | None
    mask_fill_value: int
    max_objects: int
    object_width: int
    min_eject_coverage: float
    verbose: bool
    ctx: str
    device_id: int


_DEFAULTS: ImageOptions = {
    "path_imgidx": None,
    "path_imglist": None,
    "label_width": 1,
    "dtype": "float32",
    "layout": "NCHW",
    "shuffle": False,
    "seed": 0,
    "seed_aug": None,
    "num_parts": 1,
    "part_index": 0,
    "round_batch": True,
    "preprocess_threads": 4,
    "prefetch_buffer": 4,
    "resize": -1,
    "pad": 0,
    "fill_value": 255,
    "inter_method": 1,
    "rand_crop": False,
    "random_resized_crop": False,
    "min_random_area": 1.0,
    "max_random_area": 1.0,
    "min_aspect_ratio": None,
    "max_aspect_ratio": 0.0,
    "min_crop_size": -1,
    "max_crop_size": -1,
    "mirror": False,
    "rand_mirror": False,
    "rotate": -1,
    "max_rotate_angle": 0,
    "max_shear_ratio": 0.0,
    "min_random_scale": 1.0,
    "max_random_scale": 1.0,
    "min_img_size": 0.0,
    "max_img_size": 1e10,
    "brightness": 0.0,
    "contrast": 0.0,
    "saturation": 0.0,
    "random_h": 0,
    "random_s": 0,
    "random_l": 0,
    "pca_noise": 0.0,
    "mean_img": None,
    "mean_r": 0.0,
    "mean_g": 0.0,
    "mean_b": 0.0,
    "mean_a": 0.0,
    "std_r": 1.0,
    "std_g": 1.0,
    "std_b": 1.0,
    "std_a": 1.0,
    "scale": 1.0,
    "max_random_contrast": 0.0,
    "max_random_illumination": 0.0,
    "path_maskrec": None,
    "path_maskidx": None,
    "mask_fill_value": 255,
    "max_objects": 0,
    "object_width": 5,
    "min_eject_coverage": 0.3,
    "verbose": True,
    "ctx": "cpu",
    "device_id": 0,
}


def label_shape(given: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the labels of one image."""
    if given["max_objects"] > 0:
        return given["max_objects"], given["object_width"]
    return () if given["label_width"] == 1 else (given["label_width"],)


def arguments(
    path_imgrec: Path | Sequence[Path],
    data_shape: Sequence[int],
    batch_size: int,
    options: ImageOptions | dict[str, Any],
) -> dict[str, Any]:
    """The arguments of `_ringreel.ImageReader`.

    Raises:
        TypeError: An unknown name among the options.
        ValueError: A value that cannot be used.
    """
    unknown = sorted(set(options) - set(_DEFAULTS))
    if unknown:
        raise TypeError(f"there is no parameter {unknown[0]!r}: see ringreel.image.ImageOptions for all of them")
    given: dict[str, Any] = {**_DEFAULTS, **options}
    if len(data_shape) != 3:
        raise ValueError(f"data_shape: expected channels, rows and columns, found {data_shape!r}")
    paths = [path_imgrec] if isinstance(path_imgrec, (str, os.PathLike)) else path_imgrec
    given["path_imgrec"] = [os.fspath(path) for path in paths]
    for name in ("path_imgidx", "path_imglist", "mean_img", "path_maskrec", "path_maskidx"):
        given[name] = os.fspath(given[name]) if given[name] else None
    given["data_shape"] = [int(length) for length in data_shape]
    given["batch_size"] = int(batch_size)
    given["dtype"] = np.dtype("float32" if given["dtype"] in (None, "None") else given["dtype"]).name
    # As MXNet takes them: any integer is a seed.
    given["seed"] = int(given["seed"]) % 2**64
    given["seed_aug"] = given["seed"] if given["seed_aug"] is None else int(given["seed_aug"]) % 2**64
    for name in ("shuffle", "round_batch", "rand_crop", "random_resized_crop", "mirror", "rand_mirror"):
        given[name] = bool(given[name])
    least, most = given["min_aspect_ratio"], given["max_aspect_ratio"]
    given["aspect"] = (1 - most, 1 + most) if least is None else (least, most)
    given["mean"] = [given[f"mean_{channel}"] for channel in "rgba"]
    given["std"] = [given[f"std_{channel}"] for channel in "rgba"]
    given["equal_parts"] = False
    return given
