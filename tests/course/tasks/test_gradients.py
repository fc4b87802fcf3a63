"""Gradients of a repaired program have to be those of the program as it was."""

from __future__ import annotations

import pytest
import torch

from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.gradients import collect_gradients, require_gradients
from vramlab_course.tasks.repair import Run

EXPECTED = [torch.tensor([100.0, 0.0]), torch.tensor([1.0])]


def test_the_same_are_let_pass_and_so_is_what_rounding_leaves() -> None:
    require_gradients(EXPECTED, EXPECTED, 0.0)
    # 0.5 beside 0 is 1/200 of the largest number of its tensor
    require_gradients([torch.tensor([100.0, 0.5]), EXPECTED[1]], EXPECTED, 0.01)


@pytest.mark.parametrize(
    "found",
    [
        EXPECTED[:1],
        [*EXPECTED, EXPECTED[1]],
        [torch.tensor([100.0, 2.0]), EXPECTED[1]],  # 2 > 0.01 x 100
        [EXPECTED[0], torch.tensor([1.03])],  # 0.03 > 0.01 x 1 + 0.01 x 1
    ],
)
def test_others_are_not(found: list[torch.Tensor]) -> None:
    with pytest.raises(NotFixed, match="the gradients are others, or are missing"):
        require_gradients(found, EXPECTED, 0.01)


def test_they_are_taken_from_the_model_that_was_trained() -> None:
    model = torch.nn.Linear(2, 1)
    model.weight.grad = torch.tensor([[1.0, 2.0]])  # and the bias has none
    (gradient,) = collect_gradients(
        Run({}, None, inputs=(model, "batches")), "whatever it returned"
    )
    assert gradient.tolist() == [[1.0, 2.0]]
