"""Lists, patterns and folders of files."""

import glob
import os
from collections.abc import Iterable
from typing import Any, Union

from ringreel._wording import counted

#: The path of a file.
Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
# How many items of a list are examined for paths.
_EXAMINED = 100


class Files:
    r"""Files whose contents are read one file after the other, as one source of items.

    Pass it to ``StreamLoader`` or ``Shard``. The items of a file are those of its path alone: the records of
    a ``.rec`` file, and the lines of any other one. The files are listed once, when the object is made.

    Args:
        paths (Any): A path, or an iterable of paths. Each is one of:

            - a file;
            - a folder: the files in it, sorted by name, without hidden files, subfolders, and the indexes
              (``x.idx`` beside ``x.rec``);
            - a pattern of ``glob``, sorted by path; ``**`` also matches subfolders. The path of an existing
              file or folder is no pattern.

            The order of an iterable is kept.

    Raises:
        FileNotFoundError: A path does not exist, a pattern matches no file, or a folder has no files.
        ValueError: A file is named twice, there is no path, or a folder has both ``.rec`` and other files:
            name the files by a pattern then.
        TypeError: ``paths`` is neither a path nor an iterable of paths.

    Example:
        >>> import pathlib
        >>> for name in ("b", "a"):
        ...     size = pathlib.Path(f"{name}.txt").write_text(f"{name}1\n{name}2\n")
        >>> ringreel.Files("*.txt").paths
        ['a.txt', 'b.txt']
        >>> list(ringreel.StreamLoader(ringreel.Files(["b.txt", "a.txt"]), batch_size=3))
        [['b1', 'b2', 'a1'], ['a2']]
    """

    def __init__(self, paths: Any) -> None:
        if not is_path(paths) and not isinstance(paths, Iterable):
            raise TypeError(f"paths: expected a path or an iterable of paths, found {type(paths).__name__}")
        self._paths: list[str] = []
        seen: dict[tuple[int, int], str] = {}
        for given in [paths] if is_path(paths) else paths:
            if not is_path(given):
                raise TypeError(f"paths: expected paths, found {given!r}")
            for path in _files_of(os.fsdecode(given)):
                found = os.stat(path)
                other = seen.setdefault((found.st_dev, found.st_ino), path)
                if other is not path:
                    raise ValueError(f"paths: {path} is the same file as {other}, so its items would be read twice")
                self._paths.append(path)
        if not self._paths:
            raise ValueError("paths: expected at least one path, found none")

    def __repr__(self) -> str:
        return f"<ringreel.Files {names_of(self._paths)}>"

    @property
    def paths(self) -> list[str]:
        """The paths of the files, in the order in which they are read."""
        return list(self._paths)


def names_of(paths: list[str]) -> str:
    """Returns a short text that names the files."""
    return paths[0] if len(paths) == 1 else f"{len(paths)} files ({paths[0]}, ...)"


def is_path(given: Any) -> bool:
    """Returns whether ``given`` has the type of a path."""
    return isinstance(given, (str, bytes, os.PathLike))


def is_pattern(path: str) -> bool:
    """Returns whether ``path`` is a pattern, and not the name of something that exists."""
    return glob.has_magic(path) and not os.path.lexists(path)


def refuse_paths(given: Any) -> None:
    """Refuses a list that may be meant as files, or as the texts that it holds.

    Raises:
        ValueError: ``given`` is a list or tuple of paths, and one of the first of them exists.
    """
    if not isinstance(given, (list, tuple)) or not given or not all(map(is_path, given)):
        return
    for item in given[:_EXAMINED]:
        path = os.fsdecode(item)
        if "\0" not in path and path and os.path.exists(path):
            found = f"a {type(given).__name__} of {counted(len(given), 'path')}, of which {path!r} exists"
            raise ValueError(
                f"source: {found}, is ambiguous. Pass ringreel.Files(paths) for the contents of the files, or the "
                "callable lambda: paths for the paths themselves"
            )


def _files_of(path: str) -> list[str]:
    """Returns the files that a path names."""
    if is_pattern(path):
        found = sorted(name for name in glob.iglob(path, recursive=True) if os.path.isfile(name))
        if not found:
            raise FileNotFoundError(f"paths: no file matches the pattern {path!r}")
        return found
    if not os.path.isdir(path):
        return [path]
    inside = sorted(entry.name for entry in os.scandir(path) if not entry.name.startswith(".") and entry.is_file())
    records = {name for name in inside if name.endswith(".rec")}
    files = [name for name in inside if not (name.endswith(".idx") and f"{name[:-4]}.rec" in records)]
    if not files:
        raise FileNotFoundError(f"paths: the folder {path} has no files")
    if records and len(records) < len(files):
        other = next(name for name in files if name not in records)
        raise ValueError(
            f"paths: the folder {path} has .rec files and others, such as {other}: name the files by a pattern, such "
            f"as {os.path.join(path, '*.rec')!r}"
        )
    return [os.path.join(path, name) for name in files]
