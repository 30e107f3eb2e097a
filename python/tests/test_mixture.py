"""Mixture: draws by weight, which are reproducible from any state."""

import collections
import itertools
import json
import pickle
import random

import numpy as np
import pytest
from conftest import numbered, numbers, zip_equal

import ringreel
from ringreel import Mixture, StreamLoader


class Stateful:
    """A stream of ("name", 0), ("name", 1), ... that can be restored, and records its calls."""

    def __init__(self, name, count=None):
        self.name = name
        self.count = count
        self.at = 0
        self.loads = 0
        self.closed = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == self.count:
            raise StopIteration
        self.at += 1
        return self.name, self.at - 1

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.loads += 1
        self.at = state["at"]

    def close(self):
        self.closed += 1


def sequence(mixture, count):
    """Returns the source numbers of `count` draws."""
    drawn = []
    for _ in itertools.islice(mixture, count):
        drawn.append(mixture.last)
    return drawn


def endless(count):
    return [itertools.repeat(n) for n in range(count)]


# Draws.


def test_sources_are_drawn_by_their_weights():
    for weights in ([1, 1], [3, 1], [0.2, 0.5, 0.3], [5, 0, 5], np.array([2, 6], np.float32)):
        mixture = Mixture(endless(len(weights)), weights, seed=1)
        counts = collections.Counter(itertools.islice(mixture, 10_000))
        for n, weight in enumerate(weights):
            # Within six standard deviations. The seed is fixed, so the test is deterministic.
            assert abs(counts[n] - 10_000 * weight / sum(weights)) <= 300 * (weight > 0)
        assert mixture.given == tuple(counts[n] for n in range(len(weights)))
    assert sequence(Mixture(endless(2)), 100) == sequence(Mixture(endless(2), [7, 7]), 100)


def test_draws_do_not_depend_on_one_another():
    drawn = sequence(Mixture(endless(2), seed=3), 20_000)
    for apart in (1, 2, 3, 8):
        pairs = collections.Counter(zip(drawn, drawn[apart:]))
        assert all(abs(count - 5000) < 400 for count in pairs.values()) and len(pairs) == 4


def test_neighbouring_seeds_give_independent_draws():
    drawn = [sequence(Mixture(endless(2), seed=seed), 1000) for seed in (0, 1, 2, -1, 2**70)]
    assert drawn[0] == sequence(Mixture(endless(2), seed=np.int8(0)), 1000)
    for one, two in itertools.combinations(drawn, 2):
        assert 400 < sum(a == b for a, b in zip_equal(one, two)) < 600


def test_draws_are_the_same_in_every_version():
    assert sequence(Mixture(endless(3), [3, 2, 1], seed=7), 20) == DRAWS


DRAWS = [0, 2, 0, 0, 2, 1, 1, 0, 0, 2, 0, 1, 1, 0, 1, 1, 0, 1, 1, 2]


def test_mixtures_and_global_random_states_are_independent():
    alone = sequence(Mixture(endless(2), seed=1), 50)
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()
    first, second = Mixture(endless(2), seed=1), Mixture(endless(2), seed=2)
    assert [one for one, _ in itertools.islice(zip_equal(first, second), 50)] == alone
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_items_are_unchanged_and_in_the_order_of_their_source():
    items = [object() for _ in range(20)]
    mixture = Mixture([items[:10], iter(items[10:])], seed=2)
    assert mixture.last is None
    drawn = collections.defaultdict(list)
    for item in mixture:
        drawn[mixture.last].append(item)
    assert drawn == {0: items[:10], 1: items[10:]}


def test_sources_are_not_read_ahead():
    sources = [Stateful("a"), Stateful("b"), Stateful("c")]
    mixture = Mixture(sources, [1, 1, 0])
    for count in range(50):
        assert sum(source.at for source in sources) == count == sum(mixture.given)
        next(mixture)
    assert sources[2].at == 0


# Ends.


def test_ended_source_leaves_the_ratios_of_the_others():
    for seed in range(5):
        mixture = Mixture([range(10), itertools.repeat("b"), itertools.repeat("c")], [8, 3, 1], seed)
        drawn = sequence(mixture, 12_000)
        counts = collections.Counter(drawn[100:])
        assert drawn.count(0) == 10 and counts[0] == 0
        assert abs(counts[1] / counts[2] - 3) < 0.3


def test_draw_from_an_ended_source_is_repeated_by_the_weights():
    # Source 0 is empty, and half of the seeds choose it first.
    first = [sequence(Mixture([[], ["b"], ["c"]], [2, 1, 1], seed), 1)[0] for seed in range(2000)]
    assert 900 < first.count(1) < 1100 and first.count(0) == 0


def test_a_mixture_ends_with_the_last_source_or_with_the_first():
    for seed in range(10):
        mixture = Mixture([range(5), range(20)], seed=seed)
        assert len(list(mixture)) == 25 and next(mixture, None) is None
        mixture = Mixture([range(5), range(20)], seed=seed, stop="first")
        drawn = sequence(mixture, 30)
        assert drawn.count(0) == 5 and drawn.count(1) < 20
        assert next(mixture, None) is None and next(mixture, None) is None
    assert list(Mixture([[], []])) == [] and list(Mixture([[1], [2]], [0, 1])) == [2]
    assert list(Mixture([[], [1]], [0, 1], stop="first")) == [1]


