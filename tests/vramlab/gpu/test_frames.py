"""A memory history with C++ frames names ops, autograd nodes, and what rules take."""

from __future__ import annotations

import linecache
import sysconfig
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import vramlab
from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.stack_frames import user_line


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


def test_ops_that_an_op_calls_are_inside_of_it_in_each_thread() -> None:
    """The gradient of `x[[1]]` is put into zeros by `_index_put_impl_`, which takes temporaries."""

    def work() -> None:
        x = torch.ones(1000, device="cuda", requires_grad=True)
        x[torch.zeros(3, dtype=torch.int64, device="cuda")].sum().backward()

    with VirtualGPU("A100-40GB", torch_version="2.13"):
        torch.cuda.memory._record_memory_history(stacks="all")
        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
    told = [
        [f["name"] for f in event["frames"] if f["filename"] == "??"]
        for event in snapshot["device_traces"][0]
        if event["action"] == "alloc"
    ]
    of_gradient = [names for names in told if "at::_ops::_index_put_impl_::call" in names]
    assert len(of_gradient) > 2
    for names in of_gradient:
        assert names[0].startswith("vramlab::take(")
        assert names[1:] == [
            "at::_ops::_index_put_impl_::call",
            "torch::autograd::IndexBackward0::apply",
        ]


def test_python_stacks_have_no_other_frames() -> None:
    told = allocations("python")
    assert len(told) == len(allocations("all"))
    assert all(names == [] for _, names in told)


OWN = str(Path(vramlab.__file__).parent)


def run_as(filename: str, text: str, **names: Any) -> Any:
    """Run a program as if a file of that name had it; return what it calls `found`."""
    exec(compile(text, filename, "exec"), names)
    return names["found"]


@pytest.mark.parametrize("stacks", ["python", "all"])
def test_only_vramlab_itself_is_left_out_of_a_history(stacks: str) -> None:
    with VirtualGPU("T4"):
        torch.cuda.memory._record_memory_history(stacks=stacks)
        for filename in (f"{OWN}_mine/net.py", f"{OWN}/zoo/net.py", f"{OWN}/virtual/net.py"):
            run_as(filename, "found = torch.ones(1, device='cuda')", torch=torch)
        (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    frames = [e["frames"] for e in trace if e["action"] == "alloc"]
    innermost = [next(f["filename"] for f in each if f["filename"] != "??") for each in frames]
    assert innermost == [f"{OWN}_mine/net.py", f"{OWN}/zoo/net.py", __file__]


@pytest.mark.parametrize(
    ("filename", "line"),
    [
        (f"{OWN}_mine/net.py", "net.py:2: found = line()"),
        (f"{OWN}/virtual/net.py", "test_frames.py:"),
        (f"{sysconfig.get_path('purelib')}/torchvision/net.py", "test_frames.py:"),
        ("<string>", "test_frames.py:"),
        ("/tmp/ipykernel_12/345.py", "notebook cell:2: found = line()"),
    ],
)
def test_the_line_of_the_program_is_named(
    filename: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# of one line\nfound = line()\n"
    monkeypatch.setitem(
        linecache.cache, filename, (len(text), None, text.splitlines(True), filename)
    )
    assert run_as(filename, text, line=user_line).startswith(line)
