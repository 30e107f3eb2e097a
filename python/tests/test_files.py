"""Lists, patterns and folders of files."""

import os

import pytest

import ringreel
from ringreel import Files, StreamLoader, recordio


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "c.csv", ".hidden", "deep/d.txt"):
        (tmp_path / "in" / name).write_text(f"{name}\n")
    return tmp_path / "in"


def test_patterns_and_folders_are_sorted_and_lists_keep_their_order(folder):
    assert Files("in/*.txt").paths == ["in/a.txt", "in/b.txt"]
    assert Files("in/**/*.txt").paths == ["in/a.txt", "in/b.txt", "in/deep/d.txt"]
    assert Files("in").paths == ["in/a.txt", "in/b.txt", "in/c.csv"]
    assert Files(["in/b.txt", folder / "a.txt"]).paths == ["in/b.txt", str(folder / "a.txt")]
    assert Files(["in/deep", "in/*.csv", b"in/a.txt"]).paths == ["in/deep/d.txt", "in/c.csv", "in/a.txt"]
    assert Files(path for path in ["in/b.txt"]).paths == ["in/b.txt"]
    assert repr(Files("in")) == "<ringreel.Files 3 files (in/a.txt, ...)>"


def test_loader_reads_lists_patterns_and_folders(folder):
    for source in ("in/*.txt", Files("in/*.txt"), Files(["in/a.txt", "in/b.txt"])):
        assert list(StreamLoader(source, 3, epochs=2)) == [["a.txt", "b.txt"]] * 2
    assert list(StreamLoader("in", 3)) == list(StreamLoader(folder, 3)) == [["a.txt", "b.txt", "c.csv"]]


def test_existing_file_is_no_pattern(folder):
    (folder / "[x].txt").write_text("literal\n")
    (folder / "x.txt").write_text("matched\n")
    assert list(StreamLoader("in/[x].txt", 1)) == [["literal"]]
    assert Files("in/[x].txt").paths == ["in/[x].txt"]


def test_folder_of_records_leaves_out_their_indexes(folder):
    for name in ("b", "a"):
        with recordio.MXIndexedRecordIO(f"in/deep/{name}.idx", f"in/deep/{name}.rec", "w") as out:
            out.write_idx(0, name.encode())
    with pytest.raises(ValueError, match=r"has .rec files and others, such as d.txt: name the files by a pattern"):
        Files("in/deep")
    os.remove("in/deep/d.txt")
    assert Files("in/deep").paths == ["in/deep/a.rec", "in/deep/b.rec"]
    assert list(StreamLoader("in/deep", 2)) == [[b"a", b"b"]]


def test_list_of_existing_paths_is_ambiguous(folder):
    paths = ["in/none.txt", "in/a.txt"]
    for source in (paths, tuple(paths), [folder / "a.txt"], [b"in/a.txt"]):
        with pytest.raises(ValueError, match=r"is ambiguous. Pass ringreel.Files\(paths\) for the contents .* lambda"):
            StreamLoader(source, 2)
        with pytest.raises(ValueError, match="is ambiguous"):
            ringreel.Shard(source)
    assert list(StreamLoader(lambda: paths, 2)) == [paths]
    assert list(StreamLoader(["no path", "", "a\0b"], 3)) == [["no path", "", "a\0b"]]


def test_missing_and_repeated_files_are_refused(folder):
    os.symlink("a.txt", "in/link.txt")
    for paths, error, message in [
        ("in/*.rec", FileNotFoundError, r"no file matches the pattern 'in/\*.rec'"),
        ("in/none", FileNotFoundError, "in/none"),
        (["in/a.txt", "in/./a.txt"], ValueError, "is the same file as in/a.txt, so its items would be read twice"),
        ("in/*.txt", ValueError, "in/link.txt is the same file as in/a.txt"),
        ([], ValueError, "expected at least one path"),
        (5, TypeError, "expected a path or an iterable of paths, found int"),
        ([5], TypeError, "expected paths, found 5"),
    ]:
        with pytest.raises(error, match=message):
            Files(paths)
    os.mkdir("in/empty")
    with pytest.raises(FileNotFoundError, match="the folder in/empty has no files"):
        StreamLoader("in/empty", 1)
