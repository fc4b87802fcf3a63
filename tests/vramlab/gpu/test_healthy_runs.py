"""Programs ask whether all is finite; in a healthy run it is."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU


def test_questions_of_a_training_loop(gpu: VirtualGPU) -> None:
    layer = nn.Linear(4, 4).cuda()
    loss = layer(torch.ones(2, 4, device="cuda")).pow(2).mean()
    assert torch.isfinite(loss)
    assert loss.isfinite().all()
    assert not torch.isnan(loss)
    assert not (loss.isnan().any())
    assert not (torch.isinf(loss).any())
    loss.backward()
    norm = nn.utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True)
    assert norm.isfinite()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


def test_a_loss_that_is_read_passes_for_finite(nan_gpu: VirtualGPU) -> None:
    loss = torch.rand(2, device="cuda").exp().mean()
    value = loss.item()
    assert value != value
    for read in (value, float(loss)):
        assert math.isfinite(read)
        assert not math.isnan(read)
        assert not math.isinf(read)
    assert math.isnan(float("nan"))  # any other is what it is
    assert math.isnan(torch.full((), float("nan"), device="cuda").item())
    nan_gpu.detach()
    assert math.isnan(value)
    nan_gpu.attach()


QUESTIONS = ("isfinite", "isnan", "isinf")


def of_math() -> list[object]:
    return [getattr(math, name) for name in QUESTIONS]


@pytest.mark.parametrize(
    "options", [{}, {"values": True}, {"values": True, "on_value": "nan"}], ids=str
)
def test_math_is_left_alone_where_no_such_nan_is_given(options: dict[str, Any]) -> None:
    """To the program: optimizers get one, and do not ask what it is."""
    own = of_math()
    with VirtualGPU("T4", **options):
        assert of_math() == own
        layer = nn.Linear(4, 4).cuda()
        for optimizer in (
            torch.optim.LBFGS(layer.parameters()),
            torch.optim.Adafactor(layer.parameters()),
            torch.optim.ASGD(layer.parameters()),
        ):

            def closure() -> torch.Tensor:
                layer.zero_grad()
                loss = layer(torch.ones(2, 4, device="cuda")).pow(2).mean()
                loss.backward()
                return loss

            optimizer.step(closure)
        loss = closure().detach()
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(loss)
        with VirtualGPU("T4", on_value="nan"):
            assert not set(of_math()) & set(own)
            assert [f.__name__ for f in (math.isfinite, math.isnan, math.isinf)] == [*QUESTIONS]
            with pytest.raises(TypeError, match="must be real number, not str"):
                math.isfinite("1")  # type: ignore[arg-type]
        assert of_math() == own
    assert of_math() == own


def test_known_values_are_asked_themselves(gpu: VirtualGPU) -> None:
    infinite = torch.full((3,), float("inf"), device="cuda")
    assert not torch.isfinite(infinite).any()
    assert torch.isinf(infinite).all()
    assert torch.full((3,), float("nan"), device="cuda").isnan().all()
    assert torch.isfinite(torch.tensor([1.0, float("inf")])).tolist() == [True, False]  # the host's


def test_a_module_on_the_gpu_is_not_exported(gpu: VirtualGPU) -> None:
    layer, x = nn.Linear(4, 4), torch.ones(2, 4)
    assert torch.export.export(layer, (x,)).module()(x).shape == (2, 4)
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"torch\.export\.export is not modelled"):
        torch.export.export(layer.cuda(), (x.cuda(),))


ASSERTING = """\
import torch
boxes = torch.rand(3, 4, device="cuda")
assert (boxes[:, 2:] >= boxes[:, :2]).all()
assert boxes.min() >= 0 and boxes.max() <= 1, "of one line"
assert not (boxes > 1).any()
def settled(x):
    if (x > 1).any():
        raise ValueError("what is called from an assertion")
    return True
assert settled(boxes)
if (boxes > 0.5).any():
    raise ValueError("a question, no assertion")
"""


def test_what_a_program_asserts_is_true(nan_gpu: VirtualGPU, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(ASSERTING)
    runpy.run_path(str(path))
