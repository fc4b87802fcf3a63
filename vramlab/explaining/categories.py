"""Whose line allocated a block, and what for, guessed from the stacks of its life.

A snapshot says nothing about tensors. What can be told from stacks:

    parameters           `Module._apply` (model.to("cuda"), model.cuda()), a module's constructor,
                         or DataParallel's copies
    optimizer states     a file in torch/optim allocates it, and does not free it
    gradients            backward allocates it, and does not free it
    activations          Python allocates it, and backward frees it; or it stays
    other tensors        what a module did not allocate, and outlives a backward pass: inputs,
                         parameters that the program creates itself, a list of losses; and
                         outputs of a forward pass that saves nothing
    autocast's copies    of weights, which it keeps until it ends; told by C++ frames
    workspaces           cuBLAS's, by C++ frames or by a size that little else has
    temporaries          what is freed where it was allocated

Backward is what has autograd's engine in its stack, or no Python frame: the engine has threads of
its own.

The stack is PyTorch's, innermost frame first.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from vramlab.cuda_rules.cublas import cublas_workspace_bytes
from vramlab.explaining.traces import WITHOUT_PYTHON, Frames, GPUTrace, Life


class Category(StrEnum):
    """What a block is for, as far as stacks tell."""

    OLDER = "older than the trace"
    PARAMETERS = "parameters"
    STATES = "optimizer states"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    COPIES = "autocast's copies"
    WORKSPACES = "workspaces"
    OTHER = "other tensors"
    TEMPORARIES = "temporaries"
    UNKNOWN = "without a stack"


OLDER_LINE = "before the trace"
"""Stands for the line of blocks that nothing recorded."""

NO_LINE = "without a stack"
"""Stands for the line of blocks in a recording without stacks."""


_LIBRARY = re.compile(
    r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]"
    r"|[/\\]vramlab[/\\](gpu|native|measure|report)[/\\]"
    r"|^(torch|transformers|functorch|einops|diffusers|accelerate|peft)[/\\]"
    r"|^<frozen|\.(cpp|cc|cu|cuh|h|hpp|c)$|[/\\]torch[/\\](nn|optim|autograd|_|utils|cuda)",
)
_INDUCTOR = re.compile(r"torchinductor_|[/\\]tmp[/\\]torchinductor")
_PYTHON = re.compile(r"\.py$|^<|^/tmp/ipykernel")
_OPTIMIZER = re.compile(r"torch[/\\]optim[/\\]")
_MODULE = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py$")
_OF_MODULES = re.compile(r"torch[/\\]nn[/\\]modules[/\\]|pytorch_utils\.py$")
_REPLICAS = re.compile(r"torch[/\\]nn[/\\]parallel[/\\]replicate\.py$")
_ENGINE = re.compile(r"torch[/\\]autograd[/\\](__init__|graph)\.py$")
_CHECKPOINT = re.compile(r"torch[/\\]utils[/\\]checkpoint\.py$")
_SAVING_LINES = 1 / 3
"""Of the lines of a forward pass, those that keep what they allocate for a backward pass."""
_WORKSPACE = ("at::cuda::getNewWorkspace", "at::cuda::blas::", "at::cuda::getCUDABlasLtWorkspace")
_WORKSPACE_BYTES = cublas_workspace_bytes((8, 0), (2, 11))
"""8,519,680 before Hopper. Hopper's 32 MiB is the size of many tensors; its C++ frames tell."""


def is_python(frame: Mapping[str, Any]) -> bool:
    """Return whether a frame is of Python, not of C++."""
    return _is(_PYTHON, str(frame.get("filename", "")))


@lru_cache(maxsize=1 << 16)
def _is(pattern: re.Pattern[str], filename: str) -> bool:
    """Whether a file's name fits a pattern; a trace has the same few names a million times."""
    return pattern.search(filename) is not None


def user_frame(frames: Frames) -> Mapping[str, Any] | None:
    """Find the innermost frame of the user's own, not of PyTorch or an installed package."""
    own = (
        frame
        for frame in frames
        if is_python(frame)
        and not _is(_LIBRARY, frame["filename"])
        and not _is(_INDUCTOR, frame["filename"])
    )
    return next(own, None)


