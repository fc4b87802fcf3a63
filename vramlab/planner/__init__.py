"""Plan a training run: what each GPU holds, whether it fits, and what to change if it does not.

    plan = Plan(find_model("llama-3.1-8b"), "A100-80GB", batch=8, sequence=4096, data=8, zero=3)
    about_bytes(plan)     # about its peak, in closed form
    estimate(plan)        # its peak: a few layers are run on a virtual GPU, and extended to all
    simulate(plan)        # all of it is run on a virtual GPU as large as the real one
    next_changes(plan)    # what would lower the peak, the best first
    report(plan)          # all of it as text and tables

torch is imported when something is run.

`vramlab plan` is the same in a shell, and the explorer of the course's lesson 23 in a notebook.
"""

from __future__ import annotations

from vramlab.planner.about import about_bytes
from vramlab.planner.advice import Change, next_changes
from vramlab.planner.estimate import Estimate, estimate, estimate_stage, largest_moments
from vramlab.planner.events import CATEGORIES, Moment
from vramlab.planner.models import MODELS, UnknownModel, find_model, read_config, sizes_of_config
from vramlab.planner.parts import UnevenParts, one_rank_of
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.report import Report, describe, report
from vramlab.planner.simulation import Simulation

__all__ = [
    "CATEGORIES",
    "MODELS",
    "Change",
    "Estimate",
    "Moment",
    "Plan",
    "Report",
    "Simulation",
    "UnevenParts",
    "UnknownModel",
    "UnsupportedPlan",
    "about_bytes",
    "describe",
    "estimate",
    "estimate_stage",
    "find_model",
    "largest_moments",
    "next_changes",
    "one_rank_of",
    "read_config",
    "report",
    "simulate",
    "sizes_of_config",
]


def simulate(
    plan: Plan, stage: int = 0, alloc_conf: str | None = None, steps: int = 2
) -> Simulation:
    """See `vramlab.planner.simulator.simulate`; imports torch only now."""
    from vramlab.planner import simulator

    return simulator.simulate(plan, stage, alloc_conf, steps)
