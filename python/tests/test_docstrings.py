"""Docstrings: their examples run, and every public name has one. Those of torch are in test_docstrings_torch.py."""

import importlib

import docstring_examples
import pytest

EXAMPLES = docstring_examples.examples(docstring_examples.modules(torch=False))
WITHOUT_TORCH = [
    test for test in EXAMPLES if not docstring_examples.NEEDS_TORCH.search(docstring_examples.source(test))
]


@pytest.mark.parametrize("test", WITHOUT_TORCH, ids=lambda test: test.name)
def test_example_runs(test, tmp_path, monkeypatch):
    if docstring_examples.NEEDS_GRAIN.search(docstring_examples.source(test)):
        pytest.importorskip("grain")
    monkeypatch.chdir(tmp_path)
    docstring_examples.run(test, tmp_path)


@pytest.mark.parametrize("name", ["ringreel", "ringreel.grain", "ringreel.recordio", "ringreel.wirehead"])
def test_every_public_name_has_an_example(name):
    if name == "ringreel.grain":
        pytest.importorskip("grain")
    assert docstring_examples.without_example(importlib.import_module(name)) == []
