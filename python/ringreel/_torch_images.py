"""Images out of `.rec` files as an iterable dataset of batches, shared among ranks and loader workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ringreel import _image_options, _ringreel
from ringreel._arguments import given_rank
from ringreel._environment import found_rank
from ringreel._image_options import ImageOptions, Path
from ringreel._length import ADVICE, length_of
from ringreel._torch_bases import IterableStyle
from ringreel.image import _array

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Loader workers of one process, at most.
_MOST_WORKERS = 1024


class ImageRecordStream(IterableStyle):
    """Batches of images out of `.rec` files: a `torch.utils.data.IterableDataset`.

    It finds its rank (from `torch.distributed` if that is initialized, else from the environment) and the worker of a
    `DataLoader`. Each worker of each rank reads a part of the records, and all parts have the same number of batches;
    of all records, up to one less than there are parts is left out. Each iteration is one epoch. Pass it to a
    `DataLoader` with ``batch_size=None``: batches are made here, in threads.

    A batch is a tuple of tensors: the images, the labels as float32, and the masks, if there are some.

    Args:
        path_imgrec: A `.rec` file, a directory of some, or several of either.
        data_shape: Channels (1, 3 or 4), rows and columns of an image.
        batch_size: Images in a batch.
        rank: The rank of this process, with `world_size`; None to find both.
        world_size: The number of ranks.
        **options: See `ringreel.image.ImageOptions`; not `num_parts` and `part_index`.

    Raises:
        TypeError: An unknown parameter.
        ValueError: A parameter that cannot be used.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from ringreel import recordio
        >>> from ringreel.torch import ImageRecordStream
        >>> with recordio.MXRecordIO("train.rec", "w") as out:
        ...     for number in range(8):
        ...         picture = np.full((40, 50, 3), 30 * number, np.uint8)
        ...         offset = out.write(recordio.pack_img((0, number, number, 0), picture, img_fmt=".png"))
        >>> dataset = ImageRecordStream("train.rec", (3, 32, 32), 2, preprocess_threads=1)
        >>> len(dataset)
        4
        >>> for images, labels in DataLoader(dataset, batch_size=None, num_workers=2):
        ...     print(tuple(images.shape), labels.tolist())
        (2, 3, 32, 32) [0.0, 1.0]
        (2, 3, 32, 32) [4.0, 5.0]
        (2, 3, 32, 32) [2.0, 3.0]
        (2, 3, 32, 32) [6.0, 7.0]
    """

    _shares_itself = True

    def __init__(
        self,
        path_imgrec: Path | Sequence[Path],
        data_shape: Sequence[int],
        batch_size: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Unpack[ImageOptions],
    ) -> None:
        given: dict[str, Any] = dict(options)
        for name in ("num_parts", "part_index"):
            if name in given:
                raise TypeError(f"{name}: give rank and world_size instead, or neither to find them")
        self._arguments = _image_options.arguments(path_imgrec, data_shape, batch_size, given)
        self._arguments["equal_parts"] = True
        self._share = given_rank(rank, world_size)
        if self._share is not None and not 0 <= self._share[0] < self._share[1]:
            raise ValueError(f"rank {rank} is not below the world size {world_size}: ranks count from 0")
        # Wrong parameters are reported here, and not in a worker; and the mean image is that of all records.
        self._reader: _ringreel.ImageReader | None = _ringreel.ImageReader(self._arguments)
        self._part = 0, 1
        # The epoch that each worker reads next. Workers are new processes in each epoch, so the memory is shared.
        self._epochs = torch.zeros(_MOST_WORKERS, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that is read next: a number, 0 or more. Without it each iteration continues with the next one.

        Args:
            epoch: Its number.

        Example:
            >>> from ringreel import recordio
            >>> from ringreel.torch import ImageRecordStream
            >>> with recordio.MXRecordIO("train.rec", "w") as out:
            ...     for number in range(8):
            ...         picture = recordio.pack_img((0, number, number, 0), np.zeros((32, 32, 3), np.uint8))
            ...         offset = out.write(picture)
            >>> dataset = ImageRecordStream("train.rec", (3, 32, 32), 4, shuffle=True, preprocess_threads=1)
            >>> dataset.set_epoch(3)
            >>> first = [labels.tolist() for _, labels in dataset]
            >>> dataset.set_epoch(3)
            >>> first == [labels.tolist() for _, labels in dataset]
            True
        """
        self._epochs.fill_(int(epoch))

    def __getstate__(self) -> dict[str, Any]:
        # In a spawned worker torch.distributed is not initialized.
        return {**self.__dict__, "_share": self._rank_and_world_size(), "_reader": None}

    def _rank_and_world_size(self) -> tuple[int, int]:
        """Rank and number of ranks of this process."""
        return found_rank(self._share)

    def __len__(self) -> int:
        """The number of batches of an epoch, over all workers of this rank. Each worker reads its own part.

        Raises:
            TypeError: It varies, because with `round_batch` the first images of an epoch completed the last batches of
                the epoch before.
        """
        return length_of(self)

    def _count(self, share: int, shares: int) -> int:
        """The number of batches of one part."""
        # All parts have the same number of images, so one reader is enough for all workers.
        reader = self._reader_of(share - share % max(shares // self._rank_and_world_size()[1], 1), shares)
        if self._arguments["round_batch"] and len(reader) % self._arguments["batch_size"]:
            raise TypeError(
                "the number of batches varies between epochs, because round_batch completes the last batch of an epoch "
                f"with images of the next one: pass round_batch=False, or {ADVICE}"
            )
        return reader.first_epoch().batches

    def __bool__(self) -> bool:
        """True: how many batches there are is not looked up."""
        return True

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        rank, world_size = self._rank_and_world_size()
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        number = int(self._epochs[worker])
        self._epochs[worker] = number + 1
        reader = self._reader_of(rank * workers + worker, world_size * workers)
        epoch = reader.first_epoch()
        while epoch.number < number:
            epoch = reader.epoch_after(epoch, True)
        return self._batches(reader.batches(epoch))

    def _reader_of(self, part: int, parts: int) -> _ringreel.ImageReader:
        """The reader of a part. A worker that stays keeps it, and with it the memory of its batches."""
        if self._reader is None or self._part != (part, parts):
            self._reader = _ringreel.ImageReader({**self._arguments, "part_index": part, "num_parts": parts})
            self._part = part, parts
        return self._reader

    def _batches(self, batches: _ringreel.ImageBatches) -> Iterator[tuple[Any, ...]]:
        given = self._arguments
        shape, dtype = _image_options.label_shape(given), np.dtype(given["dtype"])
        while (found := batches.next()) is not None:
            pixels, labels, _, masks, _ = found
            batch = [torch.from_numpy(_array(pixels, dtype))]
            batch.append(torch.from_numpy(_array(labels, np.float32)).reshape(-1, *shape))
            if masks is not None:
                batch.append(torch.from_numpy(_array(masks, np.uint8)).reshape(-1, *given["data_shape"][1:]))
            yield tuple(batch)
