"""The tissue label map: MNI152 template maps, fetched once and classified.

The maps are the 1 mm ICBM 2009a nonlinear template of T1-weighted intensity
and its grey and white matter probability maps (Fonov et al. 2011,
doi:10.1016/j.neuroimage.2010.07.033), as they are packed in the nilearn
package. Only the three files are taken out of that package; it is not
installed.

The template is skull-stripped. The example does not invent skull or scalp;
everything outside the brain is background.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nibabel
import numpy as np
from scipy import ndimage

NILEARN_VERSION = "0.14.1"
CACHE = Path(__file__).resolve().parent / "cache"

BACKGROUND, CSF, GREY, WHITE, VENTRICLE = range(5)
LABEL_NAMES = {
    BACKGROUND: "background",
    CSF: "cerebrospinal fluid",
    GREY: "grey matter",
    WHITE: "white matter",
    VENTRICLE: "lateral ventricles",
}

_MAP_PATH = "nilearn/datasets/data/mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"
_MAP_SHA256 = {
    "t1": "421a10e872fd6cadae7f61d358dffbcc1795a497d61ee76c5dda2503e1a1e9e6",
    "gm": "97a5ca69bd24db37a9cb7b32525e1733a209af904129bf1cd36da06d24243bed",
    "wm": "382d92812de4744f9c86c7a0e4f680dc317a0a50e4da1f0153618a6798c7b7db",
}
# The widest place (atrium) of the two lateral ventricles, in MNI millimetres
# (x to the right, y to the front, z up).
_VENTRICLE_SEEDS_MM = ((-20.0, -37.0, 17.0), (20.0, -37.0, 17.0))
_RECIPE = 1  # Increase it when the classification changes, to invalidate old caches.


def load_label_map(cache=CACHE):
    """Return the tissue label map; create it in `cache` if it is missing.

    Returns
    -------
    uint8 array, shape (149, 185, 159): labels as in LABEL_NAMES, voxels of
    1 mm, axes to the right, to the front and up (RAS), with the brain in the
    middle and a margin of background around it.
    """
    path = Path(cache) / f"labels-{NILEARN_VERSION}-r{_RECIPE}.npy"
    if not path.exists():
        labels = make_label_map(*load_maps(fetch_maps(cache)))
        _write_whole(path, lambda file: np.save(file, labels))
    return np.load(path)


def fetch_maps(cache=CACHE):
    """Put the three template maps into `cache`; return {"t1": path, "gm": ..., "wm": ...}.

    pip downloads the nilearn wheel (11 MB) if a map is missing. A map with another
    SHA-256 than the expected one is an error.
    """
    cache = Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    paths = {name: cache / Path(_MAP_PATH.format(name)).name for name in _MAP_SHA256}
    if not all(path.exists() for path in paths.values()):
        with tempfile.TemporaryDirectory(dir=cache) as folder, zipfile.ZipFile(_download_wheel(folder)) as wheel:
            for name, path in paths.items():
                content = wheel.read(_MAP_PATH.format(name))
                _write_whole(path, lambda file, content=content: file.write(content))
    for name, path in paths.items():
        if hashlib.sha256(path.read_bytes()).hexdigest() != _MAP_SHA256[name]:
            raise RuntimeError(f"{path} has an unexpected checksum; delete it and run again")
    return paths


def load_maps(paths):
    """Read the maps: T1 intensity (0 to 255), grey and white matter probability (0 to 1).

    Returns three float32 arrays of shape (197, 233, 189), and the affine
    (4, 4) from voxel indices to MNI millimetres.
    """
    images = [nibabel.load(paths[name]) for name in ("t1", "gm", "wm")]
    t1, grey, white = (np.asarray(image.dataobj, dtype=np.float32) for image in images)
    return t1, grey / 255, white / 255, images[0].affine


def make_label_map(t1, grey, white, affine):
    """Classify the template into the labels of LABEL_NAMES.

    Every voxel of the brain mask gets the class of the highest posterior in a
    mixture of three Gaussians over T1 intensity, with the template's own
    probability maps as the prior of each voxel and the Gaussians fitted by
    expectation maximisation (the model of Ashburner and Friston 2005,
    doi:10.1016/j.neuroimage.2005.02.018, without its bias field and
    deformation). The prior of fluid is the remainder of grey and white matter. The
    T1 image restores the sulci, which are blurred in the maps because they are
    averages. The lateral ventricles are the connected part of the deep fluid that
    contains their widest places.
    """
    mask = _brain_mask(t1)
    prior = np.stack([np.clip(1 - grey - white, 0, 1), grey, white])[:, mask]
    prior = 0.9 * prior + 0.1 / len(prior)  # The maps alone cannot exclude a class.
    posterior = np.zeros((3, *t1.shape), np.float32)
    posterior[:, mask] = _fit_mixture(t1[mask], prior / prior.sum(0))
    # Slight smoothing removes isolated voxels.
    posterior = np.stack([ndimage.gaussian_filter(p, 0.7) for p in posterior])
    labels = np.where(mask, posterior.argmax(0) + CSF, BACKGROUND).astype(np.uint8)
    labels[_lateral_ventricles(labels, mask, affine)] = VENTRICLE
    box = ndimage.find_objects(mask.astype(np.uint8))[0]
    return np.ascontiguousarray(np.pad(labels[box], 2))


def _brain_mask(t1):
    """Boolean mask of the brain: where the skull-stripped T1 has signal, holes closed."""
    margin = 8
    mask = ndimage.binary_closing(np.pad(t1 > 0, margin), iterations=3)
    return ndimage.binary_fill_holes(mask)[(slice(margin, -margin),) * 3]


def _fit_mixture(intensity, prior, rounds=12):
    """Posterior class probabilities (classes, voxels) of a Gaussian mixture with a voxelwise prior."""
    posterior = prior
    for _ in range(rounds):
        weight = posterior.sum(1)
        mean = (posterior * intensity).sum(1) / weight
        variance = (posterior * (intensity - mean[:, None]) ** 2).sum(1) / weight
        density = np.exp(-0.5 * (intensity - mean[:, None]) ** 2 / variance[:, None])
        posterior = prior * density / np.sqrt(variance)[:, None]
        posterior /= posterior.sum(0)
    return posterior


def _lateral_ventricles(labels, mask, affine):
    """Boolean mask of the fluid deeper than 12 mm in the brain that is connected to the seeds."""
    deep_fluid = (labels == CSF) & (ndimage.distance_transform_edt(mask) > 12)
    parts, _ = ndimage.label(ndimage.binary_opening(deep_fluid))
    to_voxel = np.linalg.inv(affine)
    seeds = [tuple(np.rint(to_voxel[:3, :3] @ s + to_voxel[:3, 3]).astype(int)) for s in _VENTRICLE_SEEDS_MM]
    found = {int(parts[seed]) for seed in seeds}
    if 0 in found:
        raise RuntimeError("no ventricle at the expected place; are these the MNI152 maps?")
    return np.isin(parts, list(found))


def _download_wheel(folder):
    """Download the pinned nilearn wheel, without its dependencies, and return its path."""
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--only-binary=:all:", "--python-version=3.12",
        f"--dest={folder}", f"nilearn=={NILEARN_VERSION}",
    ]
    print(f"Downloading nilearn {NILEARN_VERSION} for its MNI152 maps (11 MB, once)", file=sys.stderr)
    subprocess.run(command, check=True)
    return next(Path(folder).glob("nilearn-*.whl"))


def _write_whole(path, write):
    """Write a file under a temporary name and rename it, so that no reader sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        write(file)
    os.replace(temporary, path)
