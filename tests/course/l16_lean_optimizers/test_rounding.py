"""Stochastic rounding: only the neighbours, and right on average."""

from __future__ import annotations

import torch

from vramlab_course.lessons.l16_lean_optimizers.rounding import round_stochastically


def test_a_number_becomes_one_of_its_neighbours_and_is_right_on_average() -> None:
    # bfloat16 has 1 and 1 + 2^-7; a quarter of the way there is rounded up one time in four.
    value = 1 + 2**-9
    generator = torch.Generator().manual_seed(0)
    rounded = round_stochastically(torch.full((40_000,), value), generator)
    assert rounded.dtype == torch.bfloat16
    assert rounded.unique().tolist() == [1, 1 + 2**-7]
    assert abs((rounded > 1).float().mean().item() - 0.25) < 0.01
    assert (torch.full((1,), value).bfloat16() == 1).all()  # to the nearest


def test_what_bfloat16_can_hold_stays() -> None:
    exact = torch.tensor([0.0, -0.0, 1.0, -1.5, 3e38, 1e-30]).bfloat16()
    assert torch.equal(round_stochastically(exact.float()), exact)
    assert torch.equal(round_stochastically(-exact.float()), -exact)
