"""What is known of tensors without values whose elements are all equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from vramlab.gpu import VirtualGPU


def flags(value: bool) -> torch.Tensor:
    return torch.full((3,), value, device="cuda")


def unknown() -> torch.Tensor:
    return torch.randn(3, device="cuda") > 0


def reads(gpu: VirtualGPU) -> int:
    return sum(gpu.values.reads.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda: flags(True).all(), True),
        (lambda: (~flags(True)).any(), False),
        (lambda: (unknown() | flags(True)).all(), True),
        (lambda: (unknown() & flags(False)).any(), False),
        (lambda: flags(True).logical_and(flags(False)).any(), False),
        (lambda: flags(True).logical_or(unknown()).all(), True),
        (lambda: flags(True).logical_xor(flags(True)).any(), False),
        (lambda: (torch.ones(3, dtype=torch.long, device="cuda") & ~flags(True)).max() == 0, True),
        (lambda: torch.zeros(3, device="cuda").max() < 1, True),
        (lambda: torch.ones(2, 3, device="cuda").expand(4, 2, 3).min() != 1, False),
        (lambda: flags(False).logical_or_(flags(True)).all(), True),
    ],
)
def test_logic_of_known_values_is_known(
    make: Callable[[], torch.Tensor], answer: bool, nan_gpu: VirtualGPU
) -> None:
    assert bool(make()) is answer
    assert reads(nan_gpu) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: (unknown() | flags(False)).any(),
        lambda: (unknown() & flags(True)).all(),
        lambda: (torch.randint(9, (3,), device="cuda") | 1).max() == 1,
        lambda: flags(True).logical_xor(unknown()).any(),
    ],
)
def test_what_is_not_known_stays_a_read(
    make: Callable[[], torch.Tensor], nan_gpu: VirtualGPU
) -> None:
    bool(make())
    assert reads(nan_gpu) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[0].copy_(unknown()[0]),
        lambda x: x.copy_(unknown()),
        lambda x: x.__setitem__(0, unknown()[0]),
        lambda x: x.masked_fill_(unknown(), False),
        lambda x: x.bernoulli_(),
        lambda x: x.logical_and_(unknown()),
    ],
)
def test_a_change_makes_it_unknown(
    change: Callable[[torch.Tensor], object], nan_gpu: VirtualGPU
) -> None:
    x = flags(True)
    change(x)
    bool(x.all())
    assert reads(nan_gpu) == 1


def test_a_generation_loop_ends_at_its_length_limit(nan_gpu: VirtualGPU) -> None:
    tokens = torch.randint(100, (2, 1), device="cuda")
    unfinished = torch.ones(2, dtype=torch.long, device="cuda")
    finished = False
    while not finished:  # as transformers' generate() loops
        tokens = torch.cat([tokens, torch.randint(100, (2, 1), device="cuda")], dim=1)
        at_end = tokens[:, -1] == 99
        at_limit = torch.full((2,), tokens.size(1) >= 5, dtype=torch.bool, device="cuda")
        unfinished = unfinished & ~(at_end | at_limit)
        finished = bool(unfinished.max() == 0)
    assert tokens.shape == (2, 5)


def test_a_whole_filled_tensor_reads_as_it_is(nan_gpu: VirtualGPU) -> None:
    zeros = torch.zeros(2, 2, device="cuda")
    assert zeros.cpu().numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert zeros[1, 1].item() == 0.0
    assert reads(nan_gpu) == 0
