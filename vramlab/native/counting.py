"""Numbers that PyTorch's own C++ code reads of a GPU, on the native engine.

Kernels compute nothing there, and C++ asks some of them for numbers: how large a result is
(`nonzero`, and so every `x[mask]`, also in the backward pass; `unique`, `bincount`,
`repeat_interleave`, `coalesce`), and what a tensor holds (`item`). These ops have kernels in
Python, which call PyTorch's own, and give it the numbers that it reads: those that were computed on
the host, where the operand is known (`values.py`); else those of the largest result, as on the
portable engine (`vramlab/gpu/ops/data_dependent.py`).
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from vramlab.gpu.core.op_table import OPS
from vramlab.gpu.core.values.shadows import UNKNOWN, Shadows, Unknown
from vramlab.gpu.core.values.value_policy import ValuePolicy
from vramlab.gpu.ops.values import PADDING
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    OpOverload,
    destroy,
    kernel_on_cuda,
    sparse_parts,
)
from vramlab.kernels.rule_table.registry import overloads
from vramlab.native.report import CORE

Numbers = Callable[[Any, Sequence[Any]], list[int]]

_MOST_NUMBERS = 8
"""`MOST_NUMBERS` in csrc/core/memory.c."""


def _rows(result: Any, args: Sequence[Any]) -> list[int]:
    """Count rows."""
    first = result[0] if isinstance(result, tuple) else result
    return [first.size(0)]


def _unique(result: Any, args: Sequence[Any]) -> list[int]:
    """Count, of booleans, those that are true; else those that are different."""
    self = args[0]
    if self.dtype != torch.bool:
        return _rows(result, args)
    return [min(1, self.numel()) if self.is_meta else int(self.sum())]


def _unique_dim(result: Any, args: Sequence[Any]) -> list[int]:
    """Count what is different along a dimension; it is read several times."""
    return [result[0].size(args[1])] * _MOST_NUMBERS


def _unique_consecutive(result: Any, args: Sequence[Any]) -> list[int]:
    """Count what differs from what is before it, along a dimension or of all."""
    dim = args[3] if len(args) > 3 else None
    return _rows(result, args) if dim is None else [result[0].size(dim)] * _MOST_NUMBERS


def _bincount(result: Any, args: Sequence[Any]) -> list[int]:
    """Return which number is the smallest, and which the largest."""
    return [0, result.numel() - 1]


def _repeat_interleave(result: Any, args: Sequence[Any]) -> list[int]:
    """Return how long the result is, and that no count is negative."""
    return [result.numel(), 1]


def _coalesce(result: Any, args: Sequence[Any]) -> list[int]:
    """Count the places that entries of a sparse tensor have."""
    return [sparse_parts(result)[0].size(1)]


READS: dict[str, Numbers] = {
    "nonzero": _rows,
    "_unique": _unique,
    "_unique2": _unique,
    "unique_consecutive": _unique_consecutive,
    "unique_dim": _unique_dim,
    "bincount": _bincount,
    "repeat_interleave.Tensor": _repeat_interleave,
    "_coalesce": _coalesce,
}
"""What each op reads of its kernels: from its result, on the host or as large as can be, and from
its operands there. Source: Nonzero.cu, Unique.cu, UniqueCub.cu, SummaryOps.cu and Repeat.cu (with
Repeat.h) in cuda, SparseCUDATensor.cu in sparse/cuda, of aten/src/ATen/native, PyTorch 2.13."""

_OF_SPARSE = frozenset({"_coalesce"})
"""Those whose operand is a sparse tensor."""

LEFT_ALIGNED = "_nested_tensor_from_mask_left_aligned"
"""Op that reads whether padding can be cut off; it stays, as on the portable engine."""

FOLLOWED = ("max", "min", "eq.Scalar")
"""Ops that C++ calls to read their result, as `one_hot` and the gradient of `prod` do."""


class _Thread(threading.local):
    is_counting = False
    is_showing = False


class CountingKernels:
    """Kernels in Python for ops of which C++ reads numbers.

    Args:
        shadows: what is known.
        policy: decides where something is not.
    """

    def __init__(self, shadows: Shadows, policy: ValuePolicy) -> None:
        self._shadows = shadows
        self._policy = policy
        self._core = ctypes.CDLL(CORE)
        self._thread = _Thread()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let these kernels be the GPU's, in all threads."""
        library: Any = torch.library.Library("aten", "IMPL")
        try:
            for name in (*READS, *FOLLOWED, LEFT_ALIGNED, "_local_scalar_dense"):
                (func,) = overloads(f"aten.{name}" if "." in name else f"aten.{name}.default")
                key = "SparseCUDA" if name in _OF_SPARSE else "CUDA"
                if (kernel := kernel_on_cuda(func, key)) is None:
                    continue
                with warnings.catch_warnings(action="ignore", category=UserWarning):
                    library.impl(name, self._kernel(name, func, kernel), key, with_keyset=True)
            yield
        finally:
            destroy(library)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Let C++ read what lies in memory, in the calling thread."""
        self._thread.is_counting = True
        try:
            yield
        finally:
            self._thread.is_counting = False

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Let PyTorch choose how a tensor is printed, which decides nothing."""
        self._thread.is_showing = True
        try:
            yield
        finally:
            self._thread.is_showing = False

    def _kernel(self, name: str, func: OpOverload, kernel: Any) -> Callable[..., Any]:
        numbers = READS.get(name)
        run = self._read if name == "_local_scalar_dense" else self._follow

        def python_kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            with DisableTorchFunction():  # in a backward pass there is a function mode
                if name == LEFT_ALIGNED:
                    self._policy.assume_all(PADDING, args[1])
                    return self._answering([0], kernel, keys, args, kwargs)
                if numbers is None:
                    return run(func, kernel, keys, args, kwargs)
                return self._count(func, kernel, numbers, keys, args, kwargs)

        return python_kernel

    def _count(
        self, func: OpOverload, kernel: Any, numbers: Any, keys: Any, args: Any, kwargs: Any
    ) -> Any:
        spec = OPS[func]
        known = [self._readable(each) if _is_tensor(each) else each for each in args]
        try:
            if any(each is None is not given for each, given in zip(known, args, strict=True)):
                raise Unknown
            truth = func(*known, **kwargs)
            read = numbers(truth, known)
        except Exception:
            truth = UNKNOWN
            on_meta = [_on_meta(each) if _is_tensor(each) else each for each in args]
            assert spec.make_outputs is not None
            if not self._thread.is_showing:
                self._policy.assume_all(f"{spec.base_name.lstrip('_')}()", args[0])
            largest = spec.make_outputs(*on_meta, **kwargs)
            read = numbers(largest if len(largest) > 1 else largest[0], on_meta)
        result = self._answering(read, kernel, keys, args, kwargs)
        if truth is not UNKNOWN:
            self._shadows.learn_all(result, truth)
        return result

    def _answering(
        self, numbers: Sequence[int], kernel: Any, keys: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run a kernel that reads these numbers of the GPU."""
        with self.passing():
            self._read_next(numbers)
            try:
                return kernel.call_boxed(keys, *args, **kwargs)
            finally:
                self._read_next([])

    def _readable(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor on the host where it is known; of a sparse one the places are enough."""
        if tensor.layout is torch.strided:
            return self._shadows.readable(tensor)
        places = self._shadows.readable(sparse_parts(tensor)[0])
        if places is None:
            return None
        ones = torch.ones(places.size(1), dtype=torch.bool, device=places.device)
        size = tensor.size()[: len(places)]
        return torch.sparse_coo_tensor(places, ones, size, check_invariants=True)

    def _follow(self, func: OpOverload, kernel: Any, keys: Any, args: Any, kwargs: Any) -> Any:
        result = kernel.call_boxed(keys, *args, **kwargs)
        if self._shadows.known(args[0]) is not None:
            self._shadows.follow(func, OPS[func].base_name, args, kwargs, result)
        return result

    def _read(self, func: OpOverload, kernel: Any, keys: Any, args: Any, kwargs: Any) -> Any:
        if self._thread.is_counting:
            return kernel.call_boxed(keys, *args)
        (tensor,) = args
        values = self._shadows.known(tensor)
        return self._policy.read("item()", tensor) if values is None else values.item()

    def _read_next(self, numbers: Sequence[int]) -> None:
        self._core.vn_read_next((ctypes.c_int64 * len(numbers))(*numbers), len(numbers))


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's shape; of a sparse one with its entries, which `to` leaves out."""
    if tensor.layout is torch.strided:
        return tensor.to("meta")
    places, entries = (each.to("meta") for each in sparse_parts(tensor))
    return torch.sparse_coo_tensor(places, entries, tensor.size())


def _is_tensor(each: Any) -> bool:
    return isinstance(each, torch.Tensor)
