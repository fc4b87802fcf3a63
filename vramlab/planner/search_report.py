"""The result of `vramlab plan --search`, as text and in JSON types."""

from __future__ import annotations

from dataclasses import asdict
from math import floor, log10
from typing import Any

from vramlab.cuda_rules.durations import LINK
from vramlab.planner.about import about_bytes
from vramlab.planner.plan import Plan
from vramlab.planner.search import Candidate, Found, Rejected
from vramlab.planner.step_time import ERROR
from vramlab.programs.divisions import ZERO_STAGES
from vramlab.table import Table
from vramlab.units import format_bytes

SCHEMA = 1
"""Version of what `search_dict` returns; `plan_search.schema.json` describes it."""


def search_table(found: Found) -> Table:
    """Return the plans that fit, the best first."""
    plans = [one.plan for one in found.fitting]
    places = {(one.model.name, one.ranks) for one in plans}
    one_place = len(places) == 1
    limits = {found.limit_bytes(plan) for plan in plans}
    at_most = f" of at most {format_bytes(limits.pop())}" if len(limits) == 1 else ""
    priced = all(one.price_per_hour is not None for one in found.fitting)
    model, ranks = plans[0].model.name, plans[0].ranks
    heading = (
        *(() if one_place else ("GPUs",)),
        "tokens/s",
        *(("cost of 1e6 tokens",) if priced else ()),
        "ranks",
        "micro-batch",
        "precision",
        "settings",
        "peak",
        "bound by",
        "next micro-batch",
    )
    return Table(
        f"Plans that fit on {ranks} x {model}, by estimated tokens/s of all GPUs"
        if one_place
        else "Best plan for each number of GPUs, the cheapest first"
        if priced
        else "Best plan for each number of GPUs, the least memory first",
        heading,
        tuple(_row(found, one, one_place=one_place, priced=priced) for one in found.fitting),
        (
            f"Peaks are exact. Each leaves {found.margin:.0%} of the memory after the CUDA "
            f"context{at_most}, for NCCL, fragmentation and other processes.",
            f"Times are estimates: {ERROR}. Communication and offloading are not calibrated: a "
            f"collective is assumed to have {LINK:.0%} of a link's bandwidth.",
            f"Of {found.candidates} candidates, {len(found.fitting) + len(found.rejected)} were "
            f"simulated, {len(found.ruled_out)} were ruled out by a lower bound of their peak or "
            f"by a smaller micro-batch, and {found.slower} are slower than a listed plan with the "
            "same settings.",
        ),
    )


def _row(found: Found, one: Candidate, *, one_place: bool, priced: bool) -> tuple[str, ...]:
    plan = one.plan
    accumulated = f" x {plan.micro_batches}" if plan.micro_batches > 1 else ""
    cost = one.cost_per_million_tokens
    return (
        *(() if one_place else (f"{plan.ranks} x {plan.model.name}",)),
        f"about {two_digits(one.tokens_per_second):,}",
        *((f"about {cost:.2g}",) if priced and cost is not None else ()),
        mesh_of(plan),
        f"{plan.at_a_time}{accumulated}",
        plan.precision,
        settings_of(plan),
        format_bytes(one.peak_bytes),
        one.time.bound_by,
        _why_no_larger(found, plan),
    )


def _why_no_larger(found: Found, plan: Plan) -> str:
    larger = found.next_larger(plan)
    if isinstance(larger, Rejected):
        why = ", fragmented" if larger.runs_out else ""
        return f"{larger.plan.at_a_time}: {format_bytes(larger.peak_bytes)}{why}, does not fit"
    if larger is not None:
        return f"{larger.at_a_time}: about {format_bytes(about_bytes(larger))}, ruled out"
    return ""


def mesh_of(plan: Plan) -> str:
    """Return how the ranks share the model, such as "4 ZeRO-3 x 2 TP"."""
    parts = [f"{plan.data} {ZERO_STAGES[plan.zero]}"] if plan.data > 1 else []
    parts += [f"{plan.tensor} TP"] if plan.tensor > 1 else []
    parts += [f"{plan.pipeline} PP"] if plan.pipeline > 1 else []
    return " x ".join(parts) or "1"


def settings_of(plan: Plan) -> str:
    """Return what a plan trades for memory, in words; "none" if it trades nothing."""
    parts = []
    if plan.checkpointing != "none":
        every = f" of 1 in {plan.checkpoint_every} layers" if plan.checkpoint_every > 1 else ""
        parts.append(f"{plan.checkpointing} checkpointing{every}")
    if plan.loss_chunks > 1:
        parts.append(f"loss in {plan.loss_chunks} chunks")
    if plan.offload != "nothing":
        both = "optimizer and activations"
        parts.append(f"{both if plan.offload == 'both' else plan.offload} offloaded")
    if plan.adapter_rank:
        parts.append(f"LoRA of rank {plan.adapter_rank}")
    if plan.optimizer != "adamw":
        parts.append(plan.optimizer)
    if plan.attention != "flash":
        parts.append(f"{plan.attention} attention")
    return ", ".join(parts) or "none"


def two_digits(value: float) -> int:
    """Round to two significant digits: the error of the time model supports no more.

    >>> two_digits(19_591)
    20000
    """
    return int(round(value, 1 - floor(log10(value)))) if value >= 1 else 0


def search_dict(found: Found) -> dict[str, Any]:
    """Return the result in JSON types, with sizes in bytes and times in seconds.

    `vramlab/planner/plan_search.schema.json` describes it.
    """
    return {
        "schema": SCHEMA,
        "margin": found.margin,
        "candidates": found.candidates,
        "simulated": len(found.fitting) + len(found.rejected),
        "ruled_out": len(found.ruled_out),
        "slower": found.slower,
        "interrupted": found.interrupted,
        "time_error": ERROR,
        "fits": [_candidate_dict(found, one) for one in found.fitting],
        "does_not_fit": [
            {"plan": _plan_dict(one.plan), "peak_bytes": one.peak_bytes, "runs_out": one.runs_out}
            for one in found.rejected
        ],
    }


def _candidate_dict(found: Found, one: Candidate) -> dict[str, Any]:
    cost = one.cost_per_million_tokens
    return {
        "plan": _plan_dict(one.plan),
        "gpus": one.plan.ranks,
        "peak_bytes": one.peak_bytes,
        "limit_bytes": found.limit_bytes(one.plan),
        "tokens_per_second": two_digits(one.tokens_per_second),
        "bound_by": one.time.bound_by,
        "cost_per_million_tokens": None if cost is None else float(f"{cost:.2g}"),
    }


def _plan_dict(plan: Plan) -> dict[str, Any]:
    return {**asdict(plan), "gpu": plan.model.name}
