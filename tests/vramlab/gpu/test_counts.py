"""Counts of masks are those of indexing by them: as if all elements were chosen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU

COUNTS: dict[str, Callable[[Tensor], object]] = {
    "sum": lambda mask: int(mask.sum()),
    "sum as int32": lambda mask: mask.sum(dtype=torch.int32).item(),
    "the other ones": lambda mask: (~mask).sum().item(),
    "count_nonzero": lambda mask: mask.count_nonzero().item(),
    "count of a count": lambda mask: mask.sum(1).sum().item(),
    "cast": lambda mask: mask.long().sum().item(),
    "cast to float": lambda mask: int(mask.float().sum()),
    "on the host": lambda mask: mask.cpu().sum().item(),
    "counted, then moved": lambda mask: mask.sum().cpu().item(),
    "in NumPy": lambda mask: int(mask.cpu().numpy().sum()),
    "clamped": lambda mask: mask.sum().clamp(min=1).item(),
    "chosen": lambda mask: mask[mask].numel(),
}


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_counts_agree_with_indexing(nan_gpu: VirtualGPU, count: Callable[[Tensor], object]) -> None:
    mask = torch.rand(3, 4, device="cuda") > 0.5
    assert count(mask) == 3 * 4


def test_parts_are_counted_alike(nan_gpu: VirtualGPU) -> None:
    mask = torch.rand(3, 4, device="cuda") > 0.5
    assert mask.sum(1).tolist() == [4, 4, 4]
    assert mask.float().mean().item() == 1
    assert mask.sum().clamp(max=5).item() == 5
    assert mask.sum(1).count_nonzero().item() == 3
    answers = (mask.any().item(), mask.sum().add_(1).item())
    assert answers == (False, 0)  # no counts


def test_what_is_known_is_counted_as_before_and_errors_stay(
    nan_gpu: VirtualGPU, gpu: VirtualGPU
) -> None:
    mask = torch.rand(3, device="cuda") > 0.5
    with pytest.raises(NoValuesError, match=r"item\(\)"):
        mask.sum().item()


def test_zero_is_answered_where_it_is_asked_for() -> None:
    with VirtualGPU("T4", on_value="zero") as gpu:
        x = torch.rand(3, device="cuda")
        assert (x.sum().item(), x.tolist()) == (0.0, [0.0, 0.0, 0.0])
        assert float(x.mean()) == 0.0
        assert gpu.values.last_line is not None  # type: ignore[attr-defined]
