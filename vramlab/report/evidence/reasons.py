"""Reasons why the peak of a run may differ from the peak on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vramlab.native.report import Kind, SubstituteCall
from vramlab.report.evidence.unsure_operators import UnsureOperators
from vramlab.report.evidence.value_flow import Decision
from vramlab.report.summary import Reason, StepCounts
from vramlab.source_files import shown_name
from vramlab.units import format_bytes

_LARGE = 0.01
"""Fraction of the peak that an operator's tensors need to have to make the verdict uncertain."""


def reasons_of_values(decisions: Mapping[Decision, bool], folder: str) -> Iterator[Reason]:
    """Return the lines that decide something from a value on the GPU, in program order."""
    for decision, at_most in decisions.items():
        place = f"{shown_name(decision.filename, folder)}:{decision.line}"
        place = f"{place} ({decision.text})" if decision.text else place
        if at_most:
            yield Reason(f"{place} is counted as if it selected all elements", at_most=True)
        else:
            yield Reason(f"{place} decides {decision.what} based on a value that was not computed")


def reasons_of_operators(operators: UnsureOperators, peak_bytes: int) -> Iterator[Reason]:
    """Return the unconfirmed operators whose tensors are a large part of the peak."""
    for name, size_bytes in operators.largest_bytes.items():
        if size_bytes >= _LARGE * peak_bytes:
            what = f"{name} handles {format_bytes(size_bytes)} in one call"
            yield Reason(f"{what}, and {operators.reasons[name]}")


def reasons_of_libraries(
    unknown_workspaces: int, calls: Sequence[SubstituteCall]
) -> Iterator[Reason]:
    """Return the libraries that may have allocated an unknown amount of memory."""
    if unknown_workspaces:
        count = f"{unknown_workspaces:,} convolution{'' if unknown_workspaces == 1 else 's'}"
        yield Reason(
            f"the workspace sizes of {count} are unknown (run `vramlab native setup --cudnn` to "
            "download cuDNN, which decides them)"
        )
    for call in calls:
        if call.kind is Kind.FOREIGN:
            yield Reason(
                f"{call.library} is not vramlab's stub library, so its allocations are unknown"
            )


def reasons_of_steps(stopped_by: str | None, counts: StepCounts) -> Iterator[Reason]:
    """Return what a stopped training has not reached, and what values decide in its steps.

    Source: `LBFGS.step` in torch/optim/lbfgs.py, PyTorch 2.13.
    """
    if counts.decides_by_values:
        yield Reason(
            "torch.optim.LBFGS keeps up to history_size pairs of directions, one per iteration, "
            "and the number of iterations depends on values that were not computed"
        )
    if stopped_by in ("--steps", "--seconds") and counts.optimizer_steps == 1 and counts.has_states:
        yield Reason(
            "only one optimizer step ran, and optimizer states exist only from the second forward "
            "and backward pass on (try --steps 2)"
        )
