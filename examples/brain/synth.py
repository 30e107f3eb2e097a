"""The synthetic sample: image and label volume from a seed, and the endless stream of them."""

import itertools

import numpy as np

import appearance
import warp


def draw_sample(labels, seed):
    """Make one pair of image and label volume.

    Parameters
    ----------
    labels : uint8 label map, from template.load_label_map.
    seed : list of non-negative integers. The same label map and seed give the
        same sample.

    Returns
    -------
    image : uint8 array of shape warp.SHAPE, 0 to 255.
    label : uint8 array of the same shape, labels of template.LABEL_NAMES.
    meta : dict that JSON can hold: the seed, the voxel size in mm and all drawn
        parameters, as warp.draw and appearance.draw name them.
    """
    rng = np.random.default_rng(seed)
    shape, look = warp.draw(rng), appearance.draw(rng)
    label = warp.deform(labels, shape, rng)
    image = appearance.paint(label, look, rng)
    return image, label, {"seed": list(seed), "voxel_mm": warp.VOXEL_MM, **shape, **look}


def stream(labels, run_seed, worker):
    """Yield ((image, label), meta) endlessly; sample `i` has the seed [run_seed, worker, i]."""
    for index in itertools.count():
        image, label, meta = draw_sample(labels, [run_seed, worker, index])
        yield (image, label), meta
