"""The course's own optimizers and steps: that they learn as torch's do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from vramlab_course.lessons.l16_lean_optimizers.sign_sgd import SignSGD
from vramlab_course.lessons.l16_lean_optimizers.step_in_backward import step_in_backward
from vramlab_course.programs import blockwise_adam
from vramlab_course.programs.blockwise_adam import BlockwiseAdamW, codebook, dequantize, quantize


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))


def train(
    make: Callable[..., torch.optim.Optimizer], steps: int, trained: nn.Module
) -> list[float]:
    """Learn a fixed random map; the losses."""
    optimizer = make(trained.parameters())
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(64, 64, generator=generator) / 8
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 64, generator=generator)
        loss = (trained(x) - x @ target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("signed", [False, True])
def test_a_codebook_has_256_values_that_reach_seven_powers_of_ten(signed: bool) -> None:
    code = codebook(signed)
    assert code.shape == (256,)
    assert torch.equal(code, code.unique())  # ascending, none twice
    assert code.max() == 1
    assert (code == 0).sum() == 1
    assert (code < 0).sum() == (127 if signed else 0)  # 64 + 32 + ... + 1
    smallest = code[code > 0].min()
    assert 1e-7 < smallest < 1e-6


def test_a_number_is_kept_within_half_a_step_of_its_block() -> None:
    torch.manual_seed(0)
    values = torch.randn(1000) * torch.logspace(-3, 0, 1000)
    code = codebook(signed=True)
    numbers, scales = quantize(values, code, block=256)
    assert (numbers.dtype, numbers.shape) == (torch.uint8, (1000,))
    assert scales.shape == (4,)  # 256 + 256 + 256 + 232
    assert torch.equal(scales[0], values[:256].abs().max())
    error = (dequantize(numbers, scales, code, 256) - values).abs()
    widest_step = (code[1:] - code[:-1]).max()
    assert (error <= scales.repeat_interleave(256)[:1000] * widest_step / 2 + 1e-7).all()


def test_it_learns_as_adamw_does() -> None:
    exact, short = model(), model()
    reference = train(torch.optim.AdamW, 200, exact)
    losses = train(BlockwiseAdamW, 200, short)
    assert reference[-1] < reference[0] / 4
    assert losses[-1] == pytest.approx(reference[-1], rel=0.02)
    # Both matrices have 8192 elements: bytes were at work, so the weights are not quite the same.
    assert not torch.equal(exact[0].weight, short[0].weight)
    # Biases are small: float32 states, and differences only by way of the matrices.
    difference = (exact[2].bias - short[2].bias).abs().max()
    assert difference < 0.01


def test_small_parameters_are_updated_as_by_adamw() -> None:
    weights = [nn.Parameter(torch.linspace(-1, 1, 100)) for _ in range(2)]
    ours, torchs = BlockwiseAdamW(weights[:1]), torch.optim.AdamW(weights[1:])
    for step in range(5):
        for weight in weights:
            weight.grad = torch.linspace(1, 2, 100) * (-1) ** step
        ours.step()
        torchs.step()
    assert torch.allclose(weights[0], weights[1], rtol=0, atol=1e-6)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, in_pieces = model(), model()
    train(BlockwiseAdamW, 3, whole)
    monkeypatch.setattr(blockwise_adam, "PIECE", 1024)
    train(BlockwiseAdamW, 3, in_pieces)
    assert torch.equal(whole[0].weight, in_pieces[0].weight)


def test_a_step_in_the_backward_pass_learns_the_same() -> None:
    after, within = model(), model()
    losses = train(torch.optim.AdamW, 5, after)
    step_in_backward(within.parameters(), torch.optim.AdamW)
    same = train(lambda parameters: torch.optim.SGD(parameters, lr=0.0), 5, within)
    assert losses == pytest.approx(same)
    assert torch.allclose(after[0].weight, within[0].weight)
    assert all(parameter.grad is None for parameter in within.parameters())


def test_sign_sgd_moves_every_number_by_the_same() -> None:
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([5.0, -0.001, 0.0])
    SignSGD([weight], lr=0.5).step()
    assert weight.tolist() == [-0.5, 0.5, 0.0]
