"""How far weights go in a training, to the last bit where halves are added."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab_course.tasks.weight_changes import tanh_chain, times_as_far, weight_changes


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
