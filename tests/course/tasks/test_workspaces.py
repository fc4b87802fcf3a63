"""After cuBLAS has its workspaces, products take nothing but their results."""

from __future__ import annotations

import torch
from torch.torch_version import TorchVersion

import vramlab
from vramlab_course.tasks.workspaces import take_workspaces


def test_both_threads_have_theirs() -> None:
    with vramlab.VirtualGPU("T4"):
        take_workspaces()
        # Forward's and backward's; PyTorch 2.15 frees them with each product.
        kept = 0 if torch.__version__ >= TorchVersion("2.15") else 2
        assert torch.cuda.memory_allocated() == kept * 8_519_680
        x = torch.ones(8, 8, device="cuda", requires_grad=True)
        (x @ x).sum().backward()
        # x and its gradient are left.
        assert torch.cuda.memory_allocated() == kept * 8_519_680 + 2 * 512
        del x
