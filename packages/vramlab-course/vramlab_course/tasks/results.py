"""What a repaired program returns or leaves: copied to the host, and compared with what is right.

Nothing here runs code of an answer. Results are tensors of PyTorch's own class, which are computed
already when the program ends; parameters are read where modules keep them, past all methods.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeGuard

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed

CLOSE = 5e-6
"""Four times what float32 rounds in the sums of these tasks (`test_other_rounding.py`), and less
than half of what saved tensors in float16 change."""

_PIECE_NUMBERS = 2**14
"""Compared at a time: what a comparison makes of them fits into a core's cache."""


def as_data(value: object) -> object:
    """Convert what a program returned to Python's lists, tuples, dicts, numbers and texts.

    NumPy's numbers and arrays become Python's. An object whose class derives from one of Python's,
    such as a NamedTuple, becomes an object of that one; its own methods are not called. Anything
    else, such as a tensor, stays as it is.
    """
    if type(value).__module__ == "numpy" and isinstance(value, _numpy().generic | _numpy().ndarray):
        return value.tolist()
    match value:
        case dict():
            return {as_data(key): as_data(each) for key, each in dict.items(value)}
        case tuple():
            return tuple(map(as_data, tuple.__iter__(value)))
        case list():
            return list(map(as_data, list.__iter__(value)))
        case bool():
            return value
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case str():
            return str.__str__(value)
    if type(value) in (range, deque, type({}.keys()), type({}.values())):
        return list(map(as_data, value))  # type: ignore[call-overload]
    return value


def _numpy() -> Any:
    import numpy

    return numpy


def is_one_of(value: object, known: Iterable[object]) -> bool:
    """Return whether a result is one of the known values.

    The comparison never calls an answer's own `__eq__`, which could claim to equal anything.
    """
    value = as_data(value)
    return any(type(value) is type(each) and value == each for each in known)


def whole(value: object) -> int | None:
    """Return a result as an int if it is a whole number of any type, as in predictions; or None."""
    value = as_data(value)
    if type(value) in (float, Fraction, Decimal) and value == value // 1:  # type: ignore[operator]
        return int(value)
    return value if type(value) is int else None


def is_plain(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a tensor as PyTorch makes it: of no subclass but `Parameter`."""
    return type(value) in (torch.Tensor, torch.nn.Parameter)


def on_host(value: object, or_else: str) -> torch.Tensor:
    """Take a result that has to be a tensor on the GPU to the host.

    Raises:
        NotFixed: it is none; says `or_else`, and what it is if it is a tensor of another class.
    """
    if isinstance(value, torch.Tensor) and not is_plain(value):
        raise NotFixed(f"{or_else} It is a {type(value).__name__}, not a torch.Tensor.")
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        raise NotFixed(or_else)
    return to_host(value)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Take a tensor, wherever it is, to the host.

    Raises:
        NotFixed: it is of a class of its own, which could put off work until now.
    """
    if not is_plain(tensor):
        raise NotFixed(f"It leaves a {type(tensor).__name__} instead of a torch.Tensor.")
    return tensor.detach().cpu()


def number(value: object, or_else: str) -> float:
    """Read a result that has to be a number, or a tensor that holds one.

    Raises:
        NotFixed: it is neither; says `or_else`.
    """
    if is_plain(value) and value.numel() == 1:
        return float(value)
    value = as_data(value)
    if type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    raise NotFixed(or_else)


def items(value: object, count: int, what: str) -> list[object]:
    """Read a result that has to be a list, or a tensor, of so many items.

    Raises:
        NotFixed: it is none; says `what` it has to be.
    """
    found = list(value) if is_plain(value) and value.dim() else as_data(value)
    if not isinstance(found, list | tuple):
        raise NotFixed(f"It has to return {what}; it returns a {type(value).__name__}.")
    if len(found) != count:
        raise NotFixed(f"It has to return {what}: {count}, not {len(found)}.")
    return list(found)


def numbers(value: object, count: int, what: str) -> list[float]:
    """Read a result that has to be so many numbers, in a list or a tensor; see `items`."""
    return [
        number(each, f"It has to return {what}; item {index} is not a number.")
        for index, each in enumerate(items(value, count, what))
    ]


def parameters_of(model: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Yield the parameters of a module and of those in it, each once, in PyTorch's order."""
    yield from dict(named_parameters_of(model)).values()


def named_parameters_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the same with their names."""
    seen: set[int] = set()

    def walk(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Parameter]]:
        seen.add(id(module))
        for name, parameter in vars(module)["_parameters"].items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield prefix + name, parameter
        for name, inner in vars(module)["_modules"].items():
            if inner is not None and id(inner) not in seen:
                yield from walk(inner, f"{prefix}{name}.")

    return walk(model, "")


def require_close(
    found: torch.Tensor, expected: torch.Tensor, or_else: str, *, within: float = CLOSE
) -> None:
    """Require the numbers of a tensor, both on the host, up to what rounding changes.

    Right answers add up in other orders, or by other functions of PyTorch. How far that moves a
    number depends on the numbers that it is computed from, so the largest one counts, too: where
    others cancel, a right number can be far off relative to itself.

    Args:
        found: what the answer's run has given.
        expected: what the reference's has.
        or_else: what to say where a number, or the shape, is another.
        within: how far each number may be off, relative to itself and to the largest.

    Raises:
        NotFixed: they are others; says `or_else`, and where, by how much and what is tolerated.
    """
    if found.shape != expected.shape:
        shapes = f"{tuple(found.shape)} instead of {tuple(expected.shape)}"
        raise NotFixed(f"{or_else} The shape is {shapes}.")
    least = within * _largest(expected)
    if _are_close(found, expected, within, least):
        return
    found, expected = found.double(), expected.double()
    tolerated = least + within * expected.abs()
    off = (found - expected).abs()
    wrong = ~((off <= tolerated) | (found == expected))
    worst = int(torch.where(wrong, off.nan_to_num(nan=torch.inf), -1.0).argmax())
    place = [int(index) for index in torch.unravel_index(torch.tensor(worst), off.shape)]
    where = f" at {place}" if place else ""
    count = (
        f"{int(wrong.sum())} of {wrong.numel()} numbers are off, the worst" if place else "It is"
    )
    raise NotFixed(
        f"{or_else} {count}{where}: {found.flatten()[worst]:.6g} instead of "
        f"{expected.flatten()[worst]:.6g} (tolerance: {tolerated.flatten()[worst]:.2g})."
    )


def _largest(expected: torch.Tensor) -> float:
    """Return the size of the largest number that is finite; 0 if there is none."""
    smallest, largest = (float(each) for each in expected.aminmax()) if expected.numel() else (0, 0)
    if not math.isfinite(largest - smallest):
        return _largest(expected[expected.isfinite()])
    return max(-smallest, largest)


def _are_close(found: torch.Tensor, expected: torch.Tensor, within: float, least: float) -> bool:
    """Return whether all numbers agree; if not identical, compare in pieces that fit the cache."""
    if found.dtype == expected.dtype and torch.equal(found, expected):
        return True
    pieces = zip(
        found.flatten().split(_PIECE_NUMBERS), expected.flatten().split(_PIECE_NUMBERS), strict=True
    )
    for some, wanted in pieces:
        some, wanted = some.double(), wanted.double()
        tolerated = wanted.abs().mul_(within).add_(least)
        if not ((some - wanted).abs_() <= tolerated).logical_or_(some == wanted).all():
            return False
    return True
