"""`ringreel._transforms`: which parameters of a user's function are requests, and the random numbers of a sample."""

import functools

import numpy as np
import pytest

import ringreel
from ringreel._transforms import Transform, random_of


def sample_at(epoch=3, generation=2, position=5):
    return ringreel.Sample({}, {"number": 9}, "id", generation, position, False, epoch)


def plain(value):
    return value


def with_default(value, scale=2, rng=None):
    return value * scale, rng


class Method:
    def __call__(self, value, *, info, rng):
        return value, rng, info


class Module:
    """Passes its arguments on, as a torch.nn.Module does."""

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def forward(self, value, rng):
        return value, rng


def test_parameters_are_given_by_name():
    sample, rng = sample_at(), np.random.default_rng(0)
    for function, wanted in [
        (plain, 4),
        (with_default, (8, rng)),
        (Method(), (4, rng, sample)),
        (Module(), (4, rng)),
        (lambda value, info, rng: (info, rng, value), (sample, rng, 4)),
        (lambda info: info, 4),  # the first parameter is the value, whatever its name is
        (lambda rng, info: (rng, info), (4, sample)),
        (lambda value, **more: (value, more), (4, {})),
        (functools.partial(with_default, rng=1), (8, 1)),
        (functools.partial(with_default, scale=3), (12, rng)),
        (str, "4"),
    ]:
        assert Transform("transform", function)(4, sample, rng) == wanted


def test_only_callables_are_accepted():
    with pytest.raises(TypeError, match="^transform: expected a callable, found 3$"):
        Transform("transform", 3)


def test_signature_is_inspected_once(monkeypatch):
    transform = Transform("transform", with_default)
    monkeypatch.setattr("inspect.signature", None)
    assert transform.has_rng and transform(1, sample_at(), None) == (2, None)


def test_random_numbers_are_those_of_the_documented_key():
    def drawn(seed, **where):
        return random_of(seed, sample_at(**where)).integers(1 << 62)

    first = drawn(7)
    assert first == np.random.default_rng([7, 3, 2, 5]).integers(1 << 62) == drawn(7)
    others = [drawn(8), drawn(7, epoch=4), drawn(7, generation=3), drawn(7, position=6), drawn((1 << 64) - 1)]
    assert len({first, *others}) == 6
    assert drawn(7, epoch=None) == drawn(7, epoch=0)
