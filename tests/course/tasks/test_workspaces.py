"""After cuBLAS has its workspaces, products take nothing but their results."""

from __future__ import annotations

import torch

import vramlab
from vramlab_course.tasks.workspaces import take_workspaces


def test_both_threads_have_theirs() -> None:
    with vramlab.VirtualGPU("T4"):
        take_workspaces()
        assert torch.cuda.memory_allocated() == 2 * 8_519_680  # forward's and backward's
        x = torch.ones(8, 8, device="cuda", requires_grad=True)
        (x @ x).sum().backward()
        # x and its gradient are left.
        assert torch.cuda.memory_allocated() == 2 * 8_519_680 + 2 * 512
        del x
