"""Which line of the program a block comes from, and in which part of a training step.

Below the dispatcher, only Python frames show which line called. In the forward pass they do:
the line is the innermost frame outside of PyTorch, Python's library and vramlab. In the backward
pass the innermost such frame is `loss.backward()` for everything. But each autograd node has a
sequence number, given to it in the forward pass (ascending, thread by thread), and the engine says
which node it is running. So the forward pass notes which line made the node of which number, and a
block that the engine's node allocates is booked on that line.

Code that the backward pass runs in Python (hooks, custom functions, a checkpoint's recomputation)
has frames of its own below the engine's, and those count.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from vramlab.gpu.core.observers import Observer
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.torch_internals import (
    OpOverload,
    current_autograd_node,
    current_graph_task_id,
    engine_run_backward,
    get_sequence_nr,
    schema_of,
    sequence_number_of,
)
from vramlab.measure import Category, Frame
from vramlab.source_files import CodeOwner, owner_of

_PROGRAM, _PACKAGE = CodeOwner.PROGRAM, CodeOwner.PACKAGE  # members of enums take long to look up

_ENGINE = engine_run_backward.__code__
_WITHOUT_NUMBER = 2**64 - 1
"""The sequence number of every AccumulateGrad node. Source: the constructor in
torch/csrc/autograd/functions/accumulate_grad.cpp passes UINT64_MAX, PyTorch 2.13."""

_NOTED_LINES = 1 << 18
"""Nodes of which a line is remembered, at least: more than graphs have that fit on a GPU."""

Line = tuple[CodeType, int]


@dataclass(frozen=True, slots=True)
class BlockOrigin:
    """The line, and the part of a training step, that a block comes from."""

    line: Frame | None
    """The innermost line outside of PyTorch. For the backward pass the line whose gradient is
    computed, where that is known."""
    caller: Frame | None
    """The innermost line of the user's own code, where `line` is in an installed package."""
    in_backward: bool
    """Whether the autograd engine was running."""
    owner: Category | None
    """What the block is, where its allocation alone tells: workspaces of libraries, gradients that
    autograd clones, data from the host or made by a factory such as torch.randn."""


class _Thread(threading.local):
    """What one thread is doing."""

    number: int = 0  # the sequence number that its next autograd node will have
    brings_data: bool = False
    takes_workspace: bool = False


class Origins(Observer):
    """Follows the ops of one machine, and answers for each allocation where it comes from."""

    def __init__(self) -> None:
        self._thread = _Thread()
        self._thread.number = get_sequence_nr()
        self._factories: dict[OpOverload, bool] = {}
        self._frames: dict[Line, Frame] = {}
        # Line by sequence number, in two generations: when the new one is full, the old one goes.
        self._lines: dict[int, tuple[Frame | None, Frame | None]] = {}
        self._older_lines: dict[int, tuple[Frame | None, Frame | None]] = {}

    def of_allocation(self) -> BlockOrigin:
        """Find the origin of what the calling thread allocates right now."""
        line, caller, in_engine = self._look(sys._getframe(1))
        in_backward = current_graph_task_id() != -1
        thread = self._thread
        owner = None
        if in_engine and (node := current_autograd_node()) is not None:
            number = sequence_number_of(node)
            line, caller = self._line_of_node(number) or (line, caller)
            owner = Category.GRADIENTS if number == _WITHOUT_NUMBER else None
        if thread.takes_workspace:
            thread.takes_workspace = False
            owner = Category.WORKSPACES
        elif thread.brings_data and not in_backward:
            owner = Category.INPUTS
        return BlockOrigin(line, caller, in_backward, owner)

    def op_begins(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note which autograd nodes are new, and what the op is about to do."""
        thread = self._thread
        number: int = get_sequence_nr()
        if number != thread.number:
            self._note(range(thread.number, number))
            thread.number = number
        thread.brings_data = self._brings_data(func, args, kwargs)
        thread.takes_workspace = False

    def kernel_takes(self, device_index: int, size_bytes: int, what: str, *, is_kept: bool) -> None:
        """Note that the next allocation is a workspace that a library keeps."""
        self._thread.takes_workspace = is_kept

    def _brings_data(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Return whether an op puts new data on a GPU: a copy from the host, a factory's result."""
        device = kwargs.get("device")
        if device is None or device.type != "cuda":
            return False
        if func is torch.ops.aten._to_copy.default:
            record = record_of(args[0])
            return record is None or record.device_index < 0
        is_factory = self._factories.get(func)
        if is_factory is None:
            is_factory = all("Tensor" not in str(a.type) for a in schema_of(func).arguments)
            self._factories[func] = is_factory
        return is_factory

    def _note(self, numbers: range) -> None:
        line, caller, _ = self._look(sys._getframe(2))
        if len(self._lines) >= _NOTED_LINES:
            self._older_lines, self._lines = self._lines, {}
        for number in numbers:
            self._lines[number] = (line, caller)

    def _line_of_node(self, number: int) -> tuple[Frame | None, Frame | None] | None:
        return self._lines.get(number) or self._older_lines.get(number)

    def _look(self, start: FrameType) -> tuple[Frame | None, Frame | None, bool]:
        """Search the callers: (line, caller, whether the engine is nearer)."""
        frame: FrameType | None = start
        line: FrameType | None = None
        in_engine = False
        while frame is not None:
            code = frame.f_code
            owner = owner_of(code.co_filename)
            if owner is _PROGRAM:
                if line is None:
                    return self._frame(frame), None, in_engine
                return self._frame(line), self._frame(frame), in_engine
            if owner is _PACKAGE:
                line = line or frame
            elif line is None:
                in_engine = in_engine or code is _ENGINE
            frame = frame.f_back
        return None if line is None else self._frame(line), None, in_engine

    def _frame(self, frame: FrameType) -> Frame:
        """Return a frame as data; one object for each line, however often it runs."""
        key = (frame.f_code, frame.f_lineno)
        known = self._frames.get(key)
        if known is None:
            code, line = key
            known = self._frames[key] = Frame(code.co_filename, line, code.co_qualname)
        return known
