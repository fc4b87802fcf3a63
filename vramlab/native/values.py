"""Small whole and boolean tensors stay true on the native engine.

Kernels compute nothing there. But what steers programs is small: positions, masks, lengths, counts,
the scale of a GradScaler. Where all operands of such an op are known, it is computed on the host as
well, and written to where the GPU's result lies: the engine's device memory is memory of the host.
PyTorch's CUDA code has run before that, so what it allocates stays what it is.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.core.patches import Patches
from vramlab.gpu.core.stack_frames import user_line
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import (
    get_function_mode_stack,
    pop_function_mode,
    push_function_mode,
    tree_map,
    version_of,
)

MOST_BYTES = 2**16
"""Storages up to this size are kept true."""

_TRUE = "_vramlab_is_true"
_RANDOM = (
    *("rand", "empty", "bernoulli", "multinomial", "normal", "uniform", "poisson", "exponential"),
    *("cauchy", "geometric", "dropout"),
)
"""Parts of names of functions whose results nobody knows."""
_CONVERTS = frozenset({"to", "cuda", "type", "type_as", "int", "long", "bool", "short", "char"})
_SIZED_BY_VALUES = frozenset(
    {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
)
_READS = frozenset({"item", "tolist", "__bool__", "__int__", "__float__", "__index__"})


class KnownValues(TorchFunctionMode):
    """Keeps small whole and boolean tensors true, and single numbers, in the calling thread.

    Attributes:
        reads: (what, "file:line") -> how often a value was read that no kernel has computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[tuple[str, str]] = Counter()
        self._patches = Patches()

    def __enter__(self) -> KnownValues:
        """Begin; what torch.compile makes from now on runs without this mode."""
        super().__enter__()  # type: ignore[no-untyped-call]
        self._patches.set(torch, "compile", self._compiler(torch.compile))
        return self

    def __exit__(self, *exception: Any) -> None:
        """End, and give back torch.compile."""
        self._patches.undo()
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def _compiler(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        """torch.compile, whose results are left alone: it would compile this mode along."""

        @wraps(compile_)
        def compile_apart(model: Any = None, **how: Any) -> Any:
            if model is None:  # a decorator with arguments
                return lambda function: compile_apart(function, **how)
            compiled = compile_(model, **how)
            if isinstance(compiled, torch.nn.Module):
                compiled.forward = self._apart(compiled.forward)
                return compiled
            return self._apart(compiled)

        return compile_apart

    def _apart(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """A function that torch.compile made, called without this mode."""

        @wraps(compiled)
        def run(*args: Any, **kwargs: Any) -> Any:
            modes = get_function_mode_stack()
            if torch.compiler.is_compiling() or modes[-1:] != [self]:
                return compiled(*args, **kwargs)
            given = [tensor for tensor in tensors_in((args, kwargs)) if _can_be_true(tensor)]
            versions = [version_of(tensor) for tensor in given]
            pop_function_mode()
            try:
                return compiled(*args, **kwargs)
            finally:
                push_function_mode(self)
                for tensor, version in zip(given, versions, strict=True):
                    if version_of(tensor) != version:
                        _mark(tensor.untyped_storage(), False)

        return run

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch, and compute what it gave where that is known."""
        kwargs = dict(kwargs or {})
        if ATTACHED.newest is not None:  # tensors of a virtual GPU have no memory
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _READS and not _is_true(args[0]):
            self.reads[f"{name.strip('_')}()", user_line()] += 1
        result = func(*args, **kwargs)
        if name in _SIZED_BY_VALUES and args and getattr(args[0], "is_cuda", False):
            self.reads[f"shape of {name}", user_line()] += 1
        target = args[0] if name == "__setitem__" or (args and result is args[0]) else None
        if target is not None:
            if _can_be_true(target) and name not in _CONVERTS:
                self._write_in_place(func, name, args, kwargs)
        elif _can_be_true(result):
            self._write(func, name, args, kwargs, result)
        return result

    def _write(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: torch.Tensor,
    ) -> None:
        """Compute a new tensor; a view of another is as true as that is."""
        given = list(tensors_in((args, kwargs)))
        storage = result.untyped_storage()
        if any(_shares(tensor, storage) for tensor in given):
            return
        if not _are_true(given) or _is_random(name) or "out" in kwargs:
            return
        if name in _CONVERTS:
            truth: Any = _on_host(args[0]).to(result.dtype)
        else:
            if not given or "device" in kwargs:
                kwargs["device"] = "cpu"
            truth = func(*_all_on_host(args), **_all_on_host(kwargs))
        if isinstance(truth, torch.Tensor) and truth.shape == result.shape:
            _on_host(result).copy_(truth)
            _mark(storage, True)

    def _write_in_place(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        storage = args[0].untyped_storage()
        given = list(tensors_in((args[1:], kwargs)))
        overwrites = name in ("fill_", "zero_", "copy_") and args[0].nbytes == storage.nbytes()
        known = _are_true(given) and (overwrites or _is_true(args[0])) and not _is_random(name)
        if known:
            func(*_all_on_host(args), **_all_on_host(kwargs))
        _mark(storage, known)


def _can_be_true(tensor: Any) -> bool:
    """Tell whether a tensor on a GPU is small enough, and of numbers that programs ask for."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_cuda:
        return False
    if tensor.layout != torch.strided or not tensor.numel():
        return False
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    small = tensor.untyped_storage().nbytes() <= MOST_BYTES
    return small and (whole or tensor.numel() == 1)


def _is_true(tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cuda:
        return True
    return _can_be_true(tensor) and hasattr(tensor.untyped_storage(), _TRUE)


def _mark(storage: torch.UntypedStorage, true: bool) -> None:
    if true:
        setattr(storage, _TRUE, True)
    elif hasattr(storage, _TRUE):
        delattr(storage, _TRUE)


def _are_true(tensors: list[torch.Tensor]) -> bool:
    return all(map(_is_true, tensors))


def _is_random(name: str) -> bool:
    return any(part in name for part in _RANDOM)


def _shares(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    return tensor.is_cuda and tensor.untyped_storage().data_ptr() == storage.data_ptr()


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a host tensor."""
    if not tensor.is_cuda:
        return tensor.detach()
    storage = tensor.untyped_storage()
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _all_on_host(tree: Any) -> Any:
    return tree_map(lambda each: _on_host(each) if isinstance(each, torch.Tensor) else each, tree)


def reads_by_line(reads: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Order reads by line, as `Summary.value_reads` has them."""
    found: dict[str, dict[str, int]] = {}
    for (what, line), times in reads.items():
        found.setdefault(line, {})[what] = times
    return found
