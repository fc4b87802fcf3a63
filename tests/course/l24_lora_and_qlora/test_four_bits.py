"""Weights of 4 bits: their values, their bytes, and the gradient that passes through them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vramlab_course.lessons.l24_lora_and_qlora.adapters import AdaptedLinear, adapt
from vramlab_course.lessons.l24_lora_and_qlora.formulas import bits_per_parameter, four_bit_bytes
from vramlab_course.lessons.l24_lora_and_qlora.four_bits import (
    FourBitLinear,
    dequantize,
    dequantize_scales,
    nf4_values,
    quantize,
    quantize_scales,
)


def test_the_values_are_those_of_the_paper() -> None:
    # arXiv 2305.14314, appendix E, rounded to 3 digits.
    assert [round(value, 3) for value in nf4_values()] == [
        *(-1.0, -0.696, -0.525, -0.395, -0.284, -0.185, -0.091, 0.0),
        *(0.080, 0.161, 0.246, 0.338, 0.441, 0.563, 0.723, 1.0),
    ]


def test_what_is_one_of_the_values_comes_back_as_it_was() -> None:
    weight = torch.tensor(nf4_values() * 8) * torch.tensor([3.0, 5.0]).repeat_interleave(64)
    packed, scales = quantize(weight)
    assert packed.dtype == torch.uint8
    assert packed.numel() == 64
    assert scales.tolist() == [3.0, 5.0]
    assert torch.equal(dequantize(packed, scales), weight)


def test_a_weight_of_zeros_has_no_nan() -> None:
    assert dequantize(*quantize(torch.zeros(128))).tolist() == [0.0] * 128


def test_scales_come_back_within_half_a_step() -> None:
    scales = torch.rand(600) + 1  # three blocks of at most 256
    steps, largest, mean = quantize_scales(scales)
    assert (steps.dtype, len(steps), len(largest)) == (torch.int8, 600, 3)
    half_a_step = largest.repeat_interleave(256)[:600] / 127 / 2
    off = (dequantize_scales(steps, largest, mean) - scales).abs()
    assert bool((off <= half_a_step * 1.001).all())


@pytest.mark.parametrize("keeps_weight", [False, True])
def test_the_gradient_is_that_of_the_weight_turned_back(keeps_weight: bool) -> None:
    torch.manual_seed(0)
    linear = FourBitLinear(nn.Linear(64, 32, bias=False), keeps_weight=keeps_weight)
    x = torch.randn(5, 64, requires_grad=True)
    linear(x).square().sum().backward()
    weight = linear.weight(torch.float32)
    expected = 2 * (x.detach() @ weight.T) @ weight
    torch.testing.assert_close(x.grad, expected)


def test_an_adapter_begins_with_what_was_there_and_learns_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.GELU(), nn.Linear(64, 8, bias=False))
    x = torch.randn(3, 64)
    before = model(x)
    assert adapt(model, 4, ["0"]) is model
    assert torch.equal(model(x), before)
    learning = [name for name, each in model.named_parameters() if each.requires_grad]
    assert learning == ["0.down.weight", "0.up.weight"]


def test_four_bits_for_some_and_adapters_for_others() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(3)))
    adapt(model, 4, ["0"], four_bits=["0", "1"])
    kinds = [type(layer) for layer in model]
    assert kinds == [AdaptedLinear, FourBitLinear, nn.Linear]
    assert isinstance(model[0].base, FourBitLinear)


def test_bytes_by_formula() -> None:
    assert bits_per_parameter() == 4.5  # 4 + 32 / 64
    assert bits_per_parameter(64, 256) == 4 + 8 / 64 + 32 / (64 * 256)
    # 4096 x 4096 / 2, and a float32 for each of 262144 blocks
    assert four_bit_bytes(4096 * 4096) == 8_388_608 + 1_048_576
    # or a byte for each, 1024 float32, and a mean, in a block of 512 B
    assert four_bit_bytes(4096 * 4096, scales_block=256) == 8_388_608 + 262_144 + 4096 + 512
