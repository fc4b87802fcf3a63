"""Casts with scales, and layers that multiply in 8 bits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab_course.lessons.l28_eight_bits_and_fewer.eight_bits import (
    E4M3,
    E5M2,
    EightBitLinear,
    Keep,
    binades,
    cast,
    cast_blocks,
    restore,
)


def test_the_largest_number_becomes_the_formats_largest() -> None:
    values = torch.tensor([[0.5, -2.0], [8.0, 1.0]])
    numbers, scale = cast(values)
    assert scale.item() == pytest.approx(8 / 448)
    assert numbers.float().abs().max().item() == 448
    assert restore(numbers, scale)[1, 0].item() == 8
    _, scales = cast(values, E5M2, dim=-1)
    assert scales.flatten().tolist() == pytest.approx([2 / 57344, 8 / 57344])


def test_zeros_stay_zeros() -> None:
    numbers, scale = cast(torch.zeros(4))
    assert restore(numbers, scale).tolist() == [0, 0, 0, 0]


def test_blocks_have_powers_of_two() -> None:
    # The largest exponent of E4M3 is 8: 1.5 has 2**0, so its block's scale is 2**-8.
    values = torch.full((1, 64), 1.5)
    values[0, 40] = 3.0  # 2**1: 2**-7
    numbers, scales = cast_blocks(values)
    assert scales.float().tolist() == [[2**-8, 2**-7]]
    assert torch.equal(restore(numbers, scales), values)


def test_what_is_beyond_the_largest_is_cut() -> None:
    # 1.9 x 2**8 = 486.4, of which 448 is left: 1.75
    numbers, scales = cast_blocks(torch.full((1, 32), 1.9))
    assert set(restore(numbers, scales).flatten().tolist()) == {1.75}


def test_numbers_are_counted_by_their_power_of_two() -> None:
    assert binades(torch.tensor([0.0, 1.0, -1.5, 3.0, 0.25])) == {-2: 1, 0: 2, 1: 1}


@pytest.mark.parametrize("keep", ["given", "casts"])
def test_a_layer_and_its_gradients_are_near_to_the_exact_ones(keep: Keep) -> None:
    with VirtualGPU("H100", values=True):
        torch.manual_seed(0)
        layer = EightBitLinear(32, 48, keep).to("cuda")
        exact = nn.Linear(32, 48, bias=False).to("cuda")
        with torch.no_grad():
            exact.weight.copy_(layer.weight)
        given = torch.randn(16, 32).to("cuda")
        found, wanted = [], []
        for model, results in ((layer, found), (exact, wanted)):
            x = given.clone().requires_grad_()
            y = model(x)
            y.square().mean().backward()
            results += [y.detach(), x.grad, model.weight.grad]
        for one, other in zip(found, wanted, strict=True):
            # Steps of an eighth, rounded: half of it at most; of a quarter for gradients.
            assert (one - other).norm() < 0.125 * other.norm()


def test_batches_of_rows_keep_their_shape() -> None:
    with VirtualGPU("H100"):
        layer = EightBitLinear(32, 64).to("cuda")
        x = torch.zeros(2, 8, 32, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        y = layer(x)
        assert (y.shape, y.dtype) == ((2, 8, 64), torch.bfloat16)
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.shape == (2, 8, 32)
        assert layer.weight.grad is not None
        assert layer.weight.grad.dtype == torch.float32


def test_casts_are_bytes() -> None:
    assert {E4M3.itemsize, E5M2.itemsize} == {1}
