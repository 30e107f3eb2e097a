"""Images out of `.rec` files, decoded, augmented and batched: MXNet's `ImageRecordIter`, without MXNet.

Parameters and batches are those of MXNet 1.9.1. What differs:

- Bytes of JPEG files differ by the rounding of the decoders: of 97 million bytes 75 % are equal, 0.04 % differ by more
  than 2, and no difference is larger than 8.
- Arrays are NumPy arrays, not NDArrays. Their memory is used again for later batches once they are gone.
- Random choices depend on the seed, the epoch and the record alone, not on threads or parts. They have MXNet's
  distributions, but are not the same choices.
- `shuffle` orders all records of the part anew in each epoch.
- `round_batch=False` fills the remaining slots with zeros and counts them in `pad`; MXNet leaves old images there,
  and `pad` is 0. A batch may be larger than the number of images.
- `DataBatch.index` has the ids of the records; MXNet has zeros there.
- `mean_img` is made of the bytes of the images. MXNet makes it of numbers that `mean_r`, `std_r` and `scale` have
  changed, and then subtracts it from the bytes.
- An unknown parameter is a TypeError; MXNet ignores it. An image that cannot be decoded is an error that names its
  file and byte, and the next call continues behind its batch.
- The missing part of a JPEG file that is cut off has another colour. As in MXNet, that is no error.
- `inter_method=4` (Lanczos), images that are neither JPEG nor PNG files, the element types float16, float64, int8 and
  int32, and `aug_seq` are missing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringreel import _image_options, _ringreel
from ringreel._image_options import ImageOptions, Path
from ringreel._wording import counted

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["DataBatch", "DataDesc", "ImageOptions", "ImageRecordDataset", "ImageRecordIter"]


class _DataDesc(NamedTuple):
    name: str
    shape: tuple[int, ...]


class DataDesc(_DataDesc):
    """Name and shape of an array of a batch, and its element type and layout.

    Attributes:
        name: Its name: "data", "softmax_label".
        shape: Its shape, the batch included.
        dtype: Its element type.
        layout: The meaning of its axes.
    """

    dtype: Any
    layout: str

    def __new__(cls, name: str, shape: Sequence[int], dtype: Any = np.float32, layout: str = "NCHW") -> DataDesc:
        """Makes the description of an array."""
        made = super().__new__(cls, name, tuple(shape))
        made.dtype = dtype
        made.layout = layout
        return made

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The axis of the batch in a layout such as "NCHW"; 0 for None."""
        return 0 if layout is None else layout.find("N")


class DataBatch:
    """The images of one step.

    Attributes:
        data: A list of one array of `batch_size` images.
        label: A list of an array of float32: (batch_size,), or (batch_size, label_width) for several labels, or
            (batch_size, max_objects, object_width) for boxes. Masks follow: uint8, (batch_size, rows, columns).
        pad: How many of the last images do not belong to the epoch.
        index: The ids in the headers of the records.
        bucket_key: None.
        provide_data: As of the iterator.
        provide_label: As of the iterator.
    """

    def __init__(
        self,
        data: list[np.ndarray[Any, Any]],
        label: list[np.ndarray[Any, Any]] | None = None,
        pad: int | None = None,
        index: np.ndarray[Any, Any] | None = None,
        bucket_key: Any = None,
        provide_data: list[DataDesc] | None = None,
        provide_label: list[DataDesc] | None = None,
    ) -> None:
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __repr__(self) -> str:
        shapes = [array.shape for array in self.data], [array.shape for array in self.label or []]
        return f"DataBatch: data shapes: {shapes[0]} label shapes: {shapes[1]} pad: {self.pad}"


