"""Trains with the Trainer of Hugging Face. Started again, it resumes with exactly the next sample of each rank.

torchrun --standalone --nproc-per-node 2 hf_train.py --steps 100
"""

import argparse
import os

import ringreel.torch
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class RingTrainer(Trainer):
    def get_train_dataloader(self):
        # Trainer's own loader goes through accelerate, which would divide the samples among the ranks a second time.
        options = {"batch_size": self.args.train_batch_size, "num_workers": self.args.dataloader_num_workers}
        return StatefulDataLoader(self.train_dataset, collate_fn=ringreel.torch.collate, **options)

    def training_step(self, model, inputs, *args):
        # The origin of the samples (info=True), which the model does not accept.
        _, *origin = (inputs.pop(name) for name in ("sample_id", "generation", "position"))
        ids = " ".join(f"{generation}:{position}" for generation, position in zip(*origin))
        loss, step = super().training_step(model, inputs, *args), self.state.global_step + 1
        print(f"rank {self.args.process_index} step {step} loss {loss:.3f} samples {ids}", flush=True)
        return loss


class StreamState(TrainerCallback):
    """Saves the position of each rank in the folder of the checkpoint, and loads it."""

    def on_save(self, args, state, control, train_dataloader, **kwargs):
        torch.save(train_dataloader.state_dict(), self.path(args, state))

    def on_train_begin(self, args, state, control, train_dataloader, **kwargs):
        if state.global_step > 0:  # resumed
            train_dataloader.load_state_dict(torch.load(self.path(args, state), weights_only=False))

    def path(self, args, state):
        return f"{args.output_dir}/checkpoint-{state.global_step}/ring-{args.process_index}.pt"


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Conv3d(1, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 7**3, 2)
        self.network = torch.nn.Sequential(*layers)

    def forward(self, image, label):
        logits = self.network(image)
        return {"loss": torch.nn.functional.cross_entropy(logits, label), "logits": logits}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=50)
    options = parser.parse_args()
    args = TrainingArguments(
        "checkpoints",
        max_steps=options.steps,
        save_steps=options.save_every,
        per_device_train_batch_size=4,
        dataloader_num_workers=2,
        ignore_data_skip=True,  # otherwise Trainer skips batches after a resume, although the loader has its position
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
    )
    stream = ringreel.torch.RingStream("config.yaml", parts=["image", "label"], shuffle=True, info=True)
    trainer = RingTrainer(Classifier(), args, train_dataset=stream, callbacks=[StreamState()])
    os.makedirs("checkpoints", exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint("checkpoints"))
