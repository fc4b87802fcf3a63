"""Gradients of a repaired program have to be those of the program as it was."""

from __future__ import annotations

import pytest
import torch

from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.gradients import collect_gradients, require_gradients
from vramlab_course.tasks.repair import Run

EXPECTED = {"weight": torch.tensor([100.0, 0.0]), "bias": torch.tensor([1.0])}


def test_the_same_are_let_pass_and_so_is_what_rounding_leaves() -> None:
    require_gradients(EXPECTED, EXPECTED, 0.0)
    # 0.5 beside 0 is 1/200 of the largest number of its tensor
    require_gradients({**EXPECTED, "weight": torch.tensor([100.0, 0.5])}, EXPECTED, 0.01)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"weight": EXPECTED["weight"]}, "1 of 2 parameters have no gradient, bias among them."),
        ({**EXPECTED, "more": EXPECTED["bias"]}, "more has a gradient and should have none."),
        (
            {**EXPECTED, "weight": torch.tensor([100.0, 2.0])},  # 2 > 0.01 x 100
            "For weight: 1 of 2 numbers are off, the worst at [1]: 2 instead of 0 (tolerance: 1).",
        ),
        (
            {**EXPECTED, "bias": torch.tensor([1.03])},  # 0.03 > 0.01 x 1 + 0.01 x 1
            "For bias: 1 of 1 numbers are off, the worst at [0]: 1.03 instead of 1 "
            "(tolerance: 0.02).",
        ),
    ],
)
def test_others_are_not(found: dict[str, torch.Tensor], says: str) -> None:
    with pytest.raises(NotFixed) as raised:
        require_gradients(found, EXPECTED, 0.01)
    assert str(raised.value).endswith(says)


def test_they_are_taken_from_the_model_that_was_trained() -> None:
    model = torch.nn.Linear(2, 1)
    model.weight.grad = torch.tensor([[1.0, 2.0]])  # and the bias has none
    run = Run({}, None, inputs=(model, "batches"))
    assert collect_gradients(run, "whatever it returned")["weight"].tolist() == [[1.0, 2.0]]


def test_they_are_read_past_what_a_program_has_put_in_the_way() -> None:
    """Methods that were replaced in a module, and tensors that compute when they are read."""

    class Later(torch.Tensor):
        pass

    model = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False))
    model[0].weight.grad = torch.tensor([[1.0, 2.0]])
    model.parameters = model.named_parameters = lambda *_: pytest.fail("it was asked")
    run = Run({}, None, inputs=(model,))
    assert list(collect_gradients(run, None)) == ["0.weight"]
    model[0].weight.grad = torch.tensor([[1.0, 2.0]]).as_subclass(Later)
    with pytest.raises(NotFixed, match="It leaves a Later"):
        collect_gradients(run, None)