class ImageRecordIter(Iterator[DataBatch]):
    """Batches of images out of `.rec` files, epoch after epoch.

    Args:
        path_imgrec: A `.rec` file, a directory of some, or several of either.
        data_shape: Channels (1, 3 or 4), rows and columns of an image.
        batch_size: Images in a batch.
        data_name: Name of the images in `provide_data`.
        label_name: Name of the labels in `provide_label`.
        **options: See `ImageOptions`.

    Attributes:
        batch_size: Images in a batch.
        epoch: Number of the epoch that is being read, from 0.

    Raises:
        OSError: A file cannot be read.
        RingreelError: A file is damaged, or an image cannot be decoded.
        TypeError: An unknown parameter.
        ValueError: A parameter that cannot be used.

    Examples:
        >>> from ringreel import image, recordio
        >>> with recordio.MXRecordIO("train.rec", "w") as out:
        ...     for number in range(5):
        ...         picture = np.full((40, 50, 3), 50 * number, np.uint8)
        ...         offset = out.write(recordio.pack_img((0, number, number, 0), picture, img_fmt=".png"))
        >>> train = image.ImageRecordIter("train.rec", (3, 32, 32), 2, rand_mirror=True, scale=1 / 255)
        >>> for batch in train:
        ...     print(batch.data[0].shape, batch.label[0], batch.pad)
        (2, 3, 32, 32) [0. 1.] 0
        (2, 3, 32, 32) [2. 3.] 0
        (2, 3, 32, 32) [4. 0.] 1
        >>> train.reset()
        >>> train.next().label[0]
        array([1., 2.], dtype=float32)
    """

    def __init__(
        self,
        path_imgrec: Path | Sequence[Path],
        data_shape: Sequence[int],
        batch_size: int,
        *,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **options: Unpack[ImageOptions],
    ) -> None:
        given = _image_options.arguments(path_imgrec, data_shape, batch_size, options)
        self.batch_size = given["batch_size"]
        self._reader = _ringreel.ImageReader(given)
        self._epoch = self._reader.first_epoch()
        self._batches: _ringreel.ImageBatches | None = None
        self._is_complete = False
        self._current: DataBatch | None = None
        channels, rows, columns = given["data_shape"]
        layout = given["layout"]
        shape = (channels, rows, columns) if layout == "NCHW" else (rows, columns, channels)
        self._label_shape = (self.batch_size, *_image_options.label_shape(given))
        self._provide_data = [DataDesc(data_name, (self.batch_size, *shape), np.dtype(given["dtype"]).type, layout)]
        self._provide_label = [DataDesc(label_name, self._label_shape)]
        if given["path_maskrec"]:
            self._provide_label.append(DataDesc("mask", (self.batch_size, rows, columns), np.uint8, "NHW"))

    @property
    def provide_data(self) -> list[DataDesc]:
        """Name, shape, element type and layout of the images of a batch."""
        return self._provide_data

    @property
    def provide_label(self) -> list[DataDesc]:
        """Name, shape and element type of the labels of a batch."""
        return self._provide_label

    @property
    def epoch(self) -> int:
        """Number of the epoch that is being read, from 0."""
        return self._epoch.number

    @property
    def num_images(self) -> int:
        """Number of images of this part."""
        return len(self._reader)

    def reset(self) -> None:
        """Goes to the next epoch. Does nothing before the first batch of an epoch was read."""
        if self._batches is None and not self._is_complete:
            return
        self._epoch = self._reader.epoch_after(self._epoch, self._is_complete)
        self._batches, self._is_complete, self._current = None, False, None

    def iter_next(self) -> bool:
        """Reads the next batch, for `getdata`, `getlabel`, `getpad` and `getindex`. False at the end of the epoch."""
        self._current = None
        if self._is_complete:
            return False
        if self._batches is None:
            self._batches = self._reader.batches(self._epoch)
        found = self._batches.next()
        if found is None:
            self._batches, self._is_complete = None, True
            return False
        pixels, labels, ids, masks, pad = found
        label = [_array(labels, np.float32).reshape(self._label_shape)]
        if masks is not None:
            label.append(_array(masks, np.uint8).reshape(self._provide_label[1].shape))
        data = _array(pixels, self._provide_data[0].dtype)
        self._current = DataBatch(
            [data], label, pad, _array(ids, np.uint64), None, self._provide_data, self._provide_label
        )
        return True

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration at the end of the epoch, until `reset` is called."""
        if self.iter_next() and self._current is not None:
            return self._current
        raise StopIteration

    def __next__(self) -> DataBatch:
        return self.next()

    def __iter__(self) -> ImageRecordIter:
        return self

    def _read(self) -> DataBatch:
        if self._current is None:
            raise ValueError("no batch was read: call iter_next() or next() first")
        return self._current

    def getdata(self) -> np.ndarray[Any, Any]:
        """The images of the batch that was read last."""
        return self._read().data[0]

    def getlabel(self) -> np.ndarray[Any, Any]:
        """The labels of the batch that was read last."""
        label = self._read().label
        assert label is not None
        return label[0]

    def getpad(self) -> int:
        """How many of the last images of the batch that was read last do not belong to the epoch."""
        return self._read().pad or 0

    def getindex(self) -> np.ndarray[Any, Any]:
        """The ids of the records of the batch that was read last."""
        index = self._read().index
        assert index is not None
        return index


class ImageRecordDataset(Sequence[tuple[Any, ...]]):
    """The images of `.rec` files by their position: a map-style dataset.

    It may be pickled, and used in forked children and by several threads.

    Args:
        path_imgrec: A `.rec` file, a directory of some, or several of either.
        data_shape: Channels (1, 3 or 4), rows and columns of an image.
        **options: See `ImageOptions`. Those about batches, order and threads have no meaning here.

    Examples:
        >>> from ringreel import image, recordio
        >>> with recordio.MXRecordIO("train.rec", "w") as out:
        ...     for number in range(5):
        ...         picture = np.full((40, 50, 3), 50 * number, np.uint8)
        ...         offset = out.write(recordio.pack_img((0, number, number, 0), picture, img_fmt=".png"))
        >>> dataset = image.ImageRecordDataset("train.rec", (3, 32, 32), dtype="uint8")
        >>> len(dataset)
        5
        >>> picture, label = dataset[3]
        >>> picture.shape, int(picture.max()), label
        ((3, 32, 32), 150, 3.0)
    """

    def __init__(
        self, path_imgrec: Path | Sequence[Path], data_shape: Sequence[int], **options: Unpack[ImageOptions]
    ) -> None:
        self._arguments = _image_options.arguments(path_imgrec, data_shape, 1, options)
        self._epoch = 0
        self._reader = _ringreel.ImageReader(self._arguments)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch whose random choices images get: a number, 0 or more."""
        self._epoch = int(epoch)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: Any) -> Any:
        """Returns image `index`, its label, and its mask if there are masks.

        The label is a float, or an array of several labels or of boxes.

        Args:
            index: The position of the record in this part; negative ones count from the end.

        Raises:
            IndexError: There is no such image.
            RingreelError: The record is damaged, or the image cannot be decoded.
        """
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"no image {position}: found {counted(len(self), 'image')}")
        pixels, labels, _, masks, _ = self._reader.item(position % len(self), self._epoch)
        shape = _image_options.label_shape(self._arguments)
        label = _array(labels, np.float32).reshape(shape)
        found = _array(pixels, np.dtype(self._arguments["dtype"]))[0], label if shape else float(label)
        if masks is None:
            return found
        return *found, _array(masks, np.uint8).reshape(self._arguments["data_shape"][1:])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reader = _ringreel.ImageReader(self._arguments)


def _array(part: _ringreel.Part, dtype: Any) -> np.ndarray[Any, Any]:
    """The part as an array, without a copy."""
    memory: Any = part.writable()
    array: np.ndarray[Any, Any] = np.ndarray(part.shape, dtype, buffer=memory)
    return array