# State.


def fakes():
    return [Stateful("a"), Stateful("b", 15), range(1000, 1010), [2000, 2001]]


@pytest.mark.parametrize("stop", ["all", "first"])
def test_state_restores_the_following_items_exactly(stop):
    whole = list(itertools.islice(Mixture(fakes(), [4, 3, 2, 1], 5, stop), 100))
    for at in range(0, len(whole) + 1, 3):
        mixture = Mixture(fakes(), [4, 3, 2, 1], 5, stop)
        assert list(itertools.islice(mixture, at)) == whole[:at]
        state = json.loads(json.dumps(mixture.state_dict()))
        sources = fakes()
        again = Mixture(sources, [4, 3, 2, 1], 5, stop)
        again.load_state_dict(state)
        assert again.state_dict() == state and again.last == mixture.last and again.given == mixture.given
        assert sources[0].loads == 1
        assert list(itertools.islice(again, 100 - at)) == whole[at:]
        # The same object can go back, because every source can.
        again.load_state_dict(state)
        assert list(itertools.islice(again, 100 - at)) == whole[at:]


def test_state_of_a_source_that_was_read_before_is_kept():
    source = Stateful("a")
    next(source)
    state = Mixture([source]).state_dict()
    again = Mixture([Stateful("a")])
    again.load_state_dict(state)
    assert next(again) == ("a", 1)


def test_empty_state_does_not_move_a_source():
    class Begun(Stateful):
        def state_dict(self):
            return {"at": self.at} if self.at else {}

        def load_state_dict(self, state):
            self.at = state.get("at", self.at)

    mixture = Mixture([Begun("a")])
    state = mixture.state_dict()
    mixture.load_state_dict(state)
    assert next(mixture) == ("a", 0)
    with pytest.raises(ValueError, match="source 0 of a mixture is an iterator .Begun. that was already read from"):
        mixture.load_state_dict(state)
    assert next(mixture) == ("a", 1)


def test_generator_can_be_restarted_only_before_it_was_read():
    def make():
        return Mixture([(n for n in range(10)), Stateful("b")], seed=1)

    mixture = make()
    list(itertools.islice(mixture, 9))
    state = mixture.state_dict()
    rest = list(itertools.islice(mixture, 9))
    again = make()
    again.load_state_dict(state)
    again.load_state_dict(state)  # it was not read yet
    assert list(itertools.islice(again, 9)) == rest
    for used in (again, mixture):
        with pytest.raises(
            ValueError, match="source 0 of a mixture is an iterator .generator. that was already read from"
        ):
            used.load_state_dict(state)
    ended = Mixture([iter([1])])
    list(ended)
    with pytest.raises(ValueError, match="make a new iterator"):
        ended.load_state_dict(Mixture([iter([1])]).state_dict())


def test_a_loader_is_a_source_with_a_state():
    def make():
        return Mixture([StreamLoader(range(20), 3, 8, True, n, epochs=None) for n in range(2)], seed=4)

    mixture = make()
    list(itertools.islice(mixture, 11))
    state = json.loads(json.dumps(mixture.state_dict()))
    again = make()
    again.load_state_dict(state)
    assert list(itertools.islice(again, 40)) == list(itertools.islice(mixture, 40))


def test_state_of_another_mixture_is_refused_and_changes_nothing():
    mixture = Mixture(fakes()[:2], [4, 3], 5)
    next(mixture)
    state = mixture.state_dict()
    for other, what in [
        (Mixture(fakes()[:2], [4, 4], 5), r"weights=\[4.0, 3.0\]"),
        (Mixture(fakes()[:3], [4, 3, 1], 5), r"weights=\[4.0, 3.0\]"),
        (Mixture(fakes()[:2], [4, 3], 6), "seed=5"),
        (Mixture(fakes()[:2], [4, 3], 5, "first"), "stop='all'"),
        (Mixture(fakes()[1:3], [4, 3], 5), "source 1 of a mixture has no state_dict, but the saved state has one"),
        (Mixture([[1], Stateful("b")], [4, 3], 5), "source 0 of a mixture has no state_dict"),
    ]:
        before = other.state_dict()
        with pytest.raises(ValueError, match=what):
            other.load_state_dict(state)
        assert other.state_dict() == before
    with pytest.raises(ValueError, match="source 0 of a mixture has state_dict, but the saved state has none"):
        mixture.load_state_dict({**state, "sources": [None, None]})
    for wrong in ({}, None, StreamLoader([1], 1).state_dict()):
        with pytest.raises(ValueError, match="state: expected the format 'ringreel.Mixture/1'"):
            mixture.load_state_dict(wrong)
    assert mixture.state_dict() == state


