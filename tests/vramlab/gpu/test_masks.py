"""Indexing by masks takes what PyTorch's own code takes, by one, two and three dimensions.

The sequences are those of the native engine, PyTorch 2.13.0 on an H200: 132 multiprocessors, on
which 8 blocks of 256 threads run at a time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB

H, W = 8 * 512, 768

# `nonzero` takes a count of 4 B, the storage of CUB's sum (1 B for one tile of 4096 numbers), its
# result, and the storage of CUB's selection: a status of 8 B for each of 1 + 32 tiles, aligned to
# 256 B in two steps: 264 -> 512 + 255 -> 768 + 255.
COUNT, ONE_TILE, SELECTION = 4, 1, 1023


@contextmanager
def allocations() -> Iterator[list[int]]:
    """Collect the requested sizes, in order."""
    sizes: list[int] = []
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=10_000)
    try:
        yield sizes
        (trace,) = torch.cuda.memory._snapshot()["device_traces"]
        sizes += [event["size"] for event in trace if event["action"] == "alloc"]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def mask(*shape: int, chosen: int | None = None) -> Tensor:
    made = torch.ones(*shape, dtype=torch.bool)
    made.view(-1)[made.numel() if chosen is None else chosen :] = False
    return made.cuda()


@pytest.fixture
def h200() -> Iterator[None]:
    with VirtualGPU("H200", on_value="nan"):
        yield


def test_a_mask_of_two_dimensions_and_its_gradient(h200: None) -> None:
    """A masked-LM head: 12 MiB of hidden states, as many chosen, 12 MiB of gradients."""
    h = torch.zeros(8, 512, W, device="cuda", requires_grad=True)
    m = mask(8, 512)
    with allocations() as sizes:
        y = h[m]
    size = 4 * H * W
    assert sizes == [COUNT, ONE_TILE, 8 * 2 * H, SELECTION, size]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with allocations() as sizes:
        y.backward(torch.ones((), device="cuda").expand(y.shape))
    linear = [8 * H, 8 * H]  # wrapped, then times its stride
    assert sizes == [
        4,  # the gradient of one, expanded below
        size,  # zeros
        *(COUNT, ONE_TILE, 8 * 2 * H, SELECTION),
        *linear,
        *linear,
        size,  # the expanded gradient
        *(8 * H, 8 * H, 8 * H),  # sorted, places before, places in order
        71_167,  # the sort's storage
    ]
    assert torch.cuda.max_memory_allocated() - before < 2 * size + MIB


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (lambda h, m: h[:, m], (8, 3, 16)),
        (lambda h, m: h[2, m], (3, 16)),
        (lambda h, m: h[m[:8]], (3, 512, 16)),
        (lambda h, m: h[None, 2, m, 3:5], (1, 3, 2)),
        (lambda h, m: h[torch.tensor([5], device="cuda"), m], (3, 16)),
        (lambda h, m: h[m[:8], :, 1], (3, 512)),
        (lambda h, m: h.masked_select(m[:, None]), (8 * 3 * 16,)),
    ],
)
def test_a_known_mask_decides_the_shape(
    index: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], h200: None
) -> None:
    h, m = torch.randn(8, 512, 16, device="cuda"), mask(512, chosen=3)
    assert index(h, m).shape == shape


@pytest.mark.parametrize("shape", [(512,), (8, 512)])
def test_assigning_tensors_takes_the_indices(h200: None, shape: tuple[int, ...]) -> None:
    z, m = torch.zeros(*shape, 16, device="cuda"), mask(*shape, chosen=100)
    values = torch.zeros(100, 16, device="cuda")
    with allocations() as sizes:
        z[m] = values
    assert sizes == [COUNT, ONE_TILE, 8 * len(shape) * 100, SELECTION]


def test_assigning_a_number_is_one_kernel(h200: None) -> None:
    z, m = torch.zeros(8, 512, 16, device="cuda"), mask(8, 512)
    with allocations() as sizes:
        z[m] = 1.0
        z[m] = torch.tensor(2.0)
        z[:, m[0]] = 3.0
    assert sizes == []


def test_a_mask_on_the_host_is_counted_there(h200: None) -> None:
    """Its indices are copied as they are; for the gradient, places are computed there."""
    h = torch.zeros(64, 512, 16, device="cuda", requires_grad=True)
    chosen = 1000
    m = mask(64, 512, chosen=chosen).cpu()
    with allocations() as sizes:
        y = h[m]
    assert sizes == [8 * 2 * chosen, 4 * 16 * chosen]
    with allocations() as sizes:
        y.backward(torch.zeros(chosen, 16, device="cuda"))
    assert sizes[1:6] == [4 * h.numel(), *[8 * chosen] * 4]  # zeros; two places, sorted, before


def test_a_host_tensor_by_a_mask_that_came_from_the_gpu(h200: None) -> None:
    host = torch.arange(6.0).view(3, 2)
    assert host[mask(3, chosen=2).cpu()].tolist() == [[0, 1], [2, 3]]
    unknown = (torch.rand(3, device="cuda") > 0.5).cpu()
    assert host[unknown].shape == (3, 2)  # as if all were chosen
    host[unknown] = 7.0
    assert str(host.sum().item()) == "nan"


def test_an_unknown_mask_of_two_dimensions_is_noted(nan_gpu: VirtualGPU) -> None:
    h = torch.randn(3, 4, 5, device="cuda")
    assert h[h[..., 0] > 0].shape == (12, 5)
    ((what, line),) = nan_gpu.values.reads  # type: ignore[attr-defined]
    assert what == "shape of tensor[mask] (as if all were chosen)"
    assert "h[h[..., 0] > 0]" in line


def test_gathering_by_a_mask_and_scattering_back(h200: None) -> None:
    """32,768 numbers, of which 256: places of 8 B; the scan has 37 + 32 tiles of 896 numbers.

    16 B each are 1,104 -> 1,280 + 255 -> 1,536 + 255.
    """
    x = torch.zeros(64, 512, device="cuda", requires_grad=True)
    y = x.masked_select(mask(64, 512, chosen=256))
    with allocations() as sizes:
        y.backward(torch.ones((), device="cuda").expand(256))
    assert sizes[1:] == [4 * 64 * 512, 8 * 64 * 512, 1791, 4 * 256]


def assign_below_the_function_mode(z: Tensor, m: Tensor) -> None:
    with torch._C.DisableTorchFunction():
        z[m] = 1.0


def assign_below_other_modes(z: Tensor, m: Tensor) -> None:
    with FlopCounterMode(display=False):
        z[m] = 1.0


def assign_by_a_call(z: Tensor, m: Tensor) -> None:
    operator.setitem(z, m, 1.0)


@pytest.mark.parametrize(
    "assign", [assign_below_the_function_mode, assign_below_other_modes, assign_by_a_call]
)
def test_a_number_is_on_the_host_wherever_it_is_assigned(
    assign: Callable[[Tensor, Tensor], None], gpu: VirtualGPU
) -> None:
    """By an unknown mask, it is one kernel, of no places and of no scalar on the GPU."""
    z = torch.zeros(8, 16, device="cuda")
    m = torch.rand(8, device="cuda") > 0.5
    with allocations() as sizes:
        assign(z, m)
    assert sizes == []


def test_a_number_in_where_is_on_the_gpu(gpu: VirtualGPU) -> None:
    """As `where` in aten/src/ATen/native/TensorCompare.cpp makes it: 4 B, and 4 * 8 of the result.

    The statement assigns a tensor.
    """
    z, m = torch.zeros(2, 8, device="cuda"), torch.rand(8, device="cuda") > 0.5
    with allocations() as sizes, torch._C.DisableTorchFunction():
        z[0] = torch.where(m, z[1], 2.0)
    assert sizes == [4, 4 * 8]


def test_a_number_in_a_tensor_of_the_meta_device_is_on_no_gpu(gpu: VirtualGPU) -> None:
    _ = torch.zeros(8, device="cuda")
    of_meta = torch.empty(8, 16, device="meta")
    with allocations() as sizes:
        of_meta[0] = 1.0
        of_meta[0, 1] = 1.0
        of_meta[torch.empty(8, dtype=torch.bool, device="meta")] = 1.0
        of_meta[[1, 2]] = 1.0
    assert sizes == []
