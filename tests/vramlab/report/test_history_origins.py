"""Where a block comes from, as the frames of a memory history tell; innermost first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vramlab.measure import Category, Frame
from vramlab.report.evidence.history_origins import HistoryOrigins

PROGRAM = {"filename": "/home/me/train.py", "line": 7, "name": "step"}
PACKAGE = {"filename": "/env/site-packages/timm/layers.py", "line": 3, "name": "forward"}
PYTORCH = {"filename": f"{torch.__path__[0]}/nn/modules/linear.py", "line": 1, "name": "forward"}
CHECKPOINT = {"filename": f"{torch.__path__[0]}/utils/checkpoint.py", "line": 1, "name": "unpack"}
CALL = (Frame("/home/me/train.py", 8, "step"), None)


def op(name: str) -> dict[str, Any]:
    return {"filename": "libtorch_cpu.so", "line": 1, "name": f"at::_ops::{name}::call(at::Tensor)"}


def cpp(name: str) -> dict[str, Any]:
    return {"filename": "libtorch_cuda.so", "line": 1, "name": name}


def entry(*frames: dict[str, Any]) -> dict[str, Any]:
    return {"action": "alloc", "addr": 0, "size": 512, "stream": 0, "frames": frames}


def test_the_line_is_the_innermost_outside_of_pytorch() -> None:
    origin = HistoryOrigins().read(entry(op("addmm"), PYTORCH, PACKAGE, PROGRAM), None)
    assert origin.line == Frame(PACKAGE["filename"], 3, "forward")
    assert origin.caller == Frame("/home/me/train.py", 7, "step")
    assert (origin.in_backward, origin.owner) == (False, None)


def test_autograds_own_thread_has_the_line_of_the_call() -> None:
    origin = HistoryOrigins().read(entry(op("mm")), CALL)
    assert (origin.line, origin.in_backward) == (CALL[0], True)


def test_what_a_checkpoint_recomputes_has_its_own_line() -> None:
    origin = HistoryOrigins().read(entry(op("gelu"), PYTORCH, PROGRAM, CHECKPOINT), CALL)
    assert origin.line == Frame("/home/me/train.py", 7, "step")


@pytest.mark.parametrize(
    ("frames", "owner"),
    [
        ((op("_to_copy"), op("to_dtype_layout")), Category.INPUTS),  # x.cuda()
        ((op("empty_memory_format"), op("randint_low")), Category.INPUTS),
        ((op("ones"),), Category.INPUTS),
        ((op("_to_copy"), op("to_dtype")), None),  # x.half()
        ((op("ones_like"),), None),
        ((op("mm"), op("matmul")), None),
        ((cpp("at::cuda::getCUDABlasLtWorkspace()"), op("addmm")), Category.WORKSPACES),
        ((cpp("at::cuda::getCurrentCUDABlasHandle()"), op("mm")), Category.WORKSPACES),
    ],
)
def test_an_allocation_tells_what_it_is_for(frames: Any, owner: Category | None) -> None:
    origins = HistoryOrigins()
    assert origins.read(entry(*frames, PROGRAM), None).owner == owner
    in_backward = origins.read(entry(*frames), CALL).owner
    assert in_backward == (Category.WORKSPACES if owner is Category.WORKSPACES else None)


def test_a_stack_that_is_read_again_is_judged_by_its_own_moment() -> None:
    """The frames are the same objects, as PyTorch's history has them in every step."""
    origins = HistoryOrigins()
    made, forward = entry(op("ones"), PROGRAM), entry(op("mm"), PACKAGE, PROGRAM)
    owners = [origins.read(made, moment).owner for moment in (None, CALL, None)]
    assert owners == [Category.INPUTS, None, Category.INPUTS]
    assert origins.read(forward, None).caller == Frame("/home/me/train.py", 7, "step")
    origins.forget()
    assert origins.read(made, None).owner is Category.INPUTS


def test_frames_that_are_gone_are_not_taken_for_others() -> None:
    """New frames may lie where old ones did: an id alone says nothing."""
    origins = HistoryOrigins()
    for number in range(100):
        frames = [{"filename": "/home/me/train.py", "line": number, "name": "step"}]
        line = origins.read({"action": "alloc", "frames": frames}, None).line
        del frames
        assert line == Frame("/home/me/train.py", number, "step")