def test_shorter_source_is_an_error():
    mixture = Mixture([range(10)])
    list(itertools.islice(mixture, 5))
    again = Mixture([range(3)])
    again.load_state_dict(mixture.state_dict())
    with pytest.raises(ringreel.RingreelError, match="source 0 of a mixture ended after 3 items, but 5 had been read"):
        next(again)


# Errors and closing.


def test_an_error_names_the_source_and_its_draw_does_not_count():
    class Shaky:
        def __init__(self):
            self.calls = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.calls += 1
            if self.calls % 2 == 0:
                raise OSError("away")
            return self.calls

    mixture = Mixture([Shaky(), itertools.repeat("b")], seed=1)
    drawn, errors = [], []
    while len(drawn) < 200:
        try:
            next(mixture)
            drawn.append(mixture.last)
        except OSError as error:
            errors.append(error)
    assert drawn == sequence(Mixture(endless(2), seed=1), 200)
    assert errors[3].__notes__ == ["ringreel: source 0 of a mixture, item 4"]


def test_invalid_arguments_are_refused(config):
    for sources, keys, error, message in [
        ([], {}, ValueError, "at least one source"),
        ([[1]], {"weights": [1, 2]}, ValueError, "expected 1, one for each source, found 2"),
        ([[1]], {"weights": [0]}, ValueError, "not all 0"),
        ([[1], [2]], {"weights": [1, -1]}, ValueError, "0 or more"),
        ([[1], [2]], {"weights": [1, float("nan")]}, ValueError, "finite"),
        ([[1], [2]], {"weights": [1, float("inf")]}, ValueError, "finite"),
        ([[1]], {"stop": "last"}, ValueError, "expected 'all' or 'first', found 'last'"),
        ([[1]], {"seed": 1.5}, TypeError, "integer"),
        ([[1], 5], {}, TypeError, "source 1 of a mixture: expected an iterable, found int"),
        (["path"], {}, TypeError, "expected an iterable, found str"),
        ([ringreel.Ring(config())], {}, TypeError, r"found Ring: pass its stream\(\)"),
    ]:
        with pytest.raises(error, match=message):
            Mixture(sources, **keys)


def test_leaving_a_mixture_closes_its_sources():
    closed = []

    def generator():
        try:
            yield from range(5)
        finally:
            closed.append("generator")

    class Anew:
        def __iter__(self):
            return generator()

    source = Stateful("a")
    with Mixture([source, generator(), Anew(), [1], Stateful("never read")], seed=1) as mixture:
        while 0 in mixture.given[:4]:
            next(mixture)
    assert source.closed == 1 and closed == ["generator"] * 2
    assert list(mixture) == []
    with pytest.raises(ringreel.RingreelError, match="closed: save its state before"):
        mixture.state_dict()


def test_a_mixture_can_be_pickled():
    mixture = Mixture(fakes(), seed=3)
    list(itertools.islice(mixture, 10))
    copy = pickle.loads(pickle.dumps(mixture))
    assert list(itertools.islice(copy, 30)) == list(itertools.islice(mixture, 30))


# Rings.


@pytest.fixture
def rings(config, tmp_path):
    """Two rings, with the numbers 0 to 19 and 100 to 109."""
    made = []
    for name, count, start in (("a", 20, 0), ("b", 10, 100)):
        ring = ringreel.Ring(config(RING=str(tmp_path / name), SWAP_CAP=count))
        with ring.generator() as generator:
            for sample in numbered(count, start=start):
                generator.write(sample)
            generator.finish(promote=True)
        made.append(ring)
    return made


def test_the_streams_of_rings_are_mixed(rings):
    with Mixture([ring.stream(epochs=1) for ring in rings], [2, 1], seed=1) as mixture:
        drawn = []
        for sample in mixture:
            assert isinstance(sample, ringreel.Sample)
            drawn += numbers([sample])
            assert (drawn[-1] >= 100) == (mixture.last == 1)
    assert [n for n in drawn if n < 100] == list(range(20))
    assert [n for n in drawn if n >= 100] == list(range(100, 110))
    assert mixture.given == (20, 10)


def test_a_mixture_of_rings_is_restored(rings):
    def make():
        return Mixture([ring.stream(epochs=2) for ring in rings], [2, 1], seed=1)

    with make() as mixture:
        list(itertools.islice(mixture, 25))
        state = mixture.state_dict()
        rest = numbers(mixture)
    with make() as again:
        again.load_state_dict(state)
        assert numbers(again) == rest and len(rest) == 35


def test_generator_that_raised_does_not_count_as_ended():
    def failing(line):
        if line == 1:
            raise ZeroDivisionError
        return line

    mixture = Mixture([StreamLoader([0, 1, 2], 1, parse=failing, epochs=None), itertools.repeat("b")], [1, 1])
    given, errors = [], []
    for _ in range(60):
        try:
            given.append(next(mixture))
        except (ringreel.RingreelError, ZeroDivisionError) as error:
            errors.append(str(error))
    assert len(errors) > 30 and "which cannot continue after its error" in errors[-1]
    assert mixture.state_dict()["ended"] == [False, False]
