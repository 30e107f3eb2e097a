"""Trains a segmentation network with MONAI. An epoch is one generation. Started again, it resumes with the next epoch.

python monai_train.py --epochs 10
"""

import argparse
import os

import monai
import ringreel.torch
import torch
from torch.utils.data import DataLoader

transforms = monai.transforms.Compose(
    [
        monai.transforms.RandFlipd(["image", "mask"], prob=0.5, spatial_axis=0),
        monai.transforms.RandAffined(
            ["image", "mask"], prob=0.5, rotate_range=0.3, mode=["bilinear", "nearest"], padding_mode="zeros"
        ),
        monai.transforms.RandGaussianNoised("image", prob=0.5, std=0.2),
        monai.transforms.EnsureTyped(["image", "mask"], track_meta=False),
    ]
)


def augment(sample, rng):
    """Makes MONAI's random numbers depend on the sample and the epoch, and not on the loader's workers."""
    transforms.set_random_state(seed=int(rng.integers(2**32)))
    return {**sample, **transforms({"image": sample["image"], "mask": sample["mask"]})}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    monai.utils.set_determinism(0)
    model = monai.networks.nets.UNet(3, in_channels=1, out_channels=1, channels=(8, 16), strides=(2,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    done, step = 0, 0  # epochs and steps of earlier starts
    if os.path.exists("checkpoint.pt"):
        checkpoint = torch.load("checkpoint.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        done, step = checkpoint["epochs"], checkpoint["step"]
    # A new process counts its epochs from 0. Another seed gives it another order, and other augmentations.
    stream = ringreel.torch.RingStream(
        "config.yaml", parts=["image", "mask"], shuffle=True, seed=done, epochs=1, transform=augment, info=True
    )
    loader = DataLoader(
        stream, batch_size=4, num_workers=args.workers, persistent_workers=args.workers > 0,
        collate_fn=ringreel.torch.collate,
    )  # fmt: skip
    for epoch in range(done + 1, args.epochs + 1):
        for batch in loader:
            loss = monai.losses.DiceLoss(sigmoid=True)(model(batch["image"]), batch["mask"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            ids = [f"{g}:{p}" for g, p in zip(batch["generation"].tolist(), batch["position"].tolist())]
            print(f"rank 0 step {step} loss {loss:.3f} samples {' '.join(ids)}", flush=True)
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch, "step": step}
        torch.save(checkpoint, "checkpoint.new")
        os.replace("checkpoint.new", "checkpoint.pt")
