"""Gradient checkpointing as a plan: what to keep of a chain, and what to compute again.

    schedule     the actions of a schedule, and a simulator that says what is held when
    strategies   schedules: store all, recompute all, segments, Revolve
    execute      runs a schedule over modules, with real recomputation (imports torch)

For example:

    from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import revolve, simulate
    simulate(revolve(12, slots=3)).forwards
"""

from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.schedule import (
    Action,
    Do,
    InvalidSchedule,
    Schedule,
    ScheduleMoment,
    ScheduleSimulation,
    simulate,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.strategies import (
    binomial,
    recompute_all,
    revolve,
    revolve_advances,
    segments,
    store_all,
)

__all__ = [
    "Action",
    "Do",
    "InvalidSchedule",
    "Schedule",
    "ScheduleMoment",
    "ScheduleSimulation",
    "binomial",
    "recompute_all",
    "revolve",
    "revolve_advances",
    "segments",
    "simulate",
    "store_all",
]
