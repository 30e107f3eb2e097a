"""The examples in docstrings that need torch."""

import docstring_examples
import pytest

torch = pytest.importorskip("torch")

EXAMPLES = docstring_examples.examples(docstring_examples.modules(torch=False) + docstring_examples.modules(torch=True))
WITH_TORCH = [test for test in EXAMPLES if docstring_examples.NEEDS_TORCH.search(docstring_examples.source(test))]


@pytest.mark.parametrize("test", WITH_TORCH, ids=lambda test: test.name)
def test_example_runs(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docstring_examples.run(test, tmp_path)


def test_every_public_name_of_torch_has_an_example():
    import ringreel.torch

    assert docstring_examples.without_example(ringreel.torch) == []
