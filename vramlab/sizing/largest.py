"""Search for the largest value of a program's option, such as its batch size, that fits on a GPU.

The peak usually grows linearly with the batch size and quadratically with the sequence length. So a
few runs are enough to fit a curve and find where it crosses the GPU's memory. The search runs that
value, fits the curve again, and ends when a value fits and the next one does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vramlab.catalogue import GPUModel
from vramlab.errors import VramlabError
from vramlab.sizing.runs import RunOutcome, RunProgram, UnusableRun

_LEVEL = 1024
"""The search fails if the peak has not grown when the value is this many times the first one."""

_MOST_ALIKE = 3
"""Bisect after this many runs in a row with the same result."""

_MOST_AT_ONCE = 16
"""Largest factor between the largest value that fits and the next one to try."""

MOST_RUNS = 40
"""More runs than doubling and bisection need for any value that fits on a GPU."""


@dataclass(frozen=True)
class Search:
    """The values that were tried."""

    option: str
    """Option of the program, such as `--batch-size`."""
    gpu: GPUModel
    """Simulated GPU."""
    outcomes: dict[int, RunOutcome]
    """Results by value, in the order of the runs."""
    interrupted: list[int] = field(default_factory=list)
    """The value whose run Ctrl-C interrupted, if any."""

    @property
    def largest(self) -> int | None:
        """Largest value that fits; None if the smallest does not fit."""
        return max((value for value, each in self.outcomes.items() if each.fits), default=None)

    @property
    def too_large(self) -> int | None:
        """Smallest value that did not fit; None if all fit."""
        return min((value for value, each in self.outcomes.items() if not each.fits), default=None)


def find_largest(
    run: RunProgram,
    gpu: GPUModel,
    program: Sequence[str],
    option: str,
    *,
    multiple_of: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> Search:
    """Find the largest value of an option with which a program fits; larger ones take more.

    Ctrl-C ends the search with what is known by then.

    Args:
        run: runs the program.
        gpu: where.
        program: with its arguments; the value in them, if there is one, is where the search begins.
        option: of the program, such as `--batch-size`; `--batch_size=` where the program wants
            option and value in one word, as nanoGPT does.
        multiple_of: which values are tried.
        tell: called with what is under way.

    Raises:
        UnusableRun: the program fails otherwise than for want of memory, or its peak does not
            depend on the option.
    """
    search = Search(option, gpu, {})
    value = max(multiple_of, _value_in(program, option) // multiple_of * multiple_of)
    while value not in search.outcomes and len(search.outcomes) < MOST_RUNS:
        tell(f"run {len(search.outcomes) + 1}, {option} {value}")
        words = with_value(program, option, value)
        try:
            outcome = run(gpu, words)
        except UnusableRun as error:
            raise UnusableRun(f"{error}{_in_one_word(words, option)}") from error
        except KeyboardInterrupt:
            if not search.outcomes:
                raise
            search.interrupted.append(value)
            break
        if outcome.fits is None:
            raise UnusableRun(f"the program failed with {option} {value}: {outcome.problem}")
        search.outcomes[value] = outcome
        following = _next(search, multiple_of)
        if following is None:
            break
        value = following
    return search


def with_value(program: Sequence[str], option: str, value: int) -> list[str]:
    """Return a program's words with this value of an option, instead of the one that counts."""
    words, name = list(program), option.removesuffix("=")
    position = _last_place(words, name)
    if position is not None and words[position] == name:
        return [*words[: position + 1], str(value), *words[position + 2 :]]
    if position is not None:
        return [*words[:position], f"{name}={value}", *words[position + 1 :]]
    if option.endswith("=") or not option.startswith("-"):
        return [*words, f"{name}={value}"]  # as configurations by Hydra and the like are given
    return [*words, option, str(value)]


def _last_place(words: Sequence[str], name: str) -> int | None:
    """Where an option stands last, with a value: that one counts where it is given twice."""
    for position in reversed(range(len(words))):
        if words[position].startswith(f"{name}="):
            return position
        if words[position] == name and position + 1 < len(words):
            return position
    return None


def _in_one_word(words: Sequence[str], option: str) -> str:
    """Return a hint for programs that expect option and value in one word."""
    if option not in words:
        return ""
    return f"\nIf the program expects {option}=VALUE in one word, pass --largest {option}="


def _value_in(program: Sequence[str], option: str) -> int:
    """Return the option's value on the program's command line, or 1 without one.

    Raises:
        VramlabError: The value is not an integer.
    """
    name = option.removesuffix("=")
    position = _last_place(program, name)
    if position is None:
        return 1
    word = program[position]
    text = program[position + 1] if word == name else word.partition("=")[2]
    if not text.isascii() or not text.isdecimal():
        raise VramlabError(f"invalid {option} {text!r}: --largest works only with integers")
    return int(text)


def _next(search: Search, step: int) -> int | None:
    """Which value to try; None: it is found."""
    largest, too_large = search.largest, search.too_large
    if largest is None:
        assert too_large is not None
        return None if too_large <= step else max(step, too_large // 2 // step * step)
    guess = _on_the_curve(search, step)
    if too_large is None:
        far = _MOST_AT_ONCE * largest  # small values tell little of the curve
        return max(largest + step, min(guess or 2 * largest, far))
    gap = (too_large - largest) // step
    if gap <= 1:
        return None
    if guess is None or _last_alike(search) > _MOST_ALIKE:
        return largest + step * (gap // 2)
    # Where the curve ends outside, it is a little off: look beside it, and further away each time.
    beside = step * min(1 << 2 * (_last_alike(search) - 1), gap // 2)
    beyond = max(guess, largest + beside)
    return min(beyond, too_large - beside)


def _last_alike(search: Search) -> int:
    """How many of the last runs ended in the same way, fitting or not."""
    ends = [bool(each.fits) for each in search.outcomes.values()][::-1]
    return next((number for number, fits in enumerate(ends) if fits != ends[0]), len(ends))


def _on_the_curve(search: Search, step: int) -> int | None:
    """Where the curve through values that fit crosses the memory; None: it is not known yet.

    The curve is a parabola, as sequence lengths without flash attention have one; where it does not
    bend upwards, or only two values are known, a line.

    Raises:
        UnusableRun: it is level.
    """
    fitting = sorted(value for value, each in search.outcomes.items() if each.fits)
    if len(fitting) < 2:
        return None
    needed_bytes = {value: search.outcomes[value].needed_bytes for value in fitting}
    high = fitting[-1]
    # Not its neighbours: PyTorch reserves many MiB at a time, so that the curve has steps.
    middle = max((value for value in fitting if 2 * value <= high), default=fitting[0])
    slope = (needed_bytes[high] - needed_bytes[middle]) / (high - middle)
    if slope <= 0:
        if high >= _LEVEL * fitting[0]:
            raise UnusableRun(
                f"{search.option} {middle} and {high} use the same memory: either the peak does "
                f"not depend on {search.option}, or the program ignores it"
            )
        return None
    low = max((value for value in fitting if 2 * value <= middle), default=middle)
    bend = 0.0
    if low < middle:
        before = (needed_bytes[middle] - needed_bytes[low]) / (middle - low)
        bend = max(0.0, (slope - before) / (high - low))
    room_bytes = search.gpu.total_bytes - needed_bytes[high]
    slope += bend * (high - middle)  # at `high`
    more = 2 * room_bytes / (slope + math.sqrt(slope * slope + 4 * bend * room_bytes))
    return (high + int(more)) // step * step
