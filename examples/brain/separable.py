"""Interpolation and blurring along one axis, as small dense matrices.

A volume of 112 x 128 x 112 voxels is interpolated or blurred fastest in NumPy
by multiplying each axis with a matrix: BLAS does the work, in float32, on one
core. The matrices here have one row per output position and rows that sum
to one.
"""

import numpy as np


def apply(matrices, volume):
    """Multiply each axis of a volume by its matrix.

    Parameters
    ----------
    matrices : three 2-D arrays (out_i, in_i), or None for an unchanged axis.
    volume : float32 array of shape (..., in_0, in_1, in_2).

    Returns
    -------
    float32 array of shape (..., out_0, out_1, out_2).
    """
    along_0, along_1, along_2 = matrices
    if along_2 is not None:
        volume = volume @ along_2.T
    if along_1 is not None:
        volume = along_1 @ volume
    if along_0 is not None:
        *lead, n0, n1, n2 = volume.shape
        volume = (along_0 @ volume.reshape(*lead, n0, n1 * n2)).reshape(*lead, -1, n1, n2)
    return volume


def linear(positions, n):
    """Matrix (len(positions), n) of linear interpolation between `n` points at 0, 1, ..., n-1.

    Positions outside the points take the value of the nearest end.
    """
    positions = np.clip(np.asarray(positions, float), 0, n - 1)
    distance = np.abs(positions[:, None] - np.arange(n))
    return np.maximum(0, 1 - distance).astype(np.float32)


def smooth_noise(size, points):
    """Matrix (size, points) that turns white noise into smooth noise of unit variance.

    Cubic B-splines on `points` knots spread over `size` positions; each row is
    scaled to Euclidean length one, so that independent standard normal values
    at the knots give a standard normal value at every position. (Unlike the
    other matrices, its rows do not sum to one.)
    """
    positions = np.linspace(1, points - 2, size)
    x = np.abs(positions[:, None] - np.arange(points))
    spline = np.where(x < 1, 2 / 3 - x**2 + x**3 / 2, np.maximum(0, 2 - x) ** 3 / 6)
    return (spline / np.linalg.norm(spline, axis=1, keepdims=True)).astype(np.float32)


def gaussian(n, sigma):
    """Matrix (n, n) that blurs with a Gaussian of `sigma` samples, or None if `sigma` is 0."""
    if sigma <= 0:
        return None
    x = np.arange(n)
    kernel = np.exp(-0.5 * ((x[:, None] - x) / sigma) ** 2)
    return (kernel / kernel.sum(1, keepdims=True)).astype(np.float32)


def slices(n, spacing, offset):
    """Matrix (n, n) that keeps every `spacing`-th sample and interpolates between those kept.

    `spacing` (in samples, 1 or more) need not be whole; the first slice lies at
    `offset` samples. None if the spacing is 1.
    """
    if spacing <= 1:
        return None
    kept = np.arange(offset, n, spacing)
    take = linear(kept, n)
    return linear((np.arange(n) - offset) / spacing, len(kept)) @ take
