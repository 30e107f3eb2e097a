"""The base classes of torch's datasets. To mypy they are the same with torch and without it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class MapStyle:
        pass

    class IterableStyle:
        pass
else:
    from torch.utils.data import Dataset as MapStyle
    from torch.utils.data import IterableDataset as IterableStyle

__all__ = ["IterableStyle", "MapStyle"]
