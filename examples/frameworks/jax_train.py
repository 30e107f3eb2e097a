"""Trains with JAX. Started again, it resumes with exactly the next sample.

python jax_train.py --steps 100
"""

import argparse
import itertools
import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import ringreel


def loss_of(params, image, label):
    hidden = jax.nn.relu(image.reshape(len(image), -1) @ params["hidden"])
    return -jax.nn.log_softmax(hidden @ params["output"])[jnp.arange(len(label)), label].mean()


@jax.jit
def train_step(params, image, label):
    loss, gradient = jax.value_and_grad(loss_of)(params, image, label)
    return jax.tree.map(lambda value, change: value - 0.01 * change, params, gradient), loss


def save(path, **checkpoint):
    with open(f"{path}.new", "wb") as file:
        pickle.dump(jax.device_get(checkpoint), file)
    os.replace(f"{path}.new", path)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save-every", type=int, default=50)
args = parser.parse_args()
keys = jax.random.split(jax.random.key(0))
params = {"hidden": jax.random.normal(keys[0], (16**3, 32)) / 64, "output": jax.random.normal(keys[1], (32, 2)) / 6}
path, step = f"checkpoint-{jax.process_index()}.pkl", 0  # each process has its own position in the ring
ring = ringreel.Ring("config.yaml")
stream = ring.stream(jax.process_index(), jax.process_count(), shuffle=True, equal="drop", run="jax")
if os.path.exists(path):
    with open(path, "rb") as file:
        checkpoint = pickle.load(file)
    params, step = checkpoint["params"], checkpoint["step"]
    stream.load_state_dict(checkpoint["stream"])
while step < args.steps:
    samples = list(itertools.islice(stream, 4))
    image, label = (np.stack([sample[name] for sample in samples]) for name in ("image", "label"))
    params, loss = train_step(params, image, label)
    step += 1
    ids = " ".join(f"{sample.generation}:{sample.position}" for sample in samples)
    print(f"rank {jax.process_index()} step {step} loss {loss:.3f} samples {ids}", flush=True)
    if step % args.save_every == 0:
        save(path, params=params, stream=stream.state_dict(), step=step)
