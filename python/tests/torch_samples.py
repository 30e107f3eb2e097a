"""Samples for the tests of `ringreel.torch`, and what is found of them in batches."""

import numpy as np
import torch

# Bytes of a part that is large enough to be mapped, and is not a whole number of pages.
LARGE = 300_001


def pair(number):
    """A sample that is mapped, of two parts that tell its number."""
    data = np.arange(LARGE, dtype=np.uint8)
    data[:3] = number
    return {"data": data, "label": np.full((3, 50_000), number, np.int16)}


def pairs(count, start=0):
    return [pair(start + n) for n in range(count)]


def told(batch):
    """The numbers of the samples in a batch; that all of each is there."""
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
    """The file whose map a tensor lies in; "" for memory of no file."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            start, end = (int(n, 16) for n in fields[0].split("-"))
            if start <= address < end:
                return fields[5] if len(fields) > 5 and "/" in fields[5] else ""
    return ""


def same(found, wanted):
    """Whether two batches are equal to the last bit, in structure and types too."""
    if isinstance(wanted, torch.Tensor):
        assert type(found) is torch.Tensor and found.dtype == wanted.dtype and found.shape == wanted.shape
        return torch.equal(found, wanted)
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted
