"""The buffer between a source and the batches of a loader. Its place in a loader is tested in test_loader.py."""

import pytest

from ringreel._buffer import through_buffer


@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_buffer_keeps_the_order_without_a_text_for_it(size):
    assert list(through_buffer(range(10), size, None)) == list(range(10))


@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_buffer_reads_at_most_its_size_ahead(size):
    read = []
    items = (read.append(n) or n for n in range(10))
    for given, item in enumerate(through_buffer(items, size, "a")):
        assert item in read and len(read) == min(given + size, 10)
    assert sorted(read) == list(range(10))


def test_text_determines_the_order():
    """Another order would repeat and leave out items after a resume with a new version."""
    assert list(through_buffer(range(8), 4, "0 0")) == [1, 4, 5, 0, 3, 6, 2, 7]
    assert list(through_buffer(range(8), 4, "0 0")) != list(through_buffer(range(8), 4, "0 1"))
