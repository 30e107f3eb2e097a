"""Context managers that close at the end of the ``with`` block, also after an error."""

import pytest

import ringreel
from ringreel import recordio
from ringreel._closing import Closing


@pytest.mark.parametrize("kind", Closing.__subclasses__(), ids=lambda kind: kind.__name__)
def test_with_block_closes_and_passes_errors_on(kind, monkeypatch):
    closed = []
    monkeypatch.setattr(kind, "close", lambda self: closed.append(self))
    opened = object.__new__(kind)
    with opened as entered:
        assert entered is opened and closed == []
    with pytest.raises(KeyError), opened:
        raise KeyError
    assert closed == [opened, opened]


def test_all_objects_with_close_are_context_managers():
    kinds = {ringreel.Stream, ringreel.MappedStream, ringreel.Mixture, ringreel.Prefetch, recordio.MXRecordIO}
    assert set(Closing.__subclasses__()) == kinds
