"""Words of messages: the noun after a number."""

import pytest
from conftest import add, numbered

import ringreel
from ringreel import recordio
from ringreel._wording import counted


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0, "sample"), "0 samples"),
        ((1, "sample"), "1 sample"),
        ((2, "sample"), "2 samples"),
        ((1, "batch", "batches"), "1 batch"),
        ((3, "batch", "batches"), "3 batches"),
    ],
)
def test_noun_agrees_with_its_number(words, text):
    assert counted(*words) == text


def test_run_of_one_sample_says_so(config, caplog):
    caplog.set_level("INFO")
    ringreel.run_generator(numbered(1), config())
    assert "1 sample is finished and safe in" in caplog.text


def test_error_after_one_sample_says_so(config):
    def samples():
        yield from numbered(1)
        raise KeyError("x")

    with pytest.raises(KeyError) as error:
        ringreel.run_generator(samples(), config())
    assert "1 sample was committed to" in error.value.__notes__[0]


def test_representations_of_one_sample_say_so(config):
    ring = ringreel.Ring(config(SWAP_CAP=2, VALIDATION=1))
    add(ring, numbered(2))
    validation = ring.validation()
    assert len(validation) == 1 and "(1 sample)" in repr(validation)
    assert "of 1 sample, generation 1" in repr(ring.dataset().batch([0]))
    mixture = ringreel.Mixture([[1, 2]])
    assert next(mixture) == 1 and repr(mixture) == "<ringreel.Mixture of 1 source (1 item given)>"


def test_errors_about_one_thing_say_so(config, tmp_path):
    with (
        ringreel.Ring(config()).generator() as generator,
        pytest.raises(ringreel.SampleError, match="expected 1 part,"),
    ):
        generator.write((1, 2))
    with pytest.raises(recordio.RecordError, match="a record of 1 byte is too short"):
        recordio.unpack(b"x")
    with pytest.raises(recordio.RecordError, match="has 1 label, but only 1 byte follows it"):
        recordio.unpack(recordio.pack((0, [1.0], 0, 0), b"")[:-3])
    (tmp_path / "a").touch()
    with pytest.raises(ValueError, match="a list of 1 path, of which"):
        ringreel.StreamLoader([tmp_path / "a"], 1)


def test_state_of_one_share_says_so():
    loader = ringreel.StreamLoader(range(4), 1)
    next(iter(loader))
    other = ringreel.StreamLoader(range(4), 1, rank=0, world_size=2)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ringreel.RingreelError, match="saved with 1 share .* but their number is now 2"):
        next(iter(other))
