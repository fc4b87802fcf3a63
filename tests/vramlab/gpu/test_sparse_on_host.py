"""Sparse tensors of the host keep their values, however large the matrix that they stand for."""

from __future__ import annotations

import pytest
import torch

from vramlab.gpu import VirtualGPU


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_large_sparse_matrix_has_values(gpu: VirtualGPU) -> None:
    # As a dense matrix it would be 36 MB, more than host tensors with values may have.
    matrix = torch.sparse_coo_tensor([[0, 2999], [1, 2]], [3.0, 4.0], (3000, 3000))
    assert matrix.coalesce().values().tolist() == [3.0, 4.0]
    assert torch.eye(3).to_sparse().values().tolist() == [1.0, 1.0, 1.0]