def line_of_block(life: Life) -> str:
    """Name the line that allocated a block."""
    return line_of(life.frames) if life.frames or life.born < 0 else NO_LINE


def line_of(frames: Frames) -> str:
    """Name the line that allocated something: the user's, or else the innermost of a library."""
    frame = user_frame(frames)
    if frame is None:
        frame = next(filter(is_python, frames), None)
    if frame is None and frames == WITHOUT_PYTHON:
        return "backward (a thread without Python)"
    if frame is None:
        node = _autograd_node(frames)
        if node:
            return f"backward ({node})"
        return "C++ without a Python frame" if frames else OLDER_LINE
    parts = re.split(r"[/\\]", frame["filename"])
    return f"{'/'.join(parts[-2:])}:{frame.get('line', 0)} {frame.get('name', '')}".strip()


def _autograd_node(frames: Frames) -> str:
    """Return `MulBackward0` for `torch::autograd::generated::MulBackward0::apply(...)`."""
    for frame in frames:
        found = re.search(r"(\w+Backward\w*|AccumulateGrad)(?:::|_)apply", frame.get("name", ""))
        if found:
            return found[1]
    return ""


@dataclass(frozen=True)
class Phases:
    """Where in a trace something happened.

    Attributes:
        kept_from: an event after which releases say nothing about a block: that of a failure, whose
            error frees what was in use, or the last allocation, after which the program ends.
        backward: for each event, whether the last allocation before it was made by backward.
        backward_ends: events with which something else follows a backward pass.
        gradient_bytes: requests that may be gradients of parameters, where a failure ends a
            backward pass; None: no failure did.
        saves: whether forward passes seem to save tensors for a backward pass.
    """

    kept_from: int
    backward: Sequence[bool] = ()
    backward_ends: Sequence[int] = ()
    gradient_bytes: frozenset[int] | None = None
    saves: bool = True

    @classmethod
    def of(cls, gpu: GPUTrace) -> Phases:
        """Read the phases of a trace."""
        is_backward, backward, ends = False, [], []
        for index, event in enumerate(gpu.events):
            if event["action"] == "alloc":
                was_backward, is_backward = is_backward, in_backward(event.get("frames") or ())
                if was_backward and not is_backward:
                    ends.append(index)
            backward.append(is_backward)
        if not gpu.failures:
            last = max((life.born for life in gpu.lives), default=0)
            return cls(last, backward, ends, saves=any(backward) or _saves(gpu, last))
        failed = gpu.failures[0]
        sizes = None
        if in_backward(failed.frames):
            sizes = frozenset(
                life.request_bytes
                for life in gpu.alive(failed.event)
                if life.born < 0 or _is_parameter(life.frames)
            )
        saves = any(backward) or _saves(gpu, failed.event)
        return cls(failed.event, backward, ends, sizes, saves)

    def outlives_backward(self, life: Life) -> bool:
        """Return whether a backward pass ends while a block lives."""
        first = bisect_right(self.backward_ends, life.born)
        return first < len(self.backward_ends) and (
            life.freed is None or self.backward_ends[first] <= life.freed
        )


def _saves(gpu: GPUTrace, kept_from: int) -> bool:
    """Guess whether forward passes save tensors, where no backward pass is in the trace.

    With gradients, most lines of a forward pass keep what they allocate; with no_grad(), few do.
    Checkpointing keeps as little, and its frames tell.
    """
    lines: dict[tuple[int, ...], str] = {}  # by stack; '' outside of modules
    allocating, keeping = set(), set()
    for life in gpu.lives:
        if not 0 <= life.born < gpu.moment:
            continue
        stack = tuple(map(id, life.frames))
        if stack not in lines:
            if any(_is(_CHECKPOINT, str(frame.get("filename", ""))) for frame in life.frames):
                return True
            lines[stack] = line_of(life.frames) if _in_module(life.frames) else ""
        line = lines[stack]
        allocating.add(line)
        if (life.freed is None or life.freed > kept_from) and not _is_workspace(life):
            keeping.add(line)
    allocating.discard("")
    keeping.discard("")
    return len(keeping) >= _SAVING_LINES * len(allocating)


