"""Random appearance: turns a label map into an image with random contrast.

The steps are SynthSeg's (Billot et al. 2023, doi:10.1016/j.media.2023.102789):
an intensity distribution per tissue, a bias field, a limited resolution, noise
and a random gamma. Two things differ from the paper, to keep the tissues
visible in the pictures: tissue means are drawn apart from each other, and the
background is dark.
"""

import numpy as np

import separable
from template import BACKGROUND, CSF, GREY, LABEL_NAMES, VENTRICLE, WHITE
from warp import SHAPE, VOXEL_MM

# Ventricles hold the same fluid as the sulci, so both share one distribution.
_CLASS_OF_LABEL = {BACKGROUND: 0, CSF: 1, VENTRICLE: 1, GREY: 2, WHITE: 3}
_CLASSES = [_CLASS_OF_LABEL[label] for label in sorted(LABEL_NAMES)]

_BIAS_POINTS = 5  # Knots of the bias field along each axis.
_COARSE = tuple(n // 8 + 1 for n in SHAPE)
_BIAS_TO_COARSE = tuple(separable.smooth_noise(n, _BIAS_POINTS) for n in _COARSE)
_COARSE_TO_VOXELS = tuple(separable.linear(np.arange(n) / 8, c) for n, c in zip(SHAPE, _COARSE))


def draw(rng):
    """Draw the parameters of an image's appearance.

    Returns a dict of numbers that JSON can hold. Intensities are on a scale
    from 0 to 1.

    class_mean, class_std : intensity of fluid, grey and white matter.
    bias_std : standard deviation of the logarithm of the bias field.
    spacing_mm, thickness_mm : of the slices across `slice_axis` (0 to the
        right, 1 to the front, 2 up); an image is isotropic (spacing of one
        voxel) half of the time.
    slice_offset : position of the first slice, as a fraction of the spacing.
    noise_std : of the two channels of the receiver, see `_receive`.
    gamma : exponent applied to the normalised image.
    """
    spacing = VOXEL_MM if rng.random() < 0.5 else rng.uniform(VOXEL_MM, 6)
    return {
        "class_mean": _means_apart(rng),
        "class_std": rng.uniform(0.0, 0.08, 3).round(4).tolist(),
        "bias_std": round(float(rng.uniform(0, 0.35)), 4),
        "spacing_mm": round(float(spacing), 3),
        "thickness_mm": round(float(rng.uniform(VOXEL_MM, spacing)), 3),
        "slice_axis": int(rng.integers(3)),
        "slice_offset": round(float(rng.random()), 4),
        "noise_std": round(float(rng.uniform(0.004, 0.04)), 4),
        "gamma": round(float(np.exp(rng.normal(0, 0.25))), 4),
    }


def paint(labels, parameters, rng):
    """Make the image of a label map.

    Parameters
    ----------
    labels : uint8 array of shape SHAPE, labels of template.LABEL_NAMES.
    parameters : from `draw`.
    rng : numpy Generator that draws the noise.

    Returns
    -------
    uint8 array of the same shape, 0 to 255. One byte is enough, because the
    noise of nearly every image is wider than one step of 1/255, and a ring on
    a shared filesystem is limited by bytes: float32 would take four times as
    many.
    """
    image = _tissue(labels, parameters, rng)
    image *= _bias_field(parameters, rng)
    image = separable.apply(_blur_matrices(parameters), image)
    image = _receive(image, parameters["noise_std"], rng)
    image = separable.apply(_slice_matrices(parameters), image)
    return _normalise(image, parameters["gamma"])


def _means_apart(rng, at_least=0.12):
    """Three uniform means in [0.2, 1], any two of them `at_least` apart."""
    while True:
        means = rng.uniform(0.2, 1, 3)
        if np.diff(np.sort(means)).min() >= at_least:
            return means.round(4).tolist()


def _tissue(labels, parameters, rng):
    """Intensity of each voxel, drawn from the Gaussian of its class; background is 0."""
    mean = np.array([0, *parameters["class_mean"]], np.float32)[_CLASSES]
    std = np.array([0, *parameters["class_std"]], np.float32)[_CLASSES]
    image = rng.standard_normal(labels.shape, np.float32)
    image *= std.take(labels)
    image += mean.take(labels)
    return np.maximum(image, 0, out=image)


def _bias_field(parameters, rng):
    """Smooth positive factor, the exponential of a smooth Gaussian field; shape SHAPE."""
    knots = rng.standard_normal((_BIAS_POINTS,) * 3, np.float32)
    field = separable.apply(_BIAS_TO_COARSE, knots) * np.float32(parameters["bias_std"])
    return separable.apply(_COARSE_TO_VOXELS, np.exp(field))


def _blur_matrices(parameters):
    """Per axis, the blur of the acquisition.

    SynthSeg's widths, in voxels: 0.5 along an axis of full resolution, and
    0.75 times the slice thickness across thicker slices.
    """
    sigma = [0.5, 0.5, 0.5]
    if parameters["spacing_mm"] > VOXEL_MM:
        sigma[parameters["slice_axis"]] = 0.75 * parameters["thickness_mm"] / VOXEL_MM
    return [separable.gaussian(n, s) for n, s in zip(SHAPE, sigma)]


def _receive(image, noise_std, rng):
    """Magnitude of a signal with Gaussian noise in two channels, so that the noise is Rician.

    Gudbjartsson and Patz 1995, doi:10.1002/mrm.1910340618.
    """
    power = np.zeros_like(image)
    for signal in (image, 0):
        channel = rng.standard_normal(image.shape, np.float32)
        channel *= np.float32(noise_std)
        channel += signal
        channel *= channel
        power += channel
    return np.sqrt(power, out=power)


def _slice_matrices(parameters):
    """Per axis, the taking of slices `spacing_mm` apart and the interpolation back to the voxels."""
    matrices = [None, None, None]
    axis, spacing = parameters["slice_axis"], parameters["spacing_mm"] / VOXEL_MM
    matrices[axis] = separable.slices(SHAPE[axis], spacing, parameters["slice_offset"] * (spacing - 1))
    return matrices


def _normalise(image, gamma):
    """Scale [0, 99.9th percentile] to [0, 1], apply the exponent, and quantise to uint8.

    The percentile is that of every seventh voxel. The exponent is applied by a
    table of 4096 steps.
    """
    some = image.ravel()[::7]
    rank = int(0.999 * some.size)
    top = np.partition(some, rank)[rank]
    image *= np.float32(4095 / max(top, 1e-6))
    np.minimum(image, 4095, out=image)
    table = np.rint(255 * np.linspace(0, 1, 4096) ** gamma).astype(np.uint8)
    return table.take(image.astype(np.uint16))
