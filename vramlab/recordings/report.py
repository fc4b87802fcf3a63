"""Comparisons in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramlab.recordings.alignment import Divergence
from vramlab.recordings.compare import Comparison, Number
from vramlab.recordings.known import names_and_reasons

_MOST_NUMBERS = 6
_MOST_EXTRA = 5


def lines_of(comparison: Comparison, *, verbose: bool = False) -> Iterator[str]:
    """Write the lines of one entry: one if it is equal, else what differs and where first."""
    name = comparison.entry
    if comparison.skipped is not None:
        yield f"{name}: skipped, {comparison.skipped}"
        return
    if comparison.problem is not None:
        yield f"{name}: {comparison.problem}"
    elif comparison.equal:
        yield f"{name}: equal"
    else:
        yield f"{name}: {len(comparison.differing)} of {len(comparison.numbers)} numbers differ"
    numbers = comparison.numbers if verbose else comparison.differing[:_MOST_NUMBERS]
    yield from map(_number_line, numbers)
    if not verbose and len(comparison.differing) > _MOST_NUMBERS:
        yield f"    and {len(comparison.differing) - _MOST_NUMBERS} more numbers (--verbose)"
    if comparison.divergence is not None and (verbose or not comparison.equal):
        yield from _divergence_lines(comparison.divergence)
    shown = comparison.extra_allocations if verbose else comparison.extra_allocations[:_MOST_EXTRA]
    for each in shown:
        yield (f"    only {each.side}: {each.count} x {each.size_bytes:,} B: {each.origin}")
    if len(comparison.extra_allocations) > len(shown):
        yield f"    and {len(comparison.extra_allocations) - len(shown)} more kinds (--verbose)"
    if verbose:
        for stage, key, recorded, virtual in comparison.statistics:
            yield f"    {stage}: {key}: {recorded:,} recorded, {virtual:,} virtual"


def summary_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Count the equal ones, and name the worst and the known differences that played a part."""
    compared = [each for each in comparisons if each.skipped is None]
    equal = sum(each.equal for each in compared)
    numbers = [number for each in compared for number in each.numbers]
    equal_numbers = sum(number.difference_bytes == 0 for number in numbers)
    yield (
        f"equal to the byte: {equal} of {len(compared)} entries, "
        f"{equal_numbers} of {len(numbers)} numbers"
    )
    worst = max(compared, key=lambda each: each.worst, default=None)
    if worst is not None and worst.worst:
        number = max(worst.numbers, key=lambda number: abs(number.relative))
        yield (
            f"worst: {worst.entry}, {number.quantity} of {number.stage!r}: "
            f"{number.relative:+.2%} ({number.difference_bytes:+,} B)"
        )
    skipped = len(comparisons) - len(compared)
    if skipped:
        yield f"skipped: {skipped} entries without a result in the recording"
    used = {number.known for number in numbers}
    for name, why, source in names_and_reasons():
        if name in used:
            yield f"known difference {name}: {why} ({source})"
    unexplained = [each.entry for each in compared if each.unexplained]
    if unexplained:
        yield f"unexplained differences: {len(unexplained)}: {', '.join(unexplained)}"


def _number_line(number: Number) -> str:
    line = (
        f"    {number.stage}: {number.quantity}: {number.recorded_bytes:,} B recorded, "
        f"{number.virtual_bytes:,} B virtual"
    )
    if number.difference_bytes:
        line += f": {number.difference_bytes:+,} B, {number.relative:+.3%}"
    return f"{line} [{number.known}]" if number.known else line


def _divergence_lines(divergence: Divergence) -> Iterator[str]:
    yield (
        f"    first difference in the traces: stage {divergence.stage!r}, "
        f"event {divergence.number}, after {divergence.allocation} allocations: {divergence.what}"
    )
    yield f"      recorded: {divergence.recorded or 'nothing more in this stage'}"
    yield f"      virtual:  {divergence.virtual or 'nothing more in this stage'}"
    if divergence.before is not None:
        yield f"      before:   {divergence.before}"
