"""After a backward pass that ran out of memory, nothing of it is left."""

from __future__ import annotations

import threading

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.units import MIB


def branches() -> torch.Tensor:
    """A loss whose graph forks: when one branch fails, the other one is ready to run."""
    x = torch.zeros(16 * MIB, device="cuda", requires_grad=True)  # 64 MiB
    large = torch.zeros(64 * MIB, device="cuda", requires_grad=True)
    # The younger branch goes first. The gradient of a part has the size of the whole, 256 MiB.
    return x.sin().cos().sum() + large[:1].sum()


def run_out_of_memory() -> None:
    """In the backward pass: the forward pass has what it needs, and 96 MiB more."""
    loss = branches()
    limit = torch.cuda.memory_reserved() + 96 * MIB
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
    with pytest.raises(torch.cuda.OutOfMemoryError):
        loss.backward()


@pytest.mark.parametrize("values", [False, True])
def test_a_failed_backward_pass_gives_everything_back(values: bool) -> None:
    with VirtualGPU("T4", values=values):
        run_out_of_memory()
        assert torch.cuda.memory_allocated() == 0


def test_in_a_thread_of_its_own() -> None:
    left: list[int] = []

    def work() -> None:
        run_out_of_memory()
        left.append(torch.cuda.memory_allocated())

    with VirtualGPU("T4"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert left == [0]


def test_other_backward_passes_go_on_after_it() -> None:
    with VirtualGPU("T4", values=True):
        weight = torch.ones(4, device="cuda", requires_grad=True)
        before = (weight * 3).sum()

        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                raise ValueError("it fails")

        with pytest.raises(ValueError, match="it fails"):
            (Fails.apply(weight) + weight.sin()).sum().backward()
        weight.grad = None
        before.backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [3.0, 3.0, 3.0, 3.0]
