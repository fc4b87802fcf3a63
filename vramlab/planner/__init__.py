"""Plan a training run: what each GPU holds, whether it fits, and what to change if it does not.

    plan = Plan(find_model("llama-3.1-8b"), "A100-80GB", batch=8, sequence=4096, data=8, zero=3)
    estimate(plan)        # closed form, at once (`vramlab_course.formulas.rank_peak`)
    simulate(plan)        # PyTorch's own code, one rank alone on a virtual GPU (imports torch)
    next_changes(plan)    # what would lower the peak, the best first
    report(plan)          # all of it as text and tables

`vramlab plan` is the same in a shell, and `vramlab_course.widgets.planner_explorer` in a notebook.
"""

from __future__ import annotations

from vramlab.planner.advice import Change, next_changes
from vramlab.planner.estimate import Estimate, estimate, estimate_stage
from vramlab.planner.models import MODELS, UnknownModel, find_model, read_config, sizes_of_config
from vramlab.planner.parts import UnevenParts, one_rank_of
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.report import Report, describe, report
from vramlab.planner.simulation import Simulation

__all__ = [
    "MODELS",
    "Change",
    "Estimate",
    "Plan",
    "Report",
    "Simulation",
    "UnevenParts",
    "UnknownModel",
    "UnsupportedPlan",
    "describe",
    "estimate",
    "estimate_stage",
    "find_model",
    "next_changes",
    "one_rank_of",
    "read_config",
    "report",
    "simulate",
    "sizes_of_config",
]


def simulate(plan: Plan, stage: int = 0, alloc_conf: str | None = None) -> Simulation:
    """See `vramlab.planner.simulator.simulate`; imports torch only now."""
    from vramlab.planner import simulator

    return simulator.simulate(plan, stage, alloc_conf)
