"""Tensors go from PyTorch to PyTorch by DLPack without a copy, and not to the host."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from torch.utils import dlpack

from vramlab.gpu import VirtualGPU

SIZE_BYTES = 4 << 20


def test_a_gpus_tensor_is_taken_without_a_copy(gpu: VirtualGPU) -> None:
    x = torch.zeros(1024, 1024, device="cuda")
    assert x.__dlpack_device__() == (dlpack.DLDeviceType.kDLCUDA, 0)
    for y in (
        torch.from_dlpack(x),
        torch.from_dlpack(x.t()).t(),
        torch.from_dlpack(x.__dlpack__()),
        dlpack.from_dlpack(dlpack.to_dlpack(x)),
    ):
        assert (y.device, y.shape, y.data_ptr()) == (x.device, x.shape, x.data_ptr())
    assert torch.cuda.memory_allocated() == SIZE_BYTES


def test_what_is_taken_keeps_the_memory(gpu: VirtualGPU) -> None:
    capsule = torch.zeros(1024, 1024, device="cuda").__dlpack__()
    assert torch.cuda.memory_allocated() == SIZE_BYTES
    x = torch.from_dlpack(capsule)
    del capsule
    assert torch.cuda.memory_allocated() == SIZE_BYTES
    del x
    gc.collect()
    assert torch.cuda.memory_allocated() == 0
    unused = torch.zeros(1024, 1024, device="cuda").__dlpack__()
    del unused
    gc.collect()
    assert torch.cuda.memory_allocated() == 0


def test_numpy_refuses_a_gpus_tensor(gpu: VirtualGPU) -> None:
    x = torch.zeros(4, device="cuda")
    with pytest.raises((RuntimeError, BufferError), match="nsupported device"):
        np.from_dlpack(x)
    assert torch.from_dlpack(np.ones(3)).tolist() == [1, 1, 1]
