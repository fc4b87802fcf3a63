"""Plans beside each other: the estimated peak of each, against the GPU's memory."""

from __future__ import annotations

from vramlab.planner import Plan, estimate
from vramlab.programs.transformer_memory import Sizes
from vramlab.units import short_size
from vramlab_course.lessons.l23_capstone.picture import draw_plans

SMALL = Sizes(vocabulary=512, width=128, layers=2, heads=4)
PLAN = Plan(SMALL, "A100-40GB", batch=4)


def test_each_plan_is_a_bar_that_ends_at_its_peak() -> None:
    plans = {"whole": PLAN, "checkpointed": PLAN.but(checkpointing="full")}
    picture = draw_plans(plans, title="Two plans")
    for name, plan in plans.items():
        total = short_size(estimate(plan).peak_bytes)
        assert f"{name}: {total} (" in picture.alt
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == list(plans)
