"""Samples for the tests of `ringreel.torch`, and checks of batches."""

import numpy as np
import torch

# Size in bytes of a part that is mapped and does not end at a page boundary.
LARGE = 300_001


def pair(number):
    """Returns a sample of two parts with its number, large enough to be mapped."""
    data = np.arange(LARGE, dtype=np.uint8)
    data[:3] = number
    return {"data": data, "label": np.full((3, 50_000), number, np.int16)}


def pairs(count, start=0):
    return [pair(start + n) for n in range(count)]


def told(batch):
    """Returns the numbers of the samples in a batch, and checks that each sample is complete."""
    data, label = batch.values() if isinstance(batch, dict) else batch
    if data.dim() == 1:
        data, label = data[None], label[None]
    for n, number in enumerate(data[:, 0].tolist()):
        assert np.array_equal(data[n].numpy(), pair(number)["data"])
        assert label[n].shape == (3, 50_000) and (label[n] == number).all()
    return data[:, 0].tolist()


def all_told(loader):
    return [number for batch in loader for number in told(batch)]


def lies_in(tensor):
    """Returns the file that a tensor maps, or "" for anonymous memory."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            start, end = (int(n, 16) for n in fields[0].split("-"))
            if start <= address < end:
                return fields[5] if len(fields) > 5 and "/" in fields[5] else ""
    return ""


def same(found, wanted):
    """Returns whether two batches have equal bits, structure and types."""
    if isinstance(wanted, torch.Tensor):
        assert type(found) is torch.Tensor and found.dtype == wanted.dtype and found.shape == wanted.shape
        return torch.equal(found, wanted)
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted
