"""The trial of a training in whose memory the weights are most: what it lets pass, and what not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from vramlab.units import MIB
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.deep_chain import WEIGHT_BYTES, Train, training

LAYERS = 6


def trainer(lr: float = 0.5, extra: int = 0, again: int = 0) -> Train:
    """SGD, with so many more tensors of a weight's size held, and batches loaded again."""

    def train(model: Any, load: Callable[[int], torch.Tensor], steps: int) -> None:
        held = [torch.zeros(WEIGHT_BYTES // 4, device="cuda") for _ in range(extra)]
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, foreach=False)
        for step in [*range(steps), *range(again)]:
            model(load(step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        held.clear()

    return train


def verdict(answer: Train, room_bytes: int = 0, batches_per_step: int = 1) -> str:
    repair = training(
        trainer(),
        room_bytes=room_bytes,
        question="Who holds more?",
        batches_per_step=batches_per_step,
    )
    return repair(answer, layers=LAYERS, steps=2)


def test_our_own_program_fits_without_room() -> None:
    # Weights and gradients: 12 x 1 MiB. Workspaces: 2 x 8.125 MiB. The rest is small.
    assert verdict(trainer()).startswith("peak 28.")


def test_more_than_the_room_is_too_much() -> None:
    # Reserved: 12 MiB of weights and gradients, 2 MiB of small blocks, and a segment of 20 MiB for
    # both workspaces. That is enough for 6 weights and 28 tensors more; 34 / 6 = 5.7.
    message = (
        "With a limit of 34.00 MiB, it runs out of memory in step 0 of 2, with 34.00 MiB "
        "allocated: 5.7 times the weights. Who holds more?"
    )
    with pytest.raises(NotFixed, match=f"^{re.escape(message)}$"):
        verdict(trainer(extra=30))


def test_the_room_may_be_used() -> None:
    assert "peak 58." in verdict(trainer(extra=30), room_bytes=40 * MIB)  # 28 + 30


def test_batches_are_loaded_once() -> None:
    with pytest.raises(NotFixed, match="does not load each of the 2 batches once"):
        verdict(trainer(again=1))


def test_batches_may_be_more_than_steps() -> None:
    with pytest.raises(NotFixed, match="does not load each of the 4 batches once"):
        verdict(trainer(), batches_per_step=2)


def test_the_model_learns_the_same() -> None:
    with pytest.raises(NotFixed, match="trained weights differ"):
        verdict(trainer(lr=0.25))
