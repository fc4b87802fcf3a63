"""The board of a workshop: who got along with the fewest bytes, and who with the fewest steps.

It is meant to be shown to a class, so it says what was reached, and names no students unless it is
asked to. Points do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vramlab_classroom.judge.verdict import Spent

MOST_PLACES = 10
"""On each list."""


@dataclass(frozen=True)
class Place:
    """A place on a list."""

    number: int
    """From 1."""

    spent: Spent
    students: tuple[str, ...]
    """Who has just that."""

    def who(self, *, names: bool) -> str:
        """Return whose place it is: by their names, or how many they are."""
        if names:
            return ", ".join(self.students)
        count = len(self.students)
        return f"{count} student{'s' if count > 1 else ''}"


@dataclass(frozen=True)
class Board:
    """Both lists of a task."""

    task: str
    fewest_bytes: tuple[Place, ...]
    fewest_steps: tuple[Place, ...]

    def lists(self) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """Yield both with their names."""
        yield "fewest bytes", self.fewest_bytes
        yield "fewest steps", self.fewest_steps


def board(task: str, spent: Mapping[str, Spent]) -> Board:
    """Make the board of a task.

    Args:
        task: its name.
        spent: what those have taken who have solved it, by student.
    """
    students: dict[Spent, list[str]] = {}
    for student, each in sorted(spent.items()):
        students.setdefault(each, []).append(student)

    def places(order: list[Spent]) -> tuple[Place, ...]:
        listed = enumerate(order[:MOST_PLACES], 1)
        return tuple(Place(number, each, tuple(students[each])) for number, each in listed)

    return Board(
        task,
        places(sorted(students, key=lambda each: (each.size_bytes, each.steps))),
        places(sorted(students, key=lambda each: (each.steps, each.size_bytes))),
    )


def board_lines(board: Board, *, names: bool) -> Iterator[str]:
    """Write a board as text."""
    for heading, places in board.lists():
        yield f"  {heading}"
        width = max((len(f"{place.spent}") for place in places), default=0)
        for place in places:
            yield f"  {place.number:>4}  {place.spent!s:<{width}}  {place.who(names=names)}"
