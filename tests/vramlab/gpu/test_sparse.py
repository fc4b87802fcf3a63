"""Sparse tensors on a GPU: their parts have blocks, and products with dense matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vramlab.cuda_rules.cub import merge_sort_bytes
from vramlab.gpu import VirtualGPU

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

NODES, EDGES, WIDTH = 2708, 13264, 64
ENTRIES = 106_496  # an int64 for each edge, 106,112 B, as a block: the next multiple of 512
VALUES = 53_248  # a float32 for each: 53,056 B
DENSE = 693_248  # 2708 x 64 float32


def graph(coalesced: bool) -> Tensor:
    places = torch.arange(EDGES) * (NODES * NODES // EDGES)
    indices = torch.stack((places // NODES, places % NODES))
    made = torch.sparse_coo_tensor(
        indices, torch.ones(EDGES), (NODES, NODES), is_coalesced=coalesced
    )
    return made.cuda()


def grown() -> tuple[int, int]:
    """Give what is allocated and what was at most, and forget the peak."""
    found = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return found


def test_a_sparse_tensor_is_its_indices_and_values(gpu: VirtualGPU) -> None:
    moved = graph(coalesced=True)
    assert (moved.device.type, moved.is_cuda, moved._nnz()) == ("cuda", True, EDGES)
    assert moved.is_coalesced()
    # Indices are 2 x 13264 int64, 212,224 B: a block of 212,480.
    assert torch.cuda.memory_allocated() == 212_480 + VALUES
    assert moved.double().values().dtype == torch.float64


def test_a_transpose_is_a_copy_with_a_row_beside(gpu: VirtualGPU) -> None:
    moved = graph(coalesced=True)
    before, _ = grown()
    turned = moved.t()
    after, peak = grown()
    assert (turned._nnz(), turned.is_coalesced()) == (EDGES, False)
    assert after - before == 212_480 + VALUES
    assert peak - after == ENTRIES  # as PyTorch 2.13 does on the native engine: 372,224 in all


def test_coalescing_sorts_places(gpu: VirtualGPU) -> None:
    moved = graph(coalesced=False)
    before, _ = grown()
    summed = moved.coalesce()
    after, peak = grown()
    assert summed.is_coalesced()
    assert after - before == 212_480 + VALUES
    # Of the sort: both columns, 106,240 B each as parts of one piece; 8 tiles' beginnings.
    assert merge_sort_bytes(EDGES, 8, 8) == 2 * 106_240 + 256 + 255
    assert peak - before == 3 * ENTRIES + 212_480 + VALUES


def test_a_product_takes_zeros_and_a_copy_by_columns(gpu: VirtualGPU) -> None:
    moved, dense = graph(coalesced=True), torch.zeros(NODES, WIDTH, device="cuda")
    dense.requires_grad_()
    before, _ = grown()
    for multiply in (torch.mm, torch.spmm, torch.sparse.mm, torch.matmul):
        product = multiply(moved, dense)
        after, peak = grown()
        assert after - before == DENSE
        # zeros, result, result by columns; 2709 int32 of compressed rows; 13264 int32 of columns
        assert peak - before == 3 * DENSE + 11_264 + VALUES
        if multiply is torch.sparse.mm:
            product.sum().backward()
            assert dense.grad is not None
            dense.grad = None
        del product
        grown()


def test_values_are_right_where_they_are_computed() -> None:
    with VirtualGPU("T4", values=True):
        matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().cuda()
        product = torch.mm(matrix, torch.ones(2, 2, device="cuda"))
        assert product.cpu().tolist() == [[2.0, 2.0], [3.0, 3.0]]
