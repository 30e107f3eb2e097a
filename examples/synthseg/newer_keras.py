"""Let SynthSeg's generator run with Keras after 2.3.1, as in TensorFlow 2.15, by one change to a layer."""

import functools

from ext.lab2im.layers import SampleResolution

original = SampleResolution.call


@functools.wraps(original)
def call(self, *args, **options):
    """Restore a tensor that `call` replaces by one with a batch axis: newer Keras calls each layer more than once."""
    tensor = self.min_res_tens
    try:
        return original(self, *args, **options)
    finally:
        self.min_res_tens = tensor


SampleResolution.call = call
