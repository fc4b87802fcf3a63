"""Schedules run over real modules: gradients as in plain training, memory as predicted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import vramlab
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    Schedule,
    recompute_all,
    revolve,
    segments,
    simulate,
    store_all,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.execute import execute
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_formulas import (
    linear_sizes,
    mlp_sizes,
    moments_bytes,
)
from vramlab_course.rules import RULES

STEPS = 6
SCHEDULES = [
    store_all(STEPS),
    recompute_all(STEPS),
    segments(STEPS, 2),
    segments(STEPS, 4),
    segments(STEPS, STEPS),
    revolve(STEPS, 2),
    revolve(STEPS, 3),
    revolve(STEPS, STEPS),
]
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)


def chain(dropout: float) -> list[nn.Sequential]:
    torch.manual_seed(1)
    return [
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout)).cuda() for _ in range(STEPS)
    ]


def gradients(steps: list[nn.Sequential], x: torch.Tensor) -> list[torch.Tensor]:
    found = [parameter.grad for step in steps for parameter in step.parameters()]
    return [gradient for gradient in [*found, x.grad] if gradient is not None]


@each_schedule
def test_gradients_are_those_of_plain_training_with_dropout(schedule: Schedule) -> None:
    with vramlab.VirtualGPU("T4", values=True):
        plain, scheduled = chain(0.5), chain(0.5)
        x = torch.randn(16, 8, device="cuda").requires_grad_()
        again = x.detach().clone().requires_grad_()
        torch.manual_seed(2)
        value = nn.Sequential(*plain)(x).square().mean()
        value.backward()
        after = torch.rand(1, device="cuda")
        torch.manual_seed(2)
        execution = execute(schedule, scheduled, again, lambda y: y.square().mean())
        assert torch.equal(execution.loss, value.detach())
        # What is drawn next is not disturbed by what was drawn again.
        assert torch.equal(torch.rand(1, device="cuda"), after)
        pairs = list(zip(gradients(plain, x), gradients(scheduled, again), strict=True))
        assert len(pairs) == 2 * STEPS + 1
        assert all(torch.equal(one, other) for one, other in pairs)


@each_schedule
def test_a_first_step_without_parameters_wants_no_gradient(schedule: Schedule) -> None:
    with vramlab.VirtualGPU("T4", values=True):
        plain, scheduled = ([nn.Tanh(), *chain(0.0)[1:]] for _ in range(2))
        x = torch.randn(16, 8, device="cuda")
        nn.Sequential(*plain)(x).sum().backward()
        execute(schedule, scheduled, x, torch.sum)
        for one, other in zip(plain[1:], scheduled[1:], strict=True):
            pairs = zip(one.parameters(), other.parameters(), strict=True)
            assert all(torch.equal(p.grad, q.grad) for p, q in pairs)  # type: ignore[arg-type]
        assert x.grad is None


@each_schedule
def test_steps_run_as_often_as_simulated(schedule: Schedule) -> None:
    calls = [0] * STEPS
    with vramlab.VirtualGPU("T4", torch_version=RULES):
        steps = chain(0.0)
        for index, step in enumerate(steps):
            step.register_forward_hook(
                lambda *_, index=index: calls.__setitem__(index, calls[index] + 1)
            )
        execution = execute(schedule, steps, torch.zeros(16, 8, device="cuda"), torch.sum)
    assert execution.forwards == sum(calls) == simulate(schedule).forwards


@each_schedule
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_memory_is_as_predicted_at_every_action(schedule: Schedule, kind: str) -> None:
    batch, width = 8192, 64  # a state has 2 MiB, a weight 16 or 64 KiB
    with vramlab.VirtualGPU("T4", torch_version=RULES):
        if kind == "linear":
            sizes = linear_sizes(batch, width)
            steps = [nn.Sequential(nn.Linear(width, width, bias=False)) for _ in range(STEPS)]
        else:
            sizes = mlp_sizes(batch, width)
            steps = [
                nn.Sequential(
                    nn.Linear(width, 4 * width, bias=False),
                    nn.GELU(),
                    nn.Linear(4 * width, width, bias=False),
                )
                for _ in range(STEPS)
            ]
        steps = [step.cuda() for step in steps]
        x = torch.zeros(batch, width, device="cuda")
        nn.Sequential(*steps)(x).sum().backward()  # cuBLAS's workspaces come
        for step in steps:
            step.zero_grad()
        before_bytes = torch.cuda.memory_allocated()
        execution = execute(schedule, steps, x, torch.sum, readings=True)
    measured = [
        (str(r.action), r.allocated_bytes - before_bytes, r.peak_bytes - before_bytes)
        for r in execution.readings
    ]
    predicted = [
        (str(action), *both)
        for action, both in zip(schedule.actions, moments_bytes(schedule, sizes), strict=True)
    ]
    assert measured == predicted
