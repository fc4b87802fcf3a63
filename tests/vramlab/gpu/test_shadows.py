"""Small tensors that were copied, filled, or computed from such stay true."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU


def whole(*numbers: int) -> Tensor:
    return torch.tensor(numbers, device="cuda")


def reads(gpu: VirtualGPU) -> int:
    return sum(gpu.values.reads.values())  # type: ignore[attr-defined]


def inverse(order: Tensor) -> Tensor:
    found = torch.empty_like(order)
    found[order] = torch.arange(len(order), device=order.device)
    return found


def packed(lengths: Tensor) -> PackedSequence:
    """Pack sequences of zeros; the lengths are not sorted."""
    sequences = torch.zeros(4, 3, 1, device=lengths.device)
    return pack_padded_sequence(sequences, lengths.cpu(), batch_first=True, enforce_sorted=False)


SAME: dict[str, Callable[[Tensor], object]] = {
    "max": lambda x: x.max().item(),
    "min": lambda x: int(x.min()),
    "sum": lambda x: x.sum().item(),
    "mean": lambda x: x.float().mean().item(),
    "any": lambda x: bool((x == 3).any()),
    "all": lambda x: bool((x >= 1).all()),
    "cumsum": lambda x: x.cumsum(0).tolist(),
    "isin": lambda x: torch.isin(x, x[:2]).tolist(),
    "isin of many": lambda x: torch.isin(x, x.repeat(9) + 1).tolist(),
    "histc": lambda x: torch.histc(x.float(), 3, 1, 3).tolist(),
    "scatter_reduce": lambda x: x.float().scatter_reduce(0, x, x.float(), "prod").tolist(),
    "scatter_reduce_": lambda x: x.float().scatter_reduce_(0, x, x.float(), "mean").tolist(),
    "index_reduce": lambda x: x.float().index_reduce(0, x, x.float(), "amax").tolist(),
    "index_reduce_": lambda x: x.float().index_reduce_(0, x, x.float(), "amin").tolist(),
    "nonzero": lambda x: (x > 1).nonzero().tolist(),
    "where": lambda x: torch.where(x > 1)[0].tolist(),
    "where of three": lambda x: torch.where(x > 1, x, 0).tolist(),
    "indexing": lambda x: x[x > 1].tolist(),
    "masked_select": lambda x: x.masked_select(x > 1).tolist(),
    "unique": lambda x: [each.tolist() for each in x.unique(return_counts=True)],
    "unique_consecutive": lambda x: x.unique_consecutive().tolist(),
    "bincount": lambda x: x.bincount().tolist(),
    "repeat_interleave": lambda x: torch.repeat_interleave(x).tolist(),
    "one_hot": lambda x: torch.nn.functional.one_hot(x).tolist(),
    "sort": lambda x: x.sort(descending=True).values.tolist(),
    "argmax": lambda x: x.argmax().item(),
    "topk": lambda x: x.topk(2).values.tolist(),
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x.double(), x.double() + 1e-9),
    "cat": lambda x: torch.cat([x, x + 1]).view(2, -1).t().tolist(),
    "gather": lambda x: x.gather(0, x.sort().indices).tolist(),
    "in place": lambda x: x.mul_(2).add_(1)[1:].tolist(),
    "into a view": lambda x: (x[1:].fill_(9), x.tolist())[1],
    "assignment": lambda x: (x.__setitem__(slice(0, 2), 7), x.tolist())[1],
    "assignment by a mask": lambda x: (x.__setitem__(x > 1, 0), x.tolist())[1],
    "out": lambda x: torch.add(x, 1, out=torch.empty_like(x)).tolist(),
    "scatter": lambda x: torch.zeros_like(x).scatter_(0, x[:1] - x[:1], x).tolist(),
    "scatter into an empty tensor": lambda x: (
        torch.empty_like(x).scatter_(0, x.argsort(), torch.arange(4, device=x.device)).tolist()
    ),
    "assignment to places of an empty tensor": lambda x: inverse(x.argsort()).tolist(),
    "copies to places of an empty tensor": lambda x: (
        torch.empty_like(x).index_copy_(0, x.argsort(), x).tolist()
    ),
    "put into an empty tensor": lambda x: torch.empty_like(x).put_(x.argsort(), x).tolist(),
    "sorted back": lambda x: packed(x).unsorted_indices.cpu().tolist(),
    "searchsorted": lambda x: torch.searchsorted(x.sort().values, x).tolist(),
    "matmul": lambda x: (x.double()[:, None] @ x.double()[None]).sum().item(),
    "range": lambda x: torch.arange(int(x.max()), device=x.device).flip(0).tolist(),
    "other bytes": lambda x: x.float().view(torch.int32).tolist(),
    "bytes": lambda x: x.view(torch.uint8)[:8].tolist(),
    "format": lambda x: f"{x.max():d}",
    "foreach": lambda x: [t.tolist() for t in torch._foreach_add([x, x], 1)],
    "numpy": lambda x: x.cpu().numpy().tolist(),
    "linspace": lambda x: torch.linspace(0, 1, 5, device=x.device).tolist(),
    "triangle": lambda x: torch.ones(3, 3, device=x.device).tril().sum().item(),
    "vmap": lambda x: torch.vmap(lambda each: each * 2)(x).tolist(),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("program", SAME.values(), ids=SAME)
def test_as_on_the_host(program: Callable[[Tensor], object], nan_gpu: VirtualGPU) -> None:
    numbers = (3, 1, 2, 2)
    expected = program(torch.tensor(numbers))
    assert program(whole(*numbers)) == expected
    assert reads(nan_gpu) == 0


@pytest.mark.parametrize(
    "program",
    [
        lambda x, at: torch.zeros_like(x).scatter_reduce_(0, at, x, "sum"),
        lambda x, at: torch.zeros_like(x).index_reduce(0, at, x, "prod"),
        lambda x, at: torch.histc(x, 3, 0, 1),
        lambda x, at: torch.empty(4, device="cuda").scatter_(0, at, at.float()),
        lambda x, at: torch.empty(3, device="cuda").index_put_((at,), at.float(), True),
    ],
)
def test_what_comes_of_unknown_values_is_not_known(
    program: Callable[[Tensor, Tensor], Tensor], gpu: VirtualGPU
) -> None:
    x, at = torch.rand(4, device="cuda"), whole(0, 1, 1, 2)
    with pytest.raises(NoValuesError):
        program(x, at).tolist()


def test_the_dtype_is_respected(gpu: VirtualGPU) -> None:
    assert torch.ones(4, device="cuda").view(torch.int32)[0].item() == 0x3F800000
    assert torch.full((2,), 1, dtype=torch.int64, device="cuda").view(torch.int32).tolist() == [
        *(1, 0),
        *(1, 0),
    ]
    large = torch.ones(1 << 20, device="cuda")  # 4 MiB: known by one element
    assert large.view(torch.int32)[5].item() == 0x3F800000
    wide = torch.ones(1 << 20, dtype=torch.int64, device="cuda")
    assert wide[7].item() == 1
    with pytest.raises(NoValuesError):  # 1 and 0 by turns
        wide.view(torch.int32)[7].item()


def test_storages_may_be_filled(gpu: VirtualGPU) -> None:
    """Bytes of 1 are 0x01010101 = 16,843,009, or 2.4e-38."""
    x = torch.zeros(3, device="cuda")
    x.untyped_storage().fill_(1)
    assert x.view(torch.int32).tolist() == [0x01010101] * 3
    assert 2.3e-38 < x[0].item() < 2.4e-38
    y = torch.zeros(3, device="cuda")
    y.untyped_storage().copy_(x.untyped_storage())
    assert y.view(torch.int32).tolist() == [0x01010101] * 3
    y.untyped_storage()[0] = 2
    with pytest.raises(NoValuesError):
        y.tolist()


def test_large_masks_are_known_by_one_element(nan_gpu: VirtualGPU) -> None:
    mask = torch.ones(64, 4096, dtype=torch.bool, device="cuda")
    assert bool(mask.all())
    assert not (~mask).any()
    assert mask.logical_and_(mask).sum().item() == 64 * 4096
    assert (mask.long() == 1).all().item()
    assert mask.nonzero().shape == (64 * 4096, 2)
    mask[0, 0] = False
    assert reads(nan_gpu) == 0
    bool(mask.all())
    assert reads(nan_gpu) == 1


def test_what_the_cpu_refuses_is_unknown(gpu: VirtualGPU) -> None:
    """An index out of range is an assertion on the device; a program hears of it later."""
    x, index = whole(1, 2, 3), whole(7)
    chosen = x.index_select(0, index)
    assert chosen.shape == (1,)
    with pytest.raises(NoValuesError):
        chosen.item()
    assert x.tolist() == [1, 2, 3]


def test_loops_end_where_they_would(nan_gpu: VirtualGPU) -> None:
    """An adaptive ODE solver: steps of Euler's method are halved until two agree."""

    def solve(y: Tensor, tolerance: float = 1e-3) -> tuple[int, float]:
        steps, t, h = 0, 0.0, torch.ones((), device=y.device)
        while t < 1.0:
            whole_step = y - h * y
            half = y - h / 2 * y
            error = (whole_step - (half - h / 2 * half)).abs().max()
            steps += 1
            if error > tolerance:
                h = h / 2
                continue
            y, t = whole_step, t + h.item()
            h = h * min(2.0, 0.9 * math.sqrt(tolerance / max(error.item(), 1e-12)))
        return steps, y.norm().item()

    start = torch.tensor([1.0, 0.5])
    steps, norm = solve(start.cuda())
    on_host = solve(start)
    assert steps == on_host[0] > 10
    assert norm == pytest.approx(on_host[1], rel=1e-5)
    assert reads(nan_gpu) == 0


