"""Arguments of a wrong type are refused at once. The error names argument, value, and what is accepted."""

import re

import pytest

import ringreel


@pytest.mark.parametrize(
    "given, message",
    [
        ({"seed": 1.5}, "seed: expected an integer, found 1.5"),
        ({"seed": "x"}, "seed: expected an integer, found 'x'"),
        (
            {"pad_value": "x"},
            "pad_value: expected a number, or a dict of numbers by part, found 'x'",
        ),
        (
            {"pad_value": "1"},
            "pad_value: expected a number, or a dict of numbers by part, found '1'",
        ),
        (
            {"pad_value": None},
            "pad_value: expected a number, or a dict of numbers by part, found None",
        ),
        ({"pad_value": {"data": "1"}}, "pad_value of part 'data': expected a number, found '1'"),
        ({"epochs": 1.5}, "epochs: expected an integer, or None, found 1.5"),
        ({"threads": "2"}, "threads: expected an integer, or None, found '2'"),
        ({"prefetch_bytes": 1e6}, "prefetch_bytes: expected an integer, or None, found 1000000.0"),
        ({"rank": 0.0, "world_size": 2}, "rank: expected an integer, found 0.0"),
        ({"rank": 0, "world_size": "2"}, "world_size: expected an integer, found '2'"),
        ({"timeout": "1"}, "timeout: expected a number, or None, found '1'"),
    ],
)
def test_stream_arguments_of_a_wrong_type_are_refused(config, given, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        ringreel.Ring(config()).stream(**given)


def test_a_negative_timeout_is_refused_at_once(config):
    with pytest.raises(ValueError, match="^timeout: expected seconds, 0 or more, or None, found -1$"):
        ringreel.Ring(config()).stream(timeout=-1)


@pytest.mark.parametrize("make", [ringreel.StreamLoader, ringreel.Mixture])
def test_seeds_of_loaders_and_mixtures_are_integers(make):
    given = ([1], 1) if make is ringreel.StreamLoader else ([[1]],)
    with pytest.raises(TypeError, match=r"^seed: expected an integer, found 1\.5$"):
        make(*given, seed=1.5)


def test_none_as_a_part_is_refused(config):
    with ringreel.Ring(config(SAMPLE=["data", "label"])).generator() as generator:
        for sample in ((1, None), {"data": 1, "label": None}):
            with pytest.raises(ringreel.SampleError, match="^part 'label' is None: expected an array,"):
                generator.write(sample)
        with pytest.raises(ringreel.SampleError, match="^part 'label' is None: expected an array,"):
            generator.write_batch({"data": [1, 2], "label": None})
        assert generator.written == 0


@pytest.mark.parametrize("stop", [1, "now"])
def test_stop_that_is_neither_event_nor_callable_is_refused(config, stop):
    message = f"^stop: expected a threading.Event, a callable without arguments, or None, found {stop!r}$"
    for run in (lambda: ringreel.run_generator([], config(), stop=stop), lambda: ringreel.run_manager(config(), stop)):
        with pytest.raises(TypeError, match=message):
            run()
