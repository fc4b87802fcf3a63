"""Why the peak of a run is not the program's: what decides it, and is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vramlab.native.report import Kind, SubstituteCall
from vramlab.report.evidence.unsure_operators import UnsureOperators
from vramlab.report.evidence.value_flow import Decision
from vramlab.report.summary import Reason, StepCounts
from vramlab.source_files import shown_name
from vramlab.units import format_bytes

_LARGE = 0.01
"""Of the peak: tensors of an operator from which on it changes the verdict."""


def reasons_of_values(decisions: Mapping[Decision, bool], folder: str) -> Iterator[Reason]:
    """Name the lines at which values that do not exist decide, in the order of reads."""
    for decision, at_most in decisions.items():
        place = f"{shown_name(decision.filename, folder)}:{decision.line}"
        place = f"{place} ({decision.text})" if decision.text else place
        if at_most:
            yield Reason(f"{place} is counted as if all elements were chosen", at_most=True)
        else:
            yield Reason(f"{place} decides {decision.what} by a value that does not exist here")


def reasons_of_operators(operators: UnsureOperators, peak_bytes: int) -> Iterator[Reason]:
    """Name the operators that are not sure, and whose tensors are a large part of the peak."""
    for name, size_bytes in operators.largest_bytes.items():
        if size_bytes >= _LARGE * peak_bytes:
            what = f"{name} handles {format_bytes(size_bytes)} in a call"
            yield Reason(f"{what}, and {operators.reasons[name]}")


def reasons_of_libraries(
    unknown_workspaces: int, calls: Sequence[SubstituteCall]
) -> Iterator[Reason]:
    """Say which libraries may have taken memory that is not known."""
    if unknown_workspaces:
        count = f"{unknown_workspaces:,} convolution{'' if unknown_workspaces == 1 else 's'}"
        yield Reason(
            f"the workspaces of {count} are not known (`vramlab native setup --cudnn` fetches the "
            "library that knows them)"
        )
    for call in calls:
        if call.kind is Kind.FOREIGN:
            yield Reason(
                f"{call.library} was loaded from elsewhere, and what it takes is not known"
            )


def reasons_of_steps(stopped_by: str | None, counts: StepCounts) -> Iterator[Reason]:
    """Say what a training that was stopped has not come to, and what values decide in its steps.

    Source: `LBFGS.step` in torch/optim/lbfgs.py, PyTorch 2.13.
    """
    if counts.decides_by_values:
        yield Reason(
            "torch.optim.LBFGS keeps a pair of directions (up to history_size) for each iteration, "
            "and values that do not exist here decide how many it makes"
        )
    if stopped_by in ("--steps", "--seconds") and counts.optimizer_steps == 1 and counts.has_states:
        yield Reason(
            "one optimizer step has run, and the next forward and backward pass has optimizer "
            "states beside it"
        )
