"""What a learner predicts, a number or a range; how good it is, and which mistake may be in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from vramlab.measure.figures import UNIT_BYTES
from vramlab_course.translations.speech import say

COUNTS = ("samples", "tokens", "layers", "times", "requests", "percent")
"""What can be predicted besides memory: a number of these."""

UNITS: dict[str, int] = {**UNIT_BYTES, **dict.fromkeys(COUNTS, 1)}
"""By unit, the bytes in one of it; 1 where something else is counted."""

NEAR = Decimal("0.05")
"""Share of the measured value by which a prediction may miss it and be right."""
SAME = Decimal("0.02")
"""Share by which a prediction may miss what a mistake leads to, and be taken for that mistake."""
WIDEST = 2
"""How many times its beginning the end of a range may be, for the range to say something."""

MOST_POINTS = 3

Mistakes = Mapping[str, float | Callable[[float], float]]
"""By what to tell the learner, what the mistake leads to: bytes (a number, where something is
counted), or a function of the measured bytes."""

_NUMBER = r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_UNIT = "|".join(UNITS)
_GUESS = re.compile(
    rf"({_NUMBER})\s*({_UNIT})?(?:\s*(?:to|-|\u2013|\.\.)\s*({_NUMBER})\s*({_UNIT})?)?"
)


@dataclass(frozen=True)
class Guess:
    """A range of numbers in a unit; of one number, both ends are it."""

    low: Decimal
    high: Decimal
    unit: str

    @classmethod
    def read(cls, text: object, unit: str) -> Guess:
        """Read '160', '150 to 170', '0.5 GiB' or (150, 170).

        Args:
            text: what was typed; a number, or a pair of numbers.
            unit: what a number without a unit is in.

        Raises:
            ValueError: that is no number and no range of numbers.
        """
        if isinstance(text, tuple) and len(text) == 2:
            text = f"{text[0]} to {text[1]}"
        match = _GUESS.fullmatch(str(text).strip())
        if match is None:
            raise _unreadable(text, unit)
        first, first_unit, last, last_unit = match.groups()
        last_unit = last_unit or first_unit or unit
        parts = [(first, first_unit or last_unit), (last or first, last_unit)]
        if any(its_unit != unit and {its_unit, unit} & {*COUNTS} for _, its_unit in parts):
            raise _unreadable(text, unit)
        low, high = sorted(
            Decimal(number.replace(",", "")) * UNITS[its_unit] / UNITS[unit]
            for number, its_unit in parts
        )
        return cls(low, high, unit)

    def __str__(self) -> str:
        if self.low == self.high:
            return amount(self.low, self.unit)
        return f"{shortest(self.low)} to {amount(self.high, self.unit)}"

    def distance(self, number: Decimal) -> Decimal:
        """Subtract the guess from a number: positive above it, negative below; 0 within."""
        return number - min(max(number, self.low), self.high)

    def is_near(self, number: Decimal, share: Decimal) -> bool:
        """Return whether all of the guess misses a number by at most a share of it."""
        most = abs(number) * share
        return max(abs(self.low - number), abs(self.high - number)) <= most

    def means(self, number: Decimal) -> bool:
        """Return whether this may be the guess of who has this number in mind.

        A range holds it; one number is nearly the same, or is the number with fewer digits.
        """
        if self.low < self.high:
            return not self.distance(number)
        return self.is_near(number, SAME) or _rounded(number, _digits(self.low)) == self.low

    def was_read_off(self, number: Decimal) -> bool:
        """Return whether this is a number as it is displayed, rounded to the guess's decimals.

        Stricter than `means`: 240 is a plausible sum, not the 242 of some counter.
        """
        exponent = self.low.normalize().as_tuple().exponent
        decimals = max(0, -exponent) if isinstance(exponent, int) else 0
        return self.is_near(number, SAME) and round(number, decimals) == self.low == self.high

    def points(self, measured: Decimal) -> int:
        """Return 3 points for a near number, 2 for a range that says something, else 1."""
        if self.is_near(measured, NEAR):
            return MOST_POINTS
        holds = self.low < self.high and not self.distance(measured)
        return 2 if holds and self.high <= WIDEST * self.low else 1


@dataclass(frozen=True)
class Counters:
    """What torch.cuda counts around a measurement, in bytes."""

    allocated_before_bytes: int
    """When the prediction was asked for."""
    allocated_bytes: int
    """When it was revealed."""
    peak_bytes: int
    """Highest allocated bytes since they were last reset."""
    reserved_bytes: int


def likely_mistake(
    guess: Guess, measured_value: float, mistakes: Mistakes, counters: Counters | None
) -> str | None:
    """Name the mistake that leads to what was guessed; None if none is known.

    Args:
        guess: what was predicted.
        measured_value: in bytes, or the number where something is counted.
        mistakes: of this question; they come before those that are common to all.
        counters: what may have been taken for the answer; None without a GPU.
    """
    unit_bytes = UNITS[guess.unit]
    measured = Decimal(str(measured_value)) / unit_bytes
    known = [(words, leads_to(measured_value)) for words, leads_to in _functions(mistakes)]
    if guess.unit not in COUNTS:
        known += _with_units(guess.unit, measured_value)
    for words, value_bytes in known:
        value = Decimal(str(value_bytes)) / unit_bytes
        if guess.means(value) and _nearer(guess, value, measured):
            return words
    if guess.unit in COUNTS:
        return None
    for words, value_bytes in _of_counters(measured_value, counters):
        value = Decimal(str(value_bytes)) / unit_bytes
        is_other = abs(value - measured) > NEAR * abs(measured)
        if is_other and guess.was_read_off(value) and _nearer(guess, value, measured):
            return words
    return None


def _digits(number: Decimal) -> int:
    """How many digits a number is written with."""
    return len(number.normalize().as_tuple().digits)


def _rounded(number: Decimal, digits: int) -> Decimal:
    return Decimal(f"{number:.{digits - 1}e}")


def _nearer(guess: Guess, value: Decimal, measured: Decimal) -> bool:
    """Whether a guess lies nearer to a value than to what was measured."""
    middle = (guess.low + guess.high) / 2
    if guess.low < guess.high and not guess.distance(measured):
        return False
    return abs(middle - value) < abs(middle - measured)


def _functions(mistakes: Mistakes) -> Iterator[tuple[str, Callable[[float], float]]]:
    for words, leads_to in mistakes.items():
        yield words, leads_to if callable(leads_to) else lambda _, value=leads_to: value  # type: ignore[misc]


def _of_counters(measured_bytes: float, counters: Counters | None) -> Iterator[tuple[str, float]]:
    """Yield what torch.cuda's other counters may have led to. Who says nothing has read none."""
    return ((words, value) for words, value in _read(measured_bytes, counters) if value)


