r"""Who holds a block: the shortest way from a name of the program to the tensor in it.

    way = holders(block.address, {"scores": scores, "model": model})
    print(*way, sep="\n")               # scores, [0], .grad_fn, saved 'self'; with what each is

A memory snapshot says which line took a block. It does not say why the block is still there. This
goes from names through containers, attributes, closures, hooks, kept errors and autograd's graph,
breadth first. Where no name leads to a block, a reference cycle holds it, or something outside of
Python. Works on a real GPU and on a virtual one.

Known limitations: what objects of C and C++ hold is not seen, but for autograd's nodes.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, FunctionType, GeneratorType, MethodType, ModuleType, TracebackType
from typing import Any

import torch

from vramlab.gpu.torch_internals import DisableTorchFunction, backward_hooks_of
from vramlab.measure.graph import kept_by
from vramlab.measure.tensors import storage_addresses

MOST_OBJECTS = 200_000
"""So many objects are looked at; in a program's own data, a leak is found much earlier."""

_PLAIN = (str, bytes, int, float, complex, type, ModuleType, torch.dtype, torch.device)
_KEY_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Holder:
    """One step of a way to a block."""

    step: str
    """How one gets here from the holder before: a name, '[0]', '.weight', "saved 'self'"."""
    kind: str
    """What is here: the name of its class, or of a node of autograd's graph."""

    def __str__(self) -> str:
        return f"{self.step}: {self.kind}"


def holders(
    address: int,
    names: Mapping[str, object],
    *,
    device: int | None = None,
    most_objects: int = MOST_OBJECTS,
) -> tuple[Holder, ...]:
    """Find the shortest way from a name to a tensor in a block.

    Args:
        address: of the block, such as `BlockLife.address`; the block has to be there still.
        names: where ways may begin: some variables, or `globals()`.
        device: index of the GPU; the current one if None.
        most_objects: how many objects are looked at before the search is given up.

    Returns:
        The way, its end a tensor; empty if none was found.
    """
    place = torch.cuda.current_device() if device is None else device
    met = [(Holder(name, _kind(value)), value, -1) for name, value in names.items()]
    # Every object that was met is in `met`, so that no other gets its id meanwhile.
    ids = {id(value) for _, value, _ in met}
    with DisableTorchFunction():
        for number in range(most_objects):
            if number >= len(met):
                break
            value = met[number][1]
            if isinstance(value, torch.Tensor) and address in storage_addresses(value, place):
                return _way(met, number)
            for step, inner in _inside(value):
                if not isinstance(inner, _PLAIN) and inner is not None and id(inner) not in ids:
                    ids.add(id(inner))
                    met.append((Holder(step, _kind(inner)), inner, number))
    return ()


def _way(met: list[tuple[Holder, Any, int]], number: int) -> tuple[Holder, ...]:
    way: list[Holder] = []
    while number >= 0:
        holder, _, number = met[number]
        way.append(holder)
    return tuple(reversed(way))


def _kind(value: object) -> str:
    return type(value).__name__


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object refers to, each with the step that leads there."""
    if isinstance(value, dict):
        yield from ((f"[{_short(key)}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{number}]", item) for number, item in enumerate(list(value)))
    elif isinstance(value, set | frozenset):
        yield from (("in it", item) for item in list(value))
    elif isinstance(value, FunctionType):
        yield from _in_function(value)
    elif isinstance(value, MethodType):
        yield from ((".__self__", value.__self__), (".__func__", value.__func__))
    elif isinstance(value, functools.partial):
        yield from ((".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, TracebackType):
        yield from ((".tb_frame", value.tb_frame), (".tb_next", value.tb_next))
    elif isinstance(value, FrameType):
        yield from dict(value.f_locals).items()
    elif isinstance(value, GeneratorType):
        yield ".gi_frame", value.gi_frame
    else:
        yield from _in_object(value)


def _in_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"closure's {name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield ".__defaults__", function.__defaults__
    yield ".__kwdefaults__", function.__kwdefaults__


def _in_object(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield ".grad_fn", value.grad_fn
        if value.is_leaf:  # of others, PyTorch warns that there is none
            yield ".grad", value.grad
        yield "._backward_hooks", backward_hooks_of(value)
    elif hasattr(value, "next_functions"):  # a node of autograd's graph
        yield from ((".next_functions", node) for node, _ in value.next_functions)
        yield from ((f"saved {name!r}", tensor) for name, tensor in kept_by(value))
        yield ".variable", getattr(value, "variable", None)
    elif isinstance(value, BaseException):
        yield ".__traceback__", value.__traceback__
        yield ".__cause__", value.__cause__
        yield ".__context__", value.__context__
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((f".{name}", item) for name, item in list(attributes.items()))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield f".{name}", getattr(value, name, None)


def _short(key: object) -> str:
    text = repr(key) if isinstance(key, str | int) else _kind(key)
    return text if len(text) <= _KEY_LENGTH else f"{text[: _KEY_LENGTH - 1]}…"
