"""Workspaces of the sizes that environment variables ask for; of none, nothing is taken."""

from __future__ import annotations

import pytest
import torch
from allocator_invariants import check
from torch import nn

from vramlab.gpu import VirtualGPU
from vramlab.units import KIB

VERSIONS = ("1.13", "2.5", "2.11", "2.13", "2.15")
"""In which cuBLAS has none, cuBLASLt borrows, keeps, shares, and both borrow."""


def kept_bytes(gpu: str, version: str) -> tuple[int, int]:
    """What products of two streams and a backward pass leave, and what they took at most beyond it.

    The rows of the products are multiples of 16 bytes, and a bias makes them cuBLASLt's.
    """
    with VirtualGPU(gpu, torch_version=version) as virtual:
        layer = nn.Linear(64, 64).cuda()
        x = torch.zeros(64, 64, device="cuda")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            layer(x)
            x @ x
            with torch.cuda.stream(torch.cuda.Stream()):
                x @ x
        left = torch.cuda.memory_allocated() - before
        peak = torch.cuda.max_memory_allocated() - before - left
        layer(x).sum().backward()
        torch._C._cuda_clearCublasWorkspaces()
        layer.zero_grad()
        assert torch.cuda.memory_allocated() == before
        check(virtual.machine.devices[0].allocator)
    return left, peak


OUTPUT_BYTES = 64 * 64 * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_none_at_all(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "0")
    assert kept_bytes("A100-40GB", version) == (0, OUTPUT_BYTES)


def test_variables_are_read_when_they_are_first_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not again, as C++ keeps what it has read; another machine is another process."""
    with VirtualGPU("A100-40GB", torch_version="2.13"):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:4")
        x = torch.zeros(64, 64, device="cuda")
        x @ x
        assert torch.cuda.memory_allocated() == OUTPUT_BYTES + 64 * KIB
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
        x @ x
        assert torch.cuda.memory_allocated() == OUTPUT_BYTES + 64 * KIB
        del x
    with VirtualGPU("A100-40GB", torch_version="2.13"):
        x = torch.zeros(64, 64, device="cuda")
        x @ x
        assert torch.cuda.memory_allocated() == OUTPUT_BYTES + 128 * KIB
        del x


def test_one_that_no_gpu_has_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:1000000")
    with VirtualGPU("T4") as gpu:
        x = torch.zeros(64, 64, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 3906\.25 GiB"):
            x @ x
        assert torch.cuda.memory_allocated() == OUTPUT_BYTES
        del x
        check(gpu.machine.devices[0].allocator)