def category_of(life: Life, phases: Phases) -> Category:
    """Guess what a block is for."""
    frames = life.frames
    if life.born < 0 and not frames:
        return Category.OLDER
    if not frames:
        return Category.UNKNOWN
    python = [frame for frame in frames if is_python(frame)]
    stays = life.freed is None or life.freed > phases.kept_from
    backward_frees = not stays and _is_freed_in_backward(life, phases)
    if stays and _is_workspace(life):
        return Category.WORKSPACES
    if stays and _is_in(frames, ("at::autocast::cached_cast",)):
        return Category.COPIES
    if any(_is(_OPTIMIZER, frame["filename"]) for frame in python):
        return Category.STATES if stays else Category.TEMPORARIES
    if _is_parameter(python):
        return Category.PARAMETERS
    if in_backward(frames):
        in_flight = (
            phases.gradient_bytes is not None
            and stays
            and (life.request_bytes not in phases.gradient_bytes)
        )
        return Category.TEMPORARIES if backward_frees or in_flight else Category.GRADIENTS
    if stays and any(_makes_parameters(frame) for frame in python):
        return Category.PARAMETERS
    if not backward_frees and not _in_module(python):
        is_variable = stays and not any(phases.backward) and _is_top_level(frames)
        if is_variable or phases.outlives_backward(life):
            return Category.OTHER
    if stays and not phases.saves:
        return Category.OTHER
    return Category.ACTIVATIONS if stays or backward_frees else Category.TEMPORARIES


def _is_parameter(frames: Frames) -> bool:
    """Whether a module was moved to the GPU, or copied by DataParallel."""
    return any(
        (_is(_MODULE, frame["filename"]) and _called(frame) == "_apply")
        or _is(_REPLICAS, frame["filename"])
        for frame in frames
    )


def _is_workspace(life: Life) -> bool:
    if life.request_bytes == _WORKSPACE_BYTES:
        return True
    return _is_in(life.frames, _WORKSPACE)


def _is_in(frames: Frames, functions: tuple[str, ...]) -> bool:
    """Whether C++ functions are in a stack."""
    return any(str(frame.get("name", "")).startswith(functions) for frame in frames)


def _in_module(python: Frames) -> bool:
    """Whether a module's forward pass allocated it."""
    return any(
        _called(frame) == "forward" or _is(_MODULE, str(frame.get("filename", "")))
        for frame in python
    )


def _is_freed_in_backward(life: Life, phases: Phases) -> bool:
    """Whether backward freed a block.

    A release that was recorded without a stack of its own has that of the allocation
    (`context_when_allocated` in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11); then the
    allocation before it tells.
    """
    if life.free_frames and list(life.free_frames) != list(life.frames):
        return in_backward(life.free_frames)
    assert life.freed is not None
    return life.freed < len(phases.backward) and phases.backward[life.freed]


def in_backward(frames: Frames) -> bool:
    """Whether autograd's engine is in a stack, or no Python at all, as in its own threads."""
    python = [frame for frame in frames if is_python(frame)]
    return not python or any(_is(_ENGINE, frame["filename"]) for frame in python)


def _is_top_level(frames: Frames) -> bool:
    """Whether the program's own innermost frame is no function."""
    return str((user_frame(frames) or {}).get("name", "")) == "<module>"


def _makes_parameters(frame: Mapping[str, Any]) -> bool:
    """Whether a frame is the constructor of one of PyTorch's modules."""
    is_constructor = _called(frame) in ("__init__", "reset_parameters")
    return is_constructor and _is(_OF_MODULES, frame["filename"])


def _called(frame: Mapping[str, Any]) -> str:
    """Return `_apply` for `_apply` and `Module._apply`: some recorders write qualified names."""
    return str(frame.get("name", "")).rpartition(".")[2]
