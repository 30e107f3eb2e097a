"""Numbers that depend on a text only. They choose the sources of a mixture and the held-out samples."""

import statistics

import pytest

from ringreel._uniform import uniform_of


def test_numbers_are_the_same_in_every_version():
    """Other numbers would change the choices of a mixture that resumes, and mix training and validation samples."""
    assert [uniform_of(text) for text in ("0 0 0", "0 1 0")] == [0.633398068541001, 0.7962011425236009]


def test_numbers_are_uniform_in_0_to_1():
    numbers = [uniform_of(str(n)) for n in range(10_000)]
    assert 0 <= min(numbers) < 0.001 and 0.999 < max(numbers) < 1
    assert statistics.mean(numbers) == pytest.approx(0.5, abs=0.02)
    assert statistics.pstdev(numbers) == pytest.approx(12**-0.5, abs=0.01)
