"""Whose line allocated a block, and what for, guessed from the stacks of its life.

A snapshot says nothing about tensors. What can be told from stacks:

    parameters           `Module._apply`, as in model.to("cuda") and model.cuda()
    optimizer states     a file in torch/optim allocates it, and it stays
    gradients            C++ frames alone allocate it, as autograd's engine does, and it stays
    activations          Python allocates it, and C++ alone frees it, as backward does; or it stays
    temporaries          Python allocates it, and Python frees it

The stack is PyTorch's, innermost frame first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from vramlab.explaining.traces import Frames, Life


class Category(StrEnum):
    """What a block is for, as far as stacks tell."""

    OLDER = "older than the trace"
    PARAMETERS = "parameters"
    STATES = "optimizer states"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    UNKNOWN = "without a stack"


_LIBRARY = re.compile(
    r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]|^(torch|transformers|functorch)[/\\]"
    r"|^<frozen|\.(cpp|cc|cu|cuh|h|hpp|c)$|[/\\]torch[/\\](nn|optim|autograd|_|utils|cuda)",
)
_INDUCTOR = re.compile(r"torchinductor_|[/\\]tmp[/\\]torchinductor")
_OPTIMIZER = re.compile(r"torch[/\\]optim[/\\]")
_MODULE = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py$")
_ENGINE = re.compile(r"torch[/\\]autograd[/\\](__init__|graph)\.py$")


def is_python(frame: Mapping[str, Any]) -> bool:
    """Return whether a frame is of Python, not of C++."""
    filename = str(frame.get("filename", ""))
    return filename.endswith(".py") or filename.startswith(("<", "/tmp/ipykernel"))


def user_frame(frames: Frames) -> Mapping[str, Any] | None:
    """Find the innermost frame of the user's own, not of PyTorch or an installed package."""
    own = (
        frame
        for frame in frames
        if is_python(frame)
        and not _LIBRARY.search(frame["filename"])
        and not _INDUCTOR.search(frame["filename"])
    )
    return next(own, None)


def line_of(frames: Frames) -> str:
    """Name the line that allocated something: the user's, or else the innermost of a library."""
    frame = user_frame(frames)
    if frame is None:
        frame = next(filter(is_python, frames), None)
    if frame is None:
        node = _autograd_node(frames)
        if node:
            return f"backward ({node})"
        return "C++ without a Python frame" if frames else "unknown line"
    parts = re.split(r"[/\\]", frame["filename"])
    return f"{'/'.join(parts[-2:])}:{frame.get('line', 0)} {frame.get('name', '')}".strip()


def _autograd_node(frames: Frames) -> str:
    """Give `MulBackward0` for `torch::autograd::generated::MulBackward0::apply(...)`."""
    for frame in frames:
        found = re.search(r"(\w+Backward\w*|AccumulateGrad)(?:::|_)apply", frame.get("name", ""))
        if found:
            return found[1]
    return ""


def category_of(life: Life, failed_at: int | None = None) -> Category:
    """Guess what a block is for.

    Args:
        life: the block.
        failed_at: the event of a failure. What is freed after it is freed by the error, which says
            nothing about the block.
    """
    frames = life.frames
    if life.born < 0 and not frames:
        return Category.OLDER
    if not frames:
        return Category.UNKNOWN
    python = [frame for frame in frames if is_python(frame)]
    stays = life.freed is None or (failed_at is not None and life.freed > failed_at)
    if any(_OPTIMIZER.search(frame["filename"]) for frame in python):
        return Category.STATES if stays else Category.TEMPORARIES
    if any(_MODULE.search(f["filename"]) and f.get("name") == "_apply" for f in python):
        return Category.PARAMETERS
    if not python or any(_ENGINE.search(frame["filename"]) for frame in python):
        return Category.GRADIENTS if stays else Category.TEMPORARIES
    if stays or not any(is_python(frame) for frame in life.free_frames):
        return Category.ACTIVATIONS
    return Category.TEMPORARIES
