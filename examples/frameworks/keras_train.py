"""Trains with Keras 3 on the backend jax or torch. Started again, it resumes with exactly the next sample.

KERAS_BACKEND=jax python keras_train.py --steps 100
"""

import argparse
import collections
import itertools
import json
import os

import keras
import numpy as np
import ringreel


class Batches:
    """Endless batches of a ring. Keras reads ahead, so the position after each batch is kept until it is trained on."""

    def __init__(self, state=None):
        self.stream = ringreel.Ring("config.yaml").stream(shuffle=True, run="keras")
        self.positions = collections.deque()
        if state:
            self.stream.load_state_dict(state)

    def __iter__(self):
        while samples := list(itertools.islice(self.stream, 4)):
            ids = " ".join(f"{sample.generation}:{sample.position}" for sample in samples)
            self.positions.append((ids, self.stream.state_dict()))
            yield (
                np.stack([sample["image"][0] for sample in samples]),
                np.stack([sample["label"] for sample in samples]),
            )


class Checkpoint(keras.callbacks.Callback):
    """Saves the model, and the position in the ring after the last training step."""

    def __init__(self, batches, step, every):
        super().__init__()
        self.batches, self.step, self.every = batches, step, every

    def on_train_batch_end(self, batch, logs):
        ids, state = self.batches.positions.popleft()
        self.step += 1
        print(f"rank 0 step {self.step} loss {logs['loss']:.3f} samples {ids}", flush=True)
        if self.step % self.every == 0:
            self.model.save(f"step-{self.step}.keras")
            with open("checkpoint.new", "w") as file:
                json.dump({"model": f"step-{self.step}.keras", "step": self.step, "stream": state}, file)
            os.replace("checkpoint.new", "checkpoint.json")


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save-every", type=int, default=50)
args = parser.parse_args()
keras.utils.set_random_seed(0)
if os.path.exists("checkpoint.json"):
    with open("checkpoint.json") as file:
        checkpoint = json.load(file)
    model = keras.models.load_model(checkpoint["model"])
else:
    checkpoint = {"step": 0, "stream": None}
    layers = [keras.Input((16, 16, 16)), keras.layers.Conv2D(8, 3, strides=2, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(2, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
batches = Batches(checkpoint["stream"])
remaining = args.steps - checkpoint["step"]
# Without steps_per_epoch, an epoch of an endless generator never ends.
callback = Checkpoint(batches, checkpoint["step"], args.save_every)
model.fit(iter(batches), steps_per_epoch=remaining, shuffle=False, verbose=0, callbacks=[callback])
