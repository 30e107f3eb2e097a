"""Random anatomy: an affine and a smooth nonlinear deformation of a label map.

The method is SynthSeg's (Billot et al. 2023,
doi:10.1016/j.media.2023.102789): rotation, scaling and shearing drawn from
uniform distributions, and the flow of a smooth random stationary velocity
field, which cannot fold space. The ranges are somewhat narrower than SynthSeg's
defaults, so that every brain fits the image.
"""

import numpy as np
from scipy import ndimage

import separable

SHAPE = (112, 128, 112)  # Voxels of a sample, to the right, to the front and up.
VOXEL_MM = 1.6

_NODE_STEP = 4  # One node of the coordinate grid every four voxels: 6.4 mm.
_NODES = tuple(n // _NODE_STEP + 1 for n in SHAPE)
_VELOCITY_POINTS = (8, 9, 8)  # Knots about 35 mm apart.
_TO_NODES = tuple(separable.smooth_noise(n, p) for n, p in zip(_NODES, _VELOCITY_POINTS))
_TO_VOXELS = tuple(
    separable.linear(np.arange(n) / _NODE_STEP, nodes) for n, nodes in zip(SHAPE, _NODES)
)


def draw(rng):
    """Draw the parameters of a deformation.

    Returns a dict of numbers that JSON can hold: rotation_deg, scaling and
    shear (three each), velocity_mm (standard deviation of the velocity field,
    which is about that of the displacement) and mirrored (left and right
    swapped).
    """
    return {
        "rotation_deg": rng.uniform(-10, 10, 3).round(3).tolist(),
        "scaling": rng.uniform(0.85, 1.05, 3).round(4).tolist(),
        "shear": rng.uniform(-0.012, 0.012, 3).round(5).tolist(),
        "velocity_mm": round(float(rng.uniform(0, 3)), 3),
        "mirrored": bool(rng.random() < 0.5),
    }


def deform(labels, parameters, rng):
    """Resample a label map on the sample grid through a random deformation.

    Parameters
    ----------
    labels : uint8 array of any 3-D shape, voxels of 1 mm; its outermost voxels
        are background.
    parameters : from `draw`.
    rng : numpy Generator that draws the velocity field.

    Returns
    -------
    uint8 array of shape SHAPE, voxels of VOXEL_MM: the nearest label at each
    deformed position.
    """
    step_mm = _NODE_STEP * VOXEL_MM
    nodes = np.indices(_NODES, dtype=np.float32)
    velocity = rng.standard_normal((3, *_VELOCITY_POINTS), np.float32)
    velocity = separable.apply(_TO_NODES, velocity) * np.float32(parameters["velocity_mm"] / step_mm)
    # Millimetres from the middle of the sample grid, deformed.
    middle = (np.array(SHAPE, np.float32) - 1) / (2 * _NODE_STEP)
    position = (nodes + _flow(velocity, nodes) - middle[:, None, None, None]) * step_mm
    source = np.tensordot(_affine(parameters), position, 1)
    source += (np.array(labels.shape, np.float32).reshape(3, 1, 1, 1) - 1) / 2
    return _look_up(labels, separable.apply(_TO_VOXELS, source))


def _flow(velocity, nodes, halvings=5):
    """Displacement of the flow of a stationary velocity field after unit time.

    Scaling and squaring (Arsigny et al. 2006, doi:10.1007/11866565_113): a tiny
    step, composed with itself `halvings` times. Fields have shape (3, a, b, c)
    and are in units of the node spacing.
    """
    displacement = velocity / 2**halvings
    for _ in range(halvings):
        at = nodes + displacement
        displacement = displacement + np.stack(
            [ndimage.map_coordinates(d, at, order=1, mode="nearest") for d in displacement]
        )
    return displacement


def _affine(parameters):
    """Matrix (3, 3), float32, from sample to template millimetres: mirror, rotate, shear and scale."""
    rx, ry, rz = np.radians(parameters["rotation_deg"])
    about_x = [[1, 0, 0], [0, np.cos(rx), -np.sin(rx)], [0, np.sin(rx), np.cos(rx)]]
    about_y = [[np.cos(ry), 0, np.sin(ry)], [0, 1, 0], [-np.sin(ry), 0, np.cos(ry)]]
    about_z = [[np.cos(rz), -np.sin(rz), 0], [np.sin(rz), np.cos(rz), 0], [0, 0, 1]]
    xy, xz, yz = parameters["shear"]
    shear = [[1, xy, xz], [0, 1, yz], [0, 0, 1]]
    mirror = np.diag([-1 if parameters["mirrored"] else 1, 1, 1])
    size = np.diag(1 / np.array(parameters["scaling"]))
    matrix = np.linalg.multi_dot([mirror, about_x, about_y, about_z, shear, size])
    return matrix.astype(np.float32)


def _look_up(labels, coordinates):
    """Nearest label at coordinates (3, ...) in voxels; positions outside take the edge's label."""
    flat = np.zeros(coordinates.shape[1:], np.int32)
    for axis, size in zip(coordinates, labels.shape):
        axis += 0.5
        np.clip(axis, 0, size - 1, out=axis)
        flat *= size
        flat += axis.astype(np.int32)
    return labels.ravel().take(flat)