def test_padding_decides_a_batch(nan_gpu: VirtualGPU) -> None:
    """PyTorch Geometric's pooling and beam search count with numbers that were copied."""
    batch = whole(0, 0, 1, 1, 1)
    size = int(batch.max()) + 1
    pooled = torch.zeros(size, 4, device="cuda").index_add_(
        0, batch, torch.randn(5, 4, device="cuda")
    )
    assert pooled.shape == (2, 4)
    finished = torch.tensor([True, False], device="cuda")
    assert not finished.all()
    assert finished.sum().item() == 1


ASSERTS = {
    "one line": "assert mask.all().item()",
    "parentheses": "assert(mask.all().item())",
    "two lines": "assert (\n    mask.all().item()\n), 'of two lines'",
    "no item": "assert mask.all()",
    "not": "assert not (~mask).any()",
    "and": "assert mask.all() and mask.any(), f'{mask}'",
    "a question": "if (x > 1).any():\n    raise ValueError(f'too large: {x.shape}')",
    "the other way": "if not mask.all().item():\n    raise ValueError",
    "bool": "if bool((x > 1).any()) is True:\n    raise ValueError",
    "in a function": "def f(m):\n    if m.all():\n        return\n    raise ValueError\nf(mask)",
}


@pytest.mark.parametrize("line", ASSERTS.values(), ids=ASSERTS)
def test_what_would_raise_is_not_so(line: str, nan_gpu: VirtualGPU, tmp_path: Path) -> None:
    """However it is written: an unknown truth value takes the branch that does not raise."""
    x = torch.rand(3, device="cuda")
    exec(compile(line, str(tmp_path / "program.py"), "exec"), {"x": x, "mask": x > 0.5})
    assert reads(nan_gpu) > 0


def test_other_questions_are_answered_by_no(nan_gpu: VirtualGPU) -> None:
    """A loop that waits for all goes on to its limit."""
    done, steps = torch.rand(3, device="cuda") > 0.5, 0
    while not done.all() and steps < 5:
        steps += 1
    assert steps == 5


def test_an_unknown_number_passes_for_finite_whatever_is_computed(nan_gpu: VirtualGPU) -> None:
    import numpy as np

    loss = torch.rand(3, device="cuda").sum().item()
    for number in (loss, loss * 1.0, 2 - loss / 3, abs(-loss), sum([loss, 1.0])):
        assert str(number) == "nan"
        assert math.isfinite(number)
        assert not math.isnan(number)
        assert np.isfinite(number)
        assert not np.isinf(number)
    assert not np.isfinite(np.array([1.0, np.nan])).all()  # any other is what it is
    assert np.isfinite.nin == 1
