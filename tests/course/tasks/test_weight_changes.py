"""How far weights go in a training, to the last bit where halves are added."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.weight_changes import (
    require_same_training,
    tanh_chain,
    times_as_far,
    weight_changes,
)


def test_the_chain_has_a_tanh_after_each_layer_and_no_bias() -> None:
    chain = tanh_chain(3, 2)
    assert [type(module).__name__ for module in chain] == ["Linear", "Tanh", "Linear", "Tanh"]
    assert [tuple(parameter.shape) for parameter in chain.parameters()] == [(3, 3), (3, 3)]


def test_changes_are_what_the_training_adds() -> None:
    with vramlab.VirtualGPU("T4", values=True):
        chain = tanh_chain(2, 3)
        with torch.no_grad():
            for weight in chain.parameters():
                weight.fill_(1.0)

        def train() -> None:
            with torch.no_grad():
                for index, weight in enumerate(chain.parameters()):
                    assert weight.is_cuda
                    weight.add_(0.5 * index)

        changes = weight_changes(chain, train)
    assert changes.tolist() == [[[half, half], [half, half]] for half in (0.0, 0.5, 1.0)]


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ([1.0, 2.0], 1.0),
        ([3.0, 6.0], 3.0),
        ([-1.0, -2.0], -1.0),
        ([2.0, -1.0], 0.0),  # at a right angle
        ([5.0, 0.0], 1.0),  # (5 x 1 + 0 x 2) / (1 + 4)
    ],
)
def test_how_far_in_the_right_direction(changes: list[float], times: float) -> None:
    assert times_as_far(torch.tensor(changes), torch.tensor([1.0, 2.0])) == times


def test_a_few_steps_of_adam_may_go_the_other_way() -> None:
    weight = torch.ones(100, 100)
    other = weight.clone()
    other[:20, 0] += 2e-3  # 0.2 % of the numbers: off by 2e-3 x sqrt(20) / 100 = 9e-5 of its size
    require_same_training([weight, other], [weight, weight])


@pytest.mark.parametrize(
    ("rows", "by", "says"),
    [
        (100, 1e-5, "number 1 is off by 1.0e-05 of its size, and 100% of its elements"),
        (26, 1e-5, "number 1 is off by 5.1e-06 of its size, and 26% of its elements"),
        (2, 0.1, "number 1 is off by 1.4e-02 of its size, and 2% of its elements"),
        (1, float("nan"), "number 1 is off by nan of its size"),
    ],
)
def test_what_is_not_trained_is_not_the_same(rows: int, by: float, says: str) -> None:
    weight = torch.ones(100, 100)
    other = weight.clone()
    other[:rows] += by
    with pytest.raises(NotFixed, match=f"trained weights differ .*: {says}"):
        require_same_training([weight, other], [weight, weight])
