"""Streams whose samples pass through functions of the user: ``map``, ``filter`` and ``flat_map``."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringreel._arguments import integer
from ringreel._closing import Closing
from ringreel._length import ADVICE
from ringreel._sample import Sample
from ringreel._stats import StreamStats
from ringreel._transforms import Transform, random_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from ringreel._stream import Stream

#: Key of a state: how many outputs of the sample that comes next were given.
_OUTPUTS = "outputs"


class MappedStream(Closing, Iterator[Any]):
    """An iterator over what functions make of a stream's samples, made by ``Stream.map`` and its siblings.

    The functions are applied in the order of the calls, to one sample after the other, when ``next`` needs
    an output. Each function gets the output of the one before, and the first one the ``Sample``. A function
    with a parameter named ``rng`` gets a ``numpy.random.Generator``: for each sample there is one,
    ``numpy.random.default_rng([seed, epoch, generation, position])``, which all functions share in their
    order. It is the same for any number of ranks and threads, and after a resume. A parameter named
    ``info`` gets the ``Sample``.

    An error of a function is raised by ``next``. The following ``next`` continues with the sample after.
    A ``filter`` or ``flat_map`` can give ranks different numbers of steps, whatever ``equal`` is. Padding
    samples pass through the functions like others.

    Example:
        >>> with ringreel.Ring("config.yaml").stream(epochs=1) as stream:
        ...     odd = stream.map(lambda sample: int(sample["label"])).filter(lambda label: label % 2)
        ...     print(list(odd.flat_map(lambda label: [label, 10 * label])))
        [1, 10, 3, 30]
    """

    def __init__(self, source: Stream, steps: Sequence[tuple[str, Transform]] = ()) -> None:
        self._source = source
        self._steps = tuple(steps)
        self._has_rng = any(function.has_rng for _, function in self._steps)
        #: The outputs of the last sample that were not returned yet.
        self._outputs: collections.deque[Any] = collections.deque()
        #: The position relative to the source's: how many samples before it, and how many outputs of that sample were
        #: returned. It is one tuple, so that another thread sees both numbers of the same moment.
        self._place = (0, 0)

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        """Returns the number of outputs that are left to ``next``, after ``map`` only. See ``Stream.__len__``.

        Raises:
            TypeError: The number is unknown: ``filter`` or ``flat_map`` decides it, or that of the stream is.

        Example:
            >>> labels = ringreel.Ring("config.yaml").stream(epochs=2).map(lambda sample: int(sample["label"]))
            >>> len(labels)
            8
        """
        for kind, _ in self._steps:
            if kind != "map":
                raise TypeError(f"a stream with {kind} has no length, because the function decides it: {ADVICE}")
        return len(self._source) + len(self._outputs)

    def __bool__(self) -> bool:
        """Returns True, because whether outputs are left is unknown before they are made."""
        return True

    def __next__(self) -> Any:
        while not self._outputs:
            sample = next(self._source)
            # After a resume, some outputs of the first sample were returned before.
            given = self._place[1] if self._place[0] == 0 else 0
            self._place = (1, given)
            try:
                outputs = self._results(sample)[given:]
            except Exception:
                self._place = (0, 0)
                raise
            if not outputs:
                self._place = (0, 0)
            self._outputs.extend(outputs)
        output = self._outputs.popleft()
        self._place = (1, self._place[1] + 1) if self._outputs else (0, 0)
        return output

    def _results(self, sample: Sample) -> list[Any]:
        """Returns all outputs of ``sample``."""
        rng = random_of(self._source.seed, sample) if self._has_rng else None
        values: list[Any] = [sample]
        for kind, function in self._steps:
            results = [function(value, sample, rng) for value in values]
            if kind == "map":
                values = results
            elif kind == "filter":
                values = [value for value, is_kept in zip(values, results) if is_kept]
            else:
                values = [output for outputs in results for output in outputs]
        return values

    def map(self, function: Callable[..., Any]) -> MappedStream:
        """Returns an iterator over ``function(output)`` of each output. See ``Stream.map``.

        The new iterator takes the place of this one, which must not be read any more.

        Args:
            function (Callable): Called with each output.

        Returns:
            MappedStream: The results, in order.

        Raises:
            TypeError: ``function`` is not callable.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> list(stream.map(lambda sample: int(sample["label"])).map(lambda label: label + 5))
            [5, 6, 7, 8]
        """
        return self._with("map", function)

    def filter(self, function: Callable[..., Any]) -> MappedStream:
        """Returns an iterator over the outputs for which ``function(output)`` is true. See ``Stream.filter``.

        The new iterator takes the place of this one, which must not be read any more.

        Args:
            function (Callable): Called with each output.

        Returns:
            MappedStream: The outputs that are kept, in order.

        Raises:
            TypeError: ``function`` is not callable.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> list(stream.map(lambda sample: int(sample["label"])).filter(lambda label: label > 1))
            [2, 3]
        """
        return self._with("filter", function)

    def flat_map(self, function: Callable[..., Any]) -> MappedStream:
        """Returns an iterator over all items of ``function(output)`` of each output. See ``Stream.flat_map``.

        The new iterator takes the place of this one, which must not be read any more.

        Args:
            function (Callable): Called with each output; returns an iterable.

        Returns:
            MappedStream: The items, in order.

        Raises:
            TypeError: ``function`` is not callable.

        Example:
            >>> stream = ringreel.Ring("config.yaml").stream(epochs=1)
            >>> list(stream.map(lambda sample: int(sample["label"])).flat_map(range))
            [0, 0, 1, 0, 1, 2]
        """
        return self._with("flat_map", function)

    def _with(self, kind: str, function: Callable[..., Any]) -> MappedStream:
        return MappedStream(self._source, [*self._steps, (kind, Transform(kind, function))])

    @property
    def stream(self) -> Stream:
        """The stream that the samples come from: it has ``epochs``, ``damaged``, ``missing`` and ``run``.

        Its own ``state_dict`` does not know which outputs were returned.

        Example:
            >>> labels = ringreel.Ring("config.yaml").stream(epochs=2).map(lambda sample: int(sample["label"]))
            >>> sum(labels), labels.stream.epochs
            (12, 2)
        """
        return self._source

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last output that was returned. Never blocks.

        The state counts samples of the stream. If outputs of the last sample remain to be returned, it is the
        position before that sample, with one more key, ``outputs``: how many of its outputs were returned.
        Otherwise it is ``Stream.state_dict``.

        Returns:
            dict: Values of JSON's types only; empty before the first sample.

        Example:
            >>> twice = ringreel.Ring("config.yaml").stream().flat_map(lambda sample: [sample, sample])
            >>> samples = [next(twice) for _ in range(3)]
            >>> state = twice.state_dict()
            >>> state["step"], state["outputs"]
            (1, 1)
        """
        while True:
            place = self._place
            state = self._source.state_dict()
            if self._place is place:  # otherwise another thread has read on
                break
        before, given = place
        if state:
            state["step"] -= before
            if given:
                state[_OUTPUTS] = given
        return state

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continues from the position that ``state_dict`` returned, in this process or another one.

        With the same number of workers, the functions are called again for a sample of which outputs remain,
        and its remaining outputs follow: no output is repeated or lost if the functions return the same as
        before. With another number of workers, all outputs of such a sample are returned again.

        Args:
            state (Mapping | Sequence[Mapping]): The state, or those of all workers. See
                ``Stream.load_state_dict``.

        Raises:
            SampleError: The state is that of another ring, seed, order or worker.
            ValueError: ``state`` is not the state of a stream.
            TypeError: ``state["outputs"]`` is not an integer.

        Example:
            >>> def labels():
            ...     stream = ringreel.Ring("config.yaml").stream(run="a", epochs=1)
            ...     return stream.flat_map(lambda sample: [(int(sample["label"]), n) for n in range(2)])
            >>> first, resumed = labels(), labels()
            >>> [next(first) for _ in range(5)]
            [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
            >>> resumed.load_state_dict(first.state_dict())
            >>> list(resumed)
            [(2, 1), (3, 0), (3, 1)]
        """
        share = self._source._share
        states = [state] if isinstance(state, Mapping) else list(state)
        own = next((each for each in states if (each.get("worker"), each.get("world")) == share), {})
        given = integer(_OUTPUTS, own.get(_OUTPUTS, 0), 0)
        self._source.load_state_dict([{k: v for k, v in each.items() if k != _OUTPUTS} for each in states])
        self._outputs.clear()
        self._place = (0, given)

    def close(self) -> None:
        """Closes the stream, and drops the outputs that were not returned. See ``Stream.close``.

        Example:
            >>> twice = ringreel.Ring("config.yaml").stream().flat_map(lambda sample: [sample, sample])
            >>> sample = next(twice)
            >>> twice.close()
            >>> list(twice)
            []
        """
        self._source.close()
        self._outputs.clear()

    def suspend(self) -> None:
        """Closes the stream, but keeps its place in its run. See ``Stream.suspend``.

        Example:
            >>> twice = ringreel.Ring("config.yaml").stream(run="nightly").flat_map(lambda sample: [sample, sample])
            >>> sample, state = next(twice), twice.state_dict()
            >>> twice.suspend()
            >>> list(twice)
            []
        """
        self._source.suspend()
        self._outputs.clear()

    def stats(self) -> StreamStats:
        """Returns the times and counts of the stream. See ``Stream.stats``.

        The functions count as the caller's step.

        Returns:
            StreamStats: Times in seconds, and counts.

        Example:
            >>> labels = ringreel.Ring("config.yaml").stream(epochs=2).map(lambda sample: int(sample["label"]))
            >>> sum(labels), labels.stats().reads_per_sample
            (12, 2.0)
        """
        return self._source.stats()
