"""Results whose shapes depend on values: as large as can be, or an error that says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from vramlab.gpu import VirtualGPU

Op = Callable[[torch.Tensor], torch.Tensor]


def scores() -> torch.Tensor:
    return torch.empty(4, 100, device="cuda")


@pytest.mark.parametrize(
    ("op", "shape", "dtype"),
    [
        (lambda x: x.nonzero(), (400, 2), torch.int64),
        (lambda x: torch.where(x > 0)[1], (400,), torch.int64),
        (lambda x: x.masked_select(x > 0), (400,), torch.float32),
        (lambda x: x[x > 0], (400,), torch.float32),
        (lambda x: x[x[:, 0] > 0], (4, 100), torch.float32),
        (lambda x: x[:, x[0] > 0], (4, 100), torch.float32),
        (lambda x: x.unique(), (400,), torch.float32),
        (lambda x: x.unique(return_inverse=True)[1], (4, 100), torch.int64),
        (lambda x: x.unique(dim=0, return_counts=True)[1], (4,), torch.int64),
        (lambda x: x.unique_consecutive(return_counts=True)[1], (400,), torch.int64),
        (lambda x: x.long().flatten().bincount(minlength=10), (10,), torch.int64),
        (lambda x: x[0].repeat_interleave(x[0].long()), (100,), torch.float32),
        (lambda x: x[0].repeat_interleave(x[0].long(), output_size=7), (7,), torch.float32),
    ],
)
def test_every_element_is_taken_to_be_chosen(
    op: Op, shape: tuple[int, ...], dtype: torch.dtype, nan_gpu: VirtualGPU
) -> None:
    result = op(scores())
    assert (tuple(result.shape), result.dtype) == (shape, dtype)
    assert result.device == torch.device("cuda:0")
    notes = {what for what, _ in nan_gpu.values.reads}  # type: ignore[attr-defined]
    assert all(note.endswith("(as if all were chosen)") for note in notes)
    assert len(notes) == 1


def test_the_result_and_the_indices_of_a_mask_are_allocated(nan_gpu: VirtualGPU) -> None:
    x, mask = scores(), scores() > 0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    chosen = x[mask]
    # 400 float32 are 1,600 B, rounded up to 2,048; meanwhile 400 pairs of int64: 6,400 -> 6,656.
    assert torch.cuda.memory_allocated() - before == 2048
    assert torch.cuda.max_memory_allocated() - before == 2048 + 6656
    assert chosen.shape == (400,)
