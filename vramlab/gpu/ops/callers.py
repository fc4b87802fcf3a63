"""Who asks for a value, where it is not the program: what PyTorch's own questions are answered.

A read is PyTorch's own (or transformers') where nothing but PyTorch's code stands between it and
a caller of this table. A closure that an optimizer calls is the program's again.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType

import torch

from vramlab.gpu.core.local_ranks import shared_store
from vramlab.gpu.core.storage_record import Scalar


@dataclass(frozen=True)
class Caller:
    """Code that reads values for an end of its own.

    Attributes:
        module: where it is; a package of PyTorch's, with all its modules, if no function is named.
        function: its qualified name, or "".
        dtype: of the tensors that it reads; None for any.
        answer: what it hears, or what returns that; None for what stands for an unknown value.
        why: this answer is the right one.
    """

    module: str
    function: str
    dtype: torch.dtype | None
    answer: Scalar | Callable[[], Scalar] | None
    why: str

    def tells(self) -> Scalar | None:
        """Return what the caller hears; None for what stands for an unknown value."""
        return self.answer() if callable(self.answer) else self.answer

    def is_one(self, code: CodeType) -> bool:
        """Return whether code is the caller's."""
        if self.function:
            return code is _code(self.module, self.function)
        return self.module in sys.modules and code.co_filename.startswith(_folder(self.module))


def _knows_shapes() -> int:
    return int(shared_store() is None)


CALLERS = (
    Caller(
        "torch.optim",
        "",
        None,
        None,
        "what optimizers do with a value changes values, never memory",
    ),
    Caller(
        "torch.distributions",
        "",
        torch.bool,
        True,
        "the arguments of a distribution are in their domain",
    ),
    Caller(
        "torch.nn.modules.transformer",
        "_detect_is_causal_mask",
        torch.bool,
        True,
        "a square mask is causal",
    ),
    Caller(
        "transformers.masking_utils",
        "find_packed_sequence_indices",
        torch.bool,
        True,
        "positions that decoders number themselves, without a cache or a mask, are of one sequence "
        "each",
    ),
    *(
        Caller(
            "torch.distributed.pipelining.schedules",
            f"_PipelineSchedule.{function}",
            None,
            _knows_shapes,
            "stages tell each other the shapes that they exchange, but a rank alone is given them "
            "(PipelineStage(..., input_args=..., output_args=...))",
        )
        # The first up to PyTorch 2.14, the second since.
        for function in ("_warmup_p2p", "_initialize_pipeline_distributed_state")
    ),
)
"""Source: PyTorch 2.13 and 2.15, transformers 5.23. What a version lacks is not called."""

_VRAMLAB = Path(__file__).parents[2]

_PASSED_OVER = tuple(
    str(folder) + os.sep
    for folder in (
        Path(torch.__file__).parent,
        _VRAMLAB,
        *map(_VRAMLAB.with_name, ("vramlab_course", "vramlab_classroom")),
    )
)
"""Folders of code that stands between a caller and its read: PyTorch's, and vramlab's own."""

_MODES_OF_OTHERS = ("__torch_function__", "__torch_dispatch__")
"""The methods by which PyTorch hands every call to a mode or a subclass, which passes it on."""


def asking(dtype: torch.dtype) -> Caller | None:
    """Find the caller that reads a tensor of this dtype; None if it is the program itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        for caller in CALLERS:
            if caller.dtype in (None, dtype) and caller.is_one(code):
                return caller
        if not (code.co_filename.startswith(_PASSED_OVER) or code.co_name in _MODES_OF_OTHERS):
            return None
        frame = frame.f_back
    return None


def _code(module: str, function: str) -> CodeType | None:
    """Return a function's code object; None if its module has not been imported."""
    namespace = sys.modules.get(module)
    try:
        found = attrgetter(function)(namespace)
    except AttributeError:
        return None
    code = getattr(inspect.unwrap(found), "__code__", None)
    return code if isinstance(code, CodeType) else None


@functools.cache
def _folder(package: str) -> str:
    return str(Path(str(sys.modules[package].__file__)).parent) + os.sep
