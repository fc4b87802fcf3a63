"""Typical mistakes as data: the reference answer, called with something changed.

    mistakes=of(
        _parameters,
        ("You counted 4 bytes for each number. In float16 it is 2.", {"item_bytes": 4}),
        Mistake("You forgot the biases.", lambda **case: ...),
    )

The reference answer is for naming mistakes only: the truth is measured, and stands beside an answer
in a `Try`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from itertools import combinations
from typing import Any


@dataclass(frozen=True)
class Mistake:
    """A typical wrong reasoning, recognised by the answer that it leads to."""

    message: str
    """Tells the learner what was overlooked, in one or two sentences."""

    answer: Callable[..., object]
    """What that reasoning answers; called with the same arguments as the learner's function."""


@dataclass(frozen=True)
class Try:
    """An answer to one case, and the truth."""

    arguments: Mapping[str, Any]
    outcome: Mapping[str, Any]
    """From the pool: exact `type`, plain `value`, text; or the `problem`."""

    truth: int | str

    @property
    def is_right(self) -> bool:
        kind = self.outcome.get("type")
        return kind == type(self.truth).__name__ and self.outcome["value"] == self.truth

    @property
    def shown(self) -> str:
        return f"{self.outcome.get('shown', 'none')}"

    def agrees(self, mistake: Mistake) -> bool:
        """Return whether the mistake leads to this answer."""
        return bool(mistake.answer(**self.arguments) == self.outcome.get("value"))


Changed = tuple[str, Mapping[str, Any]]
"""The message to who makes a mistake, and the arguments of the reference answer that it changes."""


class Mistakes(tuple[Mistake, ...]):
    """The mistakes of a task, and the answer that they are compared with."""

    reference: Callable[..., object]
    """The right answer, for naming mistakes only."""

    changed: tuple[Changed, ...] = ()
    """The mistakes that are sent as data."""

    def twofold(self) -> list[Twofold]:
        """Return what each pair of mistakes in `changed` leads to, both at once."""
        return [
            Twofold(
                _changed(self.reference, *one),
                _changed(self.reference, *other),
                _calling(self.reference, {**one[1], **other[1]}),
            )
            for one, other in combinations(self.changed, 2)
            if not one[1].keys() & other[1].keys()
        ]


@dataclass(frozen=True)
class Twofold:
    """Two mistakes at once, and the answer that they lead to together."""

    one: Mistake
    other: Mistake
    answer: Callable[..., object]


def of(answer: Callable[..., object], *mistakes: Changed | Mistake) -> Mistakes:
    """Make the mistakes of a task, in their order.

    Args:
        answer: the reference answer. It takes what the learner's function does, and what mistakes
            change besides.
        mistakes: as data; or a `Mistake`, where it answers something else.

    Raises:
        TypeError: the reference answer does not take an argument that a mistake changes.
    """
    made = Mistakes(
        mistake if isinstance(mistake, Mistake) else _changed(answer, *mistake)
        for mistake in mistakes
    )
    made.reference = answer
    made.changed = tuple(each for each in mistakes if not isinstance(each, Mistake))
    return made


def instead(answer: Callable[..., str], said: Mapping[str, str]) -> Callable[..., str]:
    """Return what `answer` does, but take some of its answers for others.

    Args:
        answer: the reference answer.
        said: by what it answers, what is said instead.
    """

    def answer_instead(**case: Any) -> str:
        right = answer(**case)
        return said.get(right, right)

    return answer_instead


def _changed(answer: Callable[..., object], message: str, changes: Mapping[str, Any]) -> Mistake:
    signature(answer).bind_partial(**changes)
    return Mistake(message, _calling(answer, changes))


def _calling(answer: Callable[..., object], changes: Mapping[str, Any]) -> Callable[..., object]:
    return lambda **case: answer(**{**case, **changes})
