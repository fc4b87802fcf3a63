"""The result of `vramlab plan --search`, as text and in JSON types."""

from __future__ import annotations

from dataclasses import asdict
from math import floor, log10
from typing import Any

from vramlab.cuda_rules.durations import LINK
from vramlab.planner.about import about_bytes
from vramlab.planner.search import Candidate, Found, Rejected
from vramlab.planner.step_time import ERROR
from vramlab.table import Table
from vramlab.units import format_bytes


def search_table(found: Found, price_per_hour: float | None = None) -> Table:
    """Return the plans that fit, fastest first.

    Args:
        found: The result of the search.
        price_per_hour: Price of one GPU, in any currency.
    """
    heading = ("tokens/s", "micro-batch", "ZeRO", "checkpointing", "precision", "peak", "bound by")
    rows = [_row(found, one, price_per_hour) for one in found.fitting]
    first = found.fitting[0].plan
    return Table(
        f"Plans that fit on {first.ranks} x {first.model.name}, by estimated tokens/s of all GPUs",
        (
            *heading,
            "next micro-batch",
            *(("cost of 1e6 tokens",) if price_per_hour is not None else ()),
        ),
        tuple(rows),
        (
            f"Peaks are exact. They are at most {format_bytes(found.limit_bytes)}: the memory "
            "after the CUDA context, less a margin for NCCL, fragmentation and other processes.",
            f"Times are estimates: {ERROR}. Communication is not calibrated: it is assumed to have "
            f"{LINK:.0%} of a link's bandwidth and to overlap with computation.",
            f"{len(found.fitting) + len(found.rejected)} of {found.candidates} candidates were "
            f"simulated; {len(found.ruled_out)} were ruled out by a formula or a smaller "
            "micro-batch.",
        ),
    )


def _row(found: Found, one: Candidate, price_per_hour: float | None) -> tuple[str, ...]:
    plan, larger = one.plan, found.next_larger(one.plan)
    passed = ""
    if isinstance(larger, Rejected):
        why = ", fragmented" if larger.runs_out else ""
        passed = f"{larger.plan.at_a_time}: {format_bytes(larger.peak_bytes)}{why}, does not fit"
    elif larger is not None:
        passed = f"{larger.at_a_time}: about {format_bytes(about_bytes(larger))}, ruled out"
    accumulated = f" x {plan.micro_batches}" if plan.micro_batches > 1 else ""
    row = (
        f"about {two_digits(one.tokens_per_second):,}",
        f"{plan.at_a_time}{accumulated}",
        str(plan.zero),
        plan.checkpointing,
        plan.precision,
        format_bytes(one.peak_bytes),
        one.time.bound_by,
        passed,
    )
    if price_per_hour is None:
        return row
    return (*row, f"about {cost_per_million(one, price_per_hour):.2g}")


def cost_per_million(one: Candidate, price_per_hour: float) -> float:
    """Return the price of a million tokens on all GPUs of a plan."""
    return price_per_hour * one.plan.ranks / 3600 / one.tokens_per_second * 1e6


def two_digits(value: float) -> int:
    """Round to two significant digits: the error of the time model supports no more.

    >>> two_digits(19_591)
    20000
    """
    return int(round(value, 1 - floor(log10(value)))) if value >= 1 else 0


def search_dict(found: Found, price_per_hour: float | None = None) -> dict[str, Any]:
    """Return the result in JSON types, with sizes in bytes and times in seconds."""
    return {
        "limit_bytes": found.limit_bytes,
        "candidates": found.candidates,
        "simulated": len(found.fitting) + len(found.rejected),
        "ruled_out": len(found.ruled_out),
        "interrupted": found.interrupted,
        "time_error": ERROR,
        "fits": [
            {
                "plan": asdict(one.plan),
                "peak_bytes": one.peak_bytes,
                "tokens_per_second": two_digits(one.tokens_per_second),
                "bound_by": one.time.bound_by,
                "cost_per_million_tokens": None
                if price_per_hour is None
                else float(f"{cost_per_million(one, price_per_hour):.2g}"),
            }
            for one in found.fitting
        ],
        "does_not_fit": [
            {"plan": asdict(one.plan), "peak_bytes": one.peak_bytes, "runs_out": one.runs_out}
            for one in found.rejected
        ],
    }
