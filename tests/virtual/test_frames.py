"""A memory history with C++ frames names ops, autograd nodes, and what rules take."""

from __future__ import annotations

from typing import Any

import torch

from vramlab.virtual import VirtualGPU


def allocations(stacks: str) -> list[tuple[int, list[str]]]:
    """Bytes and C++ frames of everything that a linear layer's training step allocates."""
    with VirtualGPU("A100-40GB", torch_version="2.13"):
        weight = torch.ones(1000, 1000, device="cuda", requires_grad=True)
        x = torch.ones(10, 1000, device="cuda")
        torch.cuda.memory._record_memory_history(stacks=stacks)
        (x @ weight).sum().backward()
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
    return [
        (event["size"], [f["name"] for f in event["frames"] if f["filename"] == "??"])
        for event in snapshot["device_traces"][0]
        if event["action"] == "alloc"
    ]


def test_each_allocation_names_its_op_and_node() -> None:
    told = allocations("all")
    output, gradient = 10 * 1000 * 4, 1000 * 1000 * 4
    assert (output, ["at::_ops::mm::call"]) in told
    assert (4, ["at::_ops::sum::call"]) in told
    assert (4, ["at::_ops::ones_like::call"]) in told
    backward = ["at::_ops::mm::call", "torch::autograd::MmBackward0::apply"]
    assert (gradient, backward) in told
    # sum()'s gradient is expanded, without a unit stride, and cuBLAS gets a copy of it.
    (copy,) = [names[0] for _, names in told if names[1:] == backward and "take" in names[0]]
    assert copy.startswith("vramlab::take(")


def test_python_stacks_have_no_other_frames() -> None:
    told = allocations("python")
    assert len(told) == len(allocations("all"))
    assert all(names == [] for _, names in told)


def test_metadata_marks_what_comes_after_it() -> None:
    with VirtualGPU("A100-40GB"):
        torch.cuda.memory._record_memory_history()
        kept = torch.ones(1, device="cuda")
        torch.cuda.memory._set_memory_metadata("second")
        assert torch.cuda.memory._get_memory_metadata() == "second"
        kept = torch.ones(2, device="cuda")
        torch.cuda.memory._set_memory_metadata("")
        del kept
        (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    # segment and first tensor; second tensor and the end of the first; the end of the second
    assert [event["user_metadata"] for event in trace] == [""] * 2 + ["second"] * 3 + [""] * 2
