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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
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


UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
BLOCK_BYTES = 512
FEWEST_CASES = 3
"""With fewer, numbers agree by accident."""

LARGEST_FACTOR = 16
"""Larger numbers are no bytes of an element and no count of equal tensors."""


def without_name(tries: Sequence[Try]) -> str:
    """Say what is wrong with all of an answer's numbers in the same way, if anything is.

    Mistakes in units, in the bytes of a number, in what is divided by a count, and in rounding:
    they can be made in any task, so none has to name them.
    """
    pairs = [(int(each.outcome["value"]), int(each.truth)) for each in tries]

    def holds(rule: Callable[[int, int], bool]) -> bool:
        return all(rule(value, truth) for value, truth in pairs)

    if len(pairs) < FEWEST_CASES or not any(value for value, _ in pairs):
        return ""
    is_large = max(truth for _, truth in pairs) >= UNITS["MiB"]
    for unit, size in UNITS.items():
        if is_large and holds(lambda value, truth, size=size: value == truth // size):  # type: ignore[misc]
            return f"Your answers are in {unit}; the task asks for bytes."
        if holds(lambda value, truth, size=size: value // size == truth):  # type: ignore[misc]
            return f"Your answers are in bytes; the task asks for {unit}."
    if holds(lambda value, truth: value == rounded_up(truth)):
        return f"You rounded up to multiples of {BLOCK_BYTES} bytes. The task asks for exact sizes."
    if holds(lambda value, truth: rounded_up(value) == truth):
        return f"Block sizes are multiples of {BLOCK_BYTES} bytes: round each tensor up."
    factors = {Fraction(value, truth) for value, truth in pairs if truth}
    if len(factors) == 1 and holds(lambda value, truth: bool(truth or not value)):
        (factor,) = factors
        if max(factor.numerator, factor.denominator) <= LARGEST_FACTOR:
            return (
                f"Each answer is {factor} times what was measured. How many bytes does a number "
                "have, and which tensors do you count twice or not at all?"
            )
    for name, counts in _counts(tries):
        each = list(zip(pairs, counts, strict=True))
        if all(value == truth // count for (value, truth), count in each):
            return f"Each answer is what was measured, divided by {name}. Do you divide twice?"
        if all(value == truth * count for (value, truth), count in each):
            return f"Each answer is {name} times what was measured. For how many do you add up?"
    return ""


def rounded_up(size: int) -> int:
    """Round a size up as the allocator does."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _counts(tries: Sequence[Try]) -> Iterator[tuple[str, list[int]]]:
    """Yield the arguments that are whole numbers, not always the same, with their values."""
    for name in tries[0].arguments:
        values = [each.arguments[name] for each in tries]
        if all(type(value) is int and value > 0 for value in values) and len(set(values)) > 1:
            yield name, values


def shared_by_wrong(tries: Sequence[Try]) -> str:
    """Return the arguments, as in a call, that all wrong cases and not all others share."""
    wrong = [each.arguments for each in tries if not each.is_right]
    right = [each.arguments for each in tries if each.is_right]
    if len(wrong) < 2 or not right:
        return ""
    alike = {
        name: value
        for name, value in wrong[0].items()
        if isinstance(value, str | int) and all(case[name] == value for case in wrong)
    }
    telling = {n: v for n, v in alike.items() if any(case[n] != v for case in right)}
    alone = {n: v for n, v in telling.items() if all(case[n] != v for case in right)}
    words = {n: telling[n] for n in telling if isinstance(telling[n], str | bool)}
    return " and ".join(f"{name}={value!r}" for name, value in (alone or words or telling).items())


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
