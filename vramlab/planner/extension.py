"""From steps of a model with few layers to the step of the same model with many.

A model of alike layers does for each more layer what it did for the one before: in its forward
pass, in its backward pass, for its parameters in the optimizer. So the events of a step with one
layer more are those of the step with fewer, and some runs of events twice in a row. `extend` finds
those runs, and repeats each as often as layers are missing. Nothing is fitted and nothing is
assumed of where the peak is: all events of the longer step are there, and the largest of their sums
is its peak, wherever it moves.

It is refused where a layer more does anything else: where its events are no exact repetition, event
by event, of those before them.

Micro-batches of a pipeline are extended in the same way: a pass more repeats a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vramlab.planner.events import STEP_BEGINS, BlockEvent, Events

_TRIES = 1000
"""How many choices of a repeated run are followed before giving up."""


class NotRepeating(Exception):
    """A step with one more layer has other events than repetitions; the message says which."""


class Repeated(NamedTuple):
    """A run of events that is repeated in the longer step."""

    after: int
    """How many events of the shorter step are before it."""
    begins: int
    """Where it begins in the longer step."""
    length: int
    """How many events it has."""


class Longer(NamedTuple):
    """A step that repeats something, and how many more times to repeat it."""

    events: Events
    times: int


def extend(step: Events, layers: Sequence[Longer] = (), passes: Sequence[Longer] = ()) -> Events:
    """Extend a step to one with more layers, and with more passes through them.

    Args:
        step: to be extended.
        layers: steps with more layers, each in another part of the model.
        passes: steps with more passes through as many layers as `step` has, of micro-batches that
            follow each other. What an event run repeats of them, has all layers, too.

    Raises:
        NotRepeating: one of the longer steps is not `step` with some of its runs repeated.
    """
    inserted: dict[int, list[BlockEvent]] = {}
    for longer in layers:
        for after, begins, length in repeated_runs(step, longer.events) if longer.times else ():
            if after in inserted:
                raise NotRepeating(f"two parts repeat what is before event {after} of {len(step)}")
            inserted[after] = list(longer.events[begins : begins + length]) * longer.times

    def with_layers(first: int, end: int) -> Iterator[BlockEvent]:
        for position in range(first, end):
            yield step[position]
            yield from inserted.get(position + 1, ())

    repeated = [
        (run.after, run.length, longer.times)
        for longer in passes
        if longer.times
        for run in _runs_of_passes(step, longer.events)
    ]
    extended: list[BlockEvent] = []
    done = 0
    for after, length, times in sorted(repeated, key=lambda run: run[0]):
        extended += with_layers(done, after)
        extended += list(with_layers(after - length, after)) * times
        done = after
    extended += with_layers(done, len(step))
    return extended


def _runs_of_passes(fewer: Events, more: Events) -> list[Repeated]:
    """Repeated runs, each of which is there in `fewer` as it is repeated in `more`."""
    runs = repeated_runs(fewer, more)
    for after, begins, length in runs:
        if list(fewer[after - length : after]) != list(more[begins : begins + length]):
            raise NotRepeating(f"what is repeated at {more[begins].place!r} is repeated in parts")
    return runs


def repeated_runs(fewer: Events, more: Events) -> list[Repeated]:
    """Find the runs of events that occur once in `fewer` and twice in `more`.

    Each is equal to as many events as it has right before it.

    Raises:
        NotRepeating: there are no such runs.
    """
    # Numbers are compared faster than events.
    numbers: dict[BlockEvent, int] = {}
    a, b = ([numbers.setdefault(event, len(numbers)) for event in each] for each in (fewer, more))
    search = _Search(a, b)
    runs = search.run()
    if runs is None:
        event = more[search.farthest] if search.farthest < len(more) else STEP_BEGINS
        raise NotRepeating(
            f"event {search.farthest} of {len(more)}, {event.size_bytes:,} B at {event.place!r}, "
            "is no repetition of what was before"
        )
    return runs


class _Search:
    """Follows two lists of numbers side by side; where they part, the longer one repeats itself.

    Attributes:
        farthest: how far the longer one could be followed.
    """

    def __init__(self, fewer: list[int], more: list[int]) -> None:
        self.fewer, self.more = fewer, more
        self.farthest = 0
        self._tries = _TRIES

    def run(self) -> list[Repeated] | None:
        """Return the repeated runs; None if there is no way to the end of both."""
        runs: list[Repeated] = []
        waiting = [self._choices(0, 0)]
        while waiting:
            chosen = next(waiting[-1], None)
            if chosen is None or self._tries <= 0:
                waiting.pop()
                if runs:
                    runs.pop()
                continue
            if not chosen.length:
                return runs
            self._tries -= 1
            runs.append(chosen)
            waiting.append(self._choices(chosen.after, chosen.begins + chosen.length))
        return None

    def _choices(self, i: int, j: int) -> Iterator[Repeated]:
        """Return what may be repeated where the lists part next; the longest agreement first."""
        same = _agreeing(self.fewer, i, self.more, j)
        i, j = i + same, j + same
        self.farthest = max(self.farthest, j)
        if i == len(self.fewer) and j == len(self.more):
            yield Repeated(i, j, 0)
            return
        found = [(-_agreeing(self.fewer, i, self.more, j + k), k) for k in self._squares(i, j)]
        for _, length in sorted(found):
            yield Repeated(i, j, length)

    def _squares(self, i: int, j: int) -> Iterator[int]:
        """Yield how long a run can be that ends before `more[j]` and is repeated there."""
        fewer, more = self.fewer, self.more
        missing = (len(more) - j) - (len(fewer) - i)
        for length in range(1, min(missing, j) + 1):
            agrees = fewer[i] == more[j + length] if i < len(fewer) else length == missing
            if (
                agrees
                and more[j + length - 1] == more[j - 1]
                and more[j - length : j] == more[j : j + length]
            ):
                yield length


def _agreeing(a: list[int], i: int, b: list[int], j: int) -> int:
    """How many elements of `a` from i on are those of `b` from j on."""
    most = min(len(a) - i, len(b) - j)
    same, step = 0, 64
    while same < most:
        end = min(most, same + step)
        if a[i + same : i + end] == b[j + same : j + end]:
            same, step = end, 2 * step
        elif end - same == 1:
            break
        else:
            step = (end - same) // 2
    return same
