"""The examples in the package's docstrings, for test_docstrings.py and test_docstrings_torch.py.

Each example runs in a fresh directory with a configuration, `config.yaml`, and its ring `demo.ring`, which
has one generation of four samples. The names `ringreel` and `np` are defined.
"""

import doctest
import importlib
import importlib.util
import inspect
import io
import pathlib
import pkgutil
import re

import numpy as np

import ringreel

CONFIG = """\
DBNAME: demo            # the ring is the directory demo.ring beside this file
SWAP_CAP: 4             # samples in a generation
SAMPLE: [data, label]   # the names of a sample's parts, in order
"""

NEEDS_TORCH = re.compile(r"\bimport torch\b|\bringreel\.torch\b|\.torch\(")
NEEDS_GRAIN = re.compile(r"\bimport grain\b")


def examples(modules):
    """Returns the examples of these modules, a doctest for each docstring."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    for name in modules:
        for test in finder.find(importlib.import_module(name), extraglobs={"ringreel": ringreel, "np": np}):
            if test.examples:
                found[test.name] = test
    return [found[name] for name in sorted(found)]


def source(test):
    """Returns the statements of an example."""
    return "".join(example.source for example in test.examples)


def modules(torch):
    """Returns the names of the package's modules that import torch, or of those that do not."""
    names = ["ringreel"]
    for module in pkgutil.walk_packages(ringreel.__path__, "ringreel."):
        if module.name == "ringreel._grain_stream" and importlib.util.find_spec("grain") is None:
            continue
        path = pathlib.Path(ringreel.__path__[0], *module.name.split(".")[1:])
        if (module.ispkg or path.with_suffix(".py").exists()) and path.name != "__main__":
            names.append(module.name)
    return [name for name in names if ("torch" in name) == torch]


def run(test, directory):
    """Runs an example in `directory`, the current directory, and fails with doctest's report."""
    (directory / "config.yaml").write_text(CONFIG)
    samples = [(np.full((2, 3), n, np.float32), n) for n in range(4)]
    assert ringreel.run_generator(samples, "config.yaml", promote=True).delivered == 4
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.write)
    assert runner.summarize(verbose=False).failed == 0, report.getvalue()


def without_example(module):
    """Returns the names of a module's `__all__`, and of their public members, that have no example.

    A property needs none of its own: an example of its class may use it.
    """
    missing = []
    for name in module.__all__:
        value = getattr(module, name)
        if not callable(value):
            continue
        members = public_members(value) if inspect.isclass(value) else {}
        texts = [text for text in map(inspect.getdoc, [value, *members.values()]) if text]
        lines = "\n".join(line for text in texts for line in text.splitlines() if re.match(r"\s*(>>>|\.\.\.) ", line))
        if ">>> " not in (inspect.getdoc(value) or ""):
            missing.append(name)
        for member, function in members.items():
            used = isinstance(function, property) and re.search(rf"\.{member}\b(?!\()", lines)
            if not used and ">>> " not in (inspect.getdoc(function) or ""):
                missing.append(f"{name}.{member}")
    return missing


def public_members(kind):
    """Returns the public methods and properties of a class that are defined in this package."""
    members = {}
    for base in reversed(kind.__mro__):
        if base.__module__.split(".")[0] == "ringreel":
            members |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return {name: value for name, value in members.items() if inspect.isroutine(value) or isinstance(value, property)}
