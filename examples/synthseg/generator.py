"""Write samples of SynthSeg's BrainGenerator into a ring, through the command `ringreel put`.

    PYTHONPATH=~/SynthSeg python generator.py -c config.yaml --data ~/SynthSeg/data

It runs in SynthSeg's environment (Python 3.6 or later), in which ringreel need not be installed. The command must be in
PATH.
"""

import argparse
import io
import os
import signal
import struct
import subprocess
import sys

import newer_keras  # noqa: F401  no effect with Keras 2.3.1
import numpy as np
from ext.lab2im.edit_volumes import align_volume_to_ref
from SynthSeg.brain_generator import BrainGenerator

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-c", "--config", default="config.yaml", help="configuration of the ring")
parser.add_argument("--data", default="data", help="SynthSeg's folder of label maps and priors (default: data)")
parser.add_argument("--shape", type=int, default=160, help="voxels along each axis (default: 160)")
parser.add_argument("-n", "--samples", type=int, help="stop after this many samples (default: at a signal)")
args = parser.parse_args()

put = subprocess.Popen(["ringreel", "put", "-c", args.config], stdin=subprocess.PIPE)


def stop(number, frame):
    """End without the sample that is being made; `put` first finishes those that are in the ring."""
    put.terminate()
    os._exit(put.wait())


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)

# As in SynthSeg's scripts/tutorials/3-training.py, whose other parameters are the defaults.
priors = os.path.join(args.data, "labels_classes_priors", "{}.npy").format
labels = np.load(priors("synthseg_segmentation_labels"))
brains = BrainGenerator(
    os.path.join(args.data, "training_label_maps"),
    generation_labels=priors("generation_labels"),
    n_neutral_labels=18,
    output_labels=labels,
    generation_classes=priors("generation_classes"),
    output_shape=args.shape,
)
classes = np.unique(labels)
made = 0
while made != args.samples and put.poll() is None:
    # SynthSeg returns the axes of the label maps. Here they become right, front, up.
    image, label = (align_volume_to_ref(volume, brains.aff) for volume in brains.generate_brain())
    sample = io.BytesIO()
    # Training needs classes without gaps: 0 to 31, in the order of FreeSurfer's values 0 to 60.
    np.savez(sample, image=image.astype(np.float32), label=np.searchsorted(classes, label).astype(np.uint8))
    try:
        put.stdin.write(struct.pack("<Q", sample.getbuffer().nbytes))
        put.stdin.write(sample.getbuffer())
        put.stdin.flush()
    except BrokenPipeError:  # `put` has ended; its message is on stderr
        break
    made += 1
put.communicate()
sys.exit(put.returncode)
