"""Saved states are refused by an object with other arguments."""

import pytest

from ringreel._state import check_state

STATE = {"format": "x/1", "seed": 3, "place": 7}


def test_matching_state_is_accepted():
    check_state(STATE, "x/1", {"seed": 3})


@pytest.mark.parametrize(
    ("state", "made", "message"),
    [
        (None, {}, "state: expected the format 'x/1', found NoneType"),
        ({}, {}, "state: expected the format 'x/1', found None"),
        ({**STATE, "format": "y/1"}, {}, "state: expected the format 'x/1', found 'y/1'"),
        (STATE, {"seed": 4}, "the state was saved with seed=3, but seed is 4: use the same arguments"),
        (STATE, {"size": 1}, "the state was saved with size=None, but size is 1: use the same arguments"),
    ],
)
def test_other_states_are_refused(state, made, message):
    with pytest.raises(ValueError) as error:
        check_state(state, "x/1", made)
    assert str(error.value) == message
