"""The package as a whole: stubs, layout, names of the tests."""

import ast
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import ringreel
from ringreel import _ringreel

PACKAGE = pathlib.Path(ringreel.__file__).parent
SOURCES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])


def stub_names(body):
    """Returns the names that a stub's module or class defines, and the classes among them."""
    names, classes = set(), {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
    return names, classes


# Members of every class, and those of the buffer protocol that Python before 3.12 does not show.
UNSEEN = {"__buffer__", "__release_buffer__", "__new__", "__module__", "__doc__"}


def test_stub_names_match_the_extension():
    stub = ast.parse((PACKAGE / "_ringreel.pyi").read_text())
    names, classes = stub_names(stub.body)
    runtime = {name for name in vars(_ringreel) if not name.startswith("__") or name == "__version__"} - {"__all__"}
    assert names == runtime
    for name, node in classes.items():
        kind = getattr(_ringreel, name)
        members = {member for member in vars(kind) if member not in UNSEEN}
        assert stub_names(node.body)[0] - UNSEEN == members, name


def test_stub_parameters_match_the_extension():
    stub = ast.parse((PACKAGE / "_ringreel.pyi").read_text())
    functions = [(None, node) for node in stub.body if isinstance(node, ast.FunctionDef)]
    for kind in (node for node in stub.body if isinstance(node, ast.ClassDef)):
        functions += [(kind.name, node) for node in kind.body if isinstance(node, ast.FunctionDef)]
    for owner, node in functions:
        if node.name.startswith("__") or any(getattr(d, "id", "") == "property" for d in node.decorator_list):
            continue
        runtime = getattr(getattr(_ringreel, owner) if owner else _ringreel, node.name)
        found = [name for name in inspect.signature(runtime).parameters if name != "self"]
        given = node.args.args + node.args.kwonlyargs
        assert found == [arg.arg for arg in given if arg.arg != "self"], node.name


def test_every_public_name_exists_and_is_documented():
    assert sorted(ringreel.__all__) == ringreel.__all__
    for name in ringreel.__all__:
        value = getattr(ringreel, name)
        assert name == "__version__" or inspect.getdoc(value), name
        for member, function in vars(value).items() if inspect.isclass(value) else ():
            if not member.startswith("_") and callable(function):
                assert inspect.getdoc(function), f"{name}.{member}"


def test_package_is_typed():
    assert (PACKAGE / "py.typed").exists()
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", ringreel.__version__)


def test_first_sample_does_not_wait_for_an_import(tmp_path):
    program = """
import sys, numpy, ringreel
ring = ringreel.Ring({"RING": sys.argv[1], "SWAP_CAP": 2, "SAMPLE": ["x"]})
generator, known = ring.generator(), set(sys.modules)
for _ in range(2):
    generator.write((numpy.zeros(4),))
generator.finish(promote=True)
dataset = ring.dataset()
dataset[0]["x"], dataset.batch([1, 0])["x"], next(iter(ring.stream()))["x"]
print(sorted(set(sys.modules) - known))
"""
    command = [sys.executable, "-c", program, tmp_path / "ring"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


# Subjects of several modules, and of none.
SUBJECTS = {"docstrings", "docstrings_torch", "format_vectors", "missing", "mongodb", "package", "processes"}


def test_names_of_test_files_are_those_of_modules():
    """Tests of `_x.py`, `x.py` or `x/` are in `test_x.py`, and tests of one aspect of it in `test_x_<aspect>.py`."""
    tests = {path.stem.removeprefix("test_") for path in pathlib.Path(__file__).parent.glob("test_*.py")}
    modules = {path.stem.strip("_") for path in PACKAGE.glob("*.py")} - {"init", "main"}
    modules |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert modules <= tests
    of_modules = {name for name in tests if any(f"{name}_".startswith(f"{module}_") for module in modules)}
    assert tests - of_modules == SUBJECTS


def docstring_lines(node):
    """Returns the number of lines of the docstring of a module, class or function."""
    first = node.body[0]
    return first.end_lineno - first.lineno + 1 if ast.get_docstring(node) else 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short_and_documented(path):
    """At most 500 lines in a file and 60 in a function, docstrings not counted."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    assert path.read_text().count("\n") - sum(map(docstring_lines, documented)) <= 500
    for node in documented:
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno - docstring_lines(node) < 60, node.name


def test_package_imports_neither_torch_nor_ml_dtypes(tmp_path):
    code = "import sys, ringreel; ringreel.Ring({'RING': 'x'}); print({'torch', 'ml_dtypes'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
