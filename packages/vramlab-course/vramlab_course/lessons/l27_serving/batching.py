"""Which request has which place of a server's batch when: batch after batch, or continuously.

A step writes a token for every request in the batch. Source of the second way: Yu et al., "Orca: A
Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, iteration-level
scheduling. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """A request in the batch."""

    request: int
    """Its number in the queue."""
    place: int
    """Its row of the batch."""
    start: int
    """The step that writes its first token."""
    steps: int
    """How many tokens it writes."""

    @property
    def end(self) -> int:
        """The step after its last."""
        return self.start + self.steps


def in_batches(answers: Sequence[int], places: int) -> list[Turn]:
    """Serve a batch, and the next one when all of it is done.

    Args:
        answers: tokens that each request will write, in the order of the queue.
        places: rows of the batch.
    """
    turns, start = [], 0
    for first in range(0, len(answers), places):
        batch = answers[first : first + places]
        turns += [Turn(first + n, n, start, steps) for n, steps in enumerate(batch)]
        start += max(batch)
    return turns


def continuously(answers: Sequence[int], places: int) -> list[Turn]:
    """Give each slot to the next request as soon as it is free; the arguments as `in_batches`."""
    free_from = [0] * places
    turns = []
    for request, steps in enumerate(answers):
        place = min(range(places), key=lambda number: free_from[number])
        turns.append(Turn(request, place, free_from[place], steps))
        free_from[place] += steps
    return turns


def last_step(turns: Sequence[Turn]) -> int:
    """Return how many steps it takes until all is written."""
    return max(turn.end for turn in turns)


def used_share(turns: Sequence[Turn], places: int) -> float:
    """Return the share of all places in all steps that write a token."""
    return sum(turn.steps for turn in turns) / (places * last_step(turns))
