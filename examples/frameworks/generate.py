"""Makes the ring that the other programs read: two generations of balls and cubes in noise, and its config.yaml."""

import numpy as np
import ringreel

CONFIG = """\
DBNAME: shapes
SWAP_CAP: 32
SAMPLE: [image, mask, label]
"""


def samples(seed):
    """Yields a volume of 16 x 16 x 16 voxels, its segmentation, and its class: 0 for a ball, 1 for a cube."""
    rng = np.random.default_rng(seed)
    grid = np.indices((16, 16, 16))
    while True:
        center, radius, label = rng.integers(6, 10, 3), rng.integers(3, 6), rng.integers(2)
        offset = np.abs(grid - center[:, None, None, None])
        distance = offset.max(axis=0) if label else np.sqrt((offset**2).sum(axis=0))
        mask = (distance < radius)[None]
        image = mask + rng.normal(0, 0.5, mask.shape)
        yield {"image": image.astype(np.float32), "mask": mask.astype(np.uint8), "label": np.int64(label)}


with open("config.yaml", "w") as file:
    file.write(CONFIG)
ringreel.run_generator(samples(seed=1), "config.yaml", n_samples=64)