def _read(measured_bytes: float, counters: Counters | None) -> Iterator[tuple[str, float]]:
    if counters is None:
        return
    before = counters.allocated_before_bytes
    if before:
        yield (
            say("You counted what was allocated before as well. It is not asked for."),
            measured_bytes + before,
        )
        yield (
            say("You left out what was allocated before. Here it counts."),
            measured_bytes - before,
        )
    for kept_bytes in (counters.allocated_bytes, counters.allocated_bytes - before):
        if kept_bytes < measured_bytes:
            yield (
                say("You counted only what is kept. What lives for a moment counts here as well."),
                kept_bytes,
            )
    for peak in (counters.peak_bytes, counters.peak_bytes - before):
        yield (
            say(
                "You counted what lives for a moment only: that was the peak. Asked for is what is "
                "kept."
            ),
            peak,
        )
    yield (
        say("That is what the allocator has reserved from the driver; tensors take less."),
        counters.reserved_bytes,
    )


def _with_units(unit: str, measured_bytes: float) -> Iterator[tuple[str, float]]:
    decimal = {"KiB": "KB", "MiB": "MB", "GiB": "GB"}
    binary = {ten: two for two, ten in decimal.items()}
    other = decimal.get(unit) or binary.get(unit)
    if other:
        yield (
            say(
                "That is the size in {other}, not {unit}: 1 {unit} is {unit_bytes} B, 1 {other} is "
                "{other_bytes} B.",
                other=other,
                unit=unit,
                unit_bytes=f"{UNITS[unit]:,}",
                other_bytes=f"{UNITS[other]:,}",
            ),
            measured_bytes / UNITS[other] * UNITS[unit],
        )
    yield say("You counted numbers, not bytes: one in float32 takes 4."), measured_bytes / 4
    yield say("You counted bits, not bytes: a byte has 8."), measured_bytes * 8
    off = say("You are a factor of 1,024 off: look at the unit, {unit}.", unit=unit)
    for factor in (1024, 1 / 1024):
        yield off, measured_bytes * factor


def amount(number: Decimal, unit: str) -> str:
    """Write a number with its unit; see `shortest`."""
    return f"{shortest(number)} {unit}"


def shortest(number: Decimal) -> str:
    """Write a number with at most three decimals, or six below 1, without trailing zeros."""
    text = f"{number:,.{3 if abs(number) >= 1 else 6}f}"
    return text.rstrip("0").rstrip(".")


def _unreadable(text: object, unit: str) -> ValueError:
    return ValueError(
        say(
            "{text} is not a number of {unit}: enter one such as 160 or 8.125, or a range such as "
            "150 to 170",
            text=repr(text),
            unit=unit,
        )
    )
