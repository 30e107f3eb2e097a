"""Trains with Lightning. Started again, it resumes with exactly the next sample of each rank.

python lightning_train.py --devices 2 --steps 100
"""

import argparse
import itertools

import lightning
import ringreel
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import default_collate


class RingData(lightning.LightningDataModule):
    """Endless batches of this rank's share of the ring. Each carries the position of the stream after it."""

    states = None

    def train_dataloader(self):
        ring, trainer = ringreel.Ring("config.yaml"), self.trainer
        stream = ring.stream(trainer.global_rank, trainer.world_size, shuffle=True, equal="drop", run="lightning")
        if self.states:
            stream.load_state_dict(self.states)
        while samples := list(itertools.islice(stream, 4)):
            batch = default_collate([sample.torch("image", "label") for sample in samples])
            ids = " ".join(f"{sample.generation}:{sample.position}" for sample in samples)
            yield {**batch, "ids": ids, "state": stream.state_dict()}


class StreamState(lightning.Callback):
    """Puts the position of every rank after the last training step into the checkpoint."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        self.state = batch["state"]

    def on_save_checkpoint(self, trainer, module, checkpoint):
        checkpoint["streams"] = [self.state] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(checkpoint["streams"], self.state)

    def on_load_checkpoint(self, trainer, module, checkpoint):
        trainer.datamodule.states = checkpoint["streams"]


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Conv3d(1, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 7**3, 2)
        self.network = torch.nn.Sequential(*layers)

    def training_step(self, batch, batch_index):
        loss = torch.nn.functional.cross_entropy(self.network(batch["image"]), batch["label"])
        print(f"rank {self.global_rank} step {self.global_step + 1} loss {loss:.3f} samples {batch['ids']}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=50)
    args = parser.parse_args()
    lightning.seed_everything(0)
    checkpoints = ModelCheckpoint("checkpoints", every_n_train_steps=args.save_every, save_last=True)
    trainer = lightning.Trainer(
        devices=args.devices,
        max_steps=args.steps,
        callbacks=[StreamState(), checkpoints],
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), datamodule=RingData(), ckpt_path="last")
