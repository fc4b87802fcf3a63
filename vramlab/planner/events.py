"""What a training step does to memory, as the blocks that it takes and gives back, in order.

Knows nothing of torch. `vramlab.planner.tracing` makes such a list from a run, and
`vramlab.planner.extension` makes one for more layers than have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

GATHERED = "gathered and sent"
"""Parameters that were gathered, and buffers of what is sent and received."""

CATEGORIES = (
    "parameters",
    "buffers",
    "optimizer states",
    "gradients",
    GATHERED,
    "inputs",
    "workspaces",
    "activations",
    "temporaries",
)
"""As `vramlab.measure.Category` names them; what ranks gather and send stands apart."""


class BlockEvent(NamedTuple):
    """One block that is taken or given back."""

    size_bytes: int
    """Less than 0 where it is given back; without the rest that was not split off."""
    category: str
    """Which of `CATEGORIES` the block is, or another of `vramlab.measure.Category`."""
    place: str
    """What took the block: the part of the step, and PyTorch's op or autograd's node."""


STEP_BEGINS = BlockEvent(0, "", "the step begins")
"""Stands between the blocks that are there already and the events of the step."""

Events = Sequence[BlockEvent]
"""The blocks that live when a step begins, in the order in which they came; then
`STEP_BEGINS`; then what the step takes and gives back."""


@dataclass(frozen=True)
class Moment:
    """One moment of a training step, and where the bytes are."""

    name: str
    """What has just taken a block: the `place` of its event."""
    bytes_by_category: Mapping[str, int]
    """By the names in `CATEGORIES`."""

    @property
    def total_bytes(self) -> int:
        """Allocated bytes, but for unsplit remainders."""
        return sum(self.bytes_by_category.values())


def peak_bytes(events: Events) -> int:
    """Give the most that is there at any moment of a step."""
    position = _position_of_peak(events)
    return sum(event.size_bytes for event in events[: position + 1])


def peak(events: Events) -> Moment:
    """Give the first moment of a step at which most is there."""
    return _moment(events, _position_of_peak(events))


def moments(events: Events) -> dict[str, Moment]:
    """Give the largest moment of each place in a step, in the order in which places come first.

    Args:
        events: of a step; what has the same `place` in all layers is one place.
    """
    total_bytes, most, found = 0, dict[str, int](), dict[str, int]()
    begins = events.index(STEP_BEGINS)
    for position, event in enumerate(events):
        total_bytes += event.size_bytes
        taken = position > begins and event.size_bytes > 0
        if taken and total_bytes > most.get(event.place, 0):
            most[event.place], found[event.place] = total_bytes, position
    return {place: _moment(events, position) for place, position in found.items()}


def _position_of_peak(events: Events) -> int:
    begins = events.index(STEP_BEGINS)
    total_bytes = sum(event.size_bytes for event in events[:begins])
    most_bytes, found = total_bytes, begins
    for position in range(begins + 1, len(events)):
        total_bytes += events[position].size_bytes
        if total_bytes > most_bytes:
            most_bytes, found = total_bytes, position
    return found


def _moment(events: Events, position: int) -> Moment:
    return Moment(events[position].place, _by_category(events[: position + 1]))


def _by_category(events: Iterable[BlockEvent]) -> dict[str, int]:
    sums = dict.fromkeys(CATEGORIES, 0)
    for event in events:
        if event.size_bytes:
            sums[event.category] = sums.get(event.category, 0) + event.size_bytes
    return sums
