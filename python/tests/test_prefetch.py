"""Prefetch: items in order, errors in their place, and threads that end."""

import gc
import itertools
import threading
import time

import pytest
from conftest import until

from ringreel import Prefetch, StreamLoader


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "ringreel-prefetch"]


def test_items_arrive_in_order_and_at_most_depth_ahead():
    for depth in (1, 2, 7, 100):
        read = []
        with Prefetch((read.append(n) or n for n in range(40)), depth) as items:
            for n in range(40):
                time.sleep(0.0005)
                assert len(read) <= n + depth
                assert next(items) == n
            assert list(items) == [] and list(items) == []
    until(lambda: not threads())


def test_reading_ahead_overlaps_with_the_consumer():
    ready = threading.Event()

    def source():
        yield 1
        ready.set()  # while the consumer has the first item
        yield 2

    with Prefetch(source(), 1) as items:
        assert next(items) == 1 and ready.wait(60) and next(items) == 2


class Failing:
    """Raises an error in place of each third item."""

    def __init__(self):
        self.at = -1

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at == 9:
            raise StopIteration
        if self.at % 3 == 2:
            raise KeyError(self.at)
        return self.at


def test_error_arrives_in_its_place_and_pauses_the_thread():
    source = Failing()
    given = []
    with Prefetch(source, 5) as items:
        for number in range(9):
            if number % 3 == 2:
                with pytest.raises(KeyError, match=str(number)):
                    next(items)
                time.sleep(0.01)
                assert source.at == number
            else:
                given.append(next(items))
        assert list(items) == []
    assert given == [0, 1, 3, 4, 6, 7]


def test_error_of_iter_is_raised_and_ends_it():
    class Broken:
        def __iter__(self):
            raise OSError("away")

    items = Prefetch(Broken())
    with pytest.raises(OSError, match="away"):
        next(items)
    assert list(items) == []


def test_thread_ends_when_the_iterator_is_closed_or_dropped():
    ended = []

    def endless():
        try:
            yield from itertools.count()
        finally:
            ended.append(True)

    items = Prefetch(endless())
    assert next(items) == 0
    items.close()
    assert list(items) == [] and not threads() and ended == [True]
    items = Prefetch(endless())
    assert next(items) == 0
    del items
    gc.collect()
    until(lambda: not threads())
    assert ended == [True, True]


def test_forked_child_is_refused_and_can_exit(script):
    child = script(
        """
        import itertools, os, ringreel
        items = ringreel.Prefetch(itertools.count())
        next(items)
        if os.fork() == 0:
            try:
                next(items)
            except ringreel.RingreelError as error:
                print(error)
            items.close()
            del items
        else:
            os.wait()
            print(next(items))
        """
    )
    assert child.end() == 0
    assert "after a fork, make a new one in the child" in child.said and child.said.endswith("1\n")


def test_program_ends_while_a_thread_reads(script):
    child = script(
        """
        import itertools, ringreel
        items = ringreel.Prefetch(itertools.count(), 1000)
        print(next(items))
        """
    )
    assert child.end() == 0 and child.said == "0\n"


def test_invalid_arguments_are_refused():
    for source, depth, error, message in [
        (5, 2, TypeError, "source: expected an iterable, found int"),
        ([], 0, ValueError, "depth: expected 1 or more"),
        ([], "x", TypeError, "depth: expected an integer"),
    ]:
        with pytest.raises(error, match=message):
            Prefetch(source, depth)


def test_loader_with_a_thread_yields_the_same_batches():
    for shuffle, drop_last in itertools.product((False, True), (False, True)):
        names = set()

        def parse(n, names=names):
            names.add(threading.current_thread().name)
            return None if n % 5 == 0 else n

        def make(prefetch, shuffle=shuffle, drop_last=drop_last, parse=parse):
            return StreamLoader(range(40), 3, 12, shuffle, 5, drop_last, 3, parse, prefetch=prefetch)

        whole = list(make(0))
        names.clear()
        assert list(make(2)) == whole and names == {"ringreel-prefetch"}
        for stop in (0, 1, 10, 11, 12, 20):
            loader = make(3)
            given = list(itertools.islice(loader, stop))
            again = make(1)
            again.load_state_dict(loader.state_dict())
            assert given + list(again) == whole
    gc.collect()
    until(lambda: not threads())


def test_loader_raises_an_error_after_the_batches_before_it():
    loader = StreamLoader([1, 2, 0, 3], 1, parse=lambda n: 1 / n, prefetch=3)
    batches = iter(loader)
    assert [next(batches), next(batches)] == [[1.0], [0.5]]
    with pytest.raises(ZeroDivisionError) as caught:
        next(batches)
    assert caught.value.__notes__ == ["ringreel: item 2 of the source (list), in epoch 0"]
    assert loader.state_dict()["batches"] == 2
    until(lambda: not threads())


def test_loader_stops_its_thread_when_it_is_abandoned():
    for batch in StreamLoader(range(10**9), 1, prefetch=2):
        assert batch == [0]
        break
    gc.collect()
    until(lambda: not threads())
