"""Read which arguments a function of PyTorch takes, also of those in C++, and compare them.

Functions in C++ have no signature that `inspect` reads. pybind11 writes it into the docstrings of
its functions, and PyTorch ships a stub file, `torch/_C/__init__.pyi`, for the others.
"""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

_NESTED = re.compile(r"\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}|<[^<>]*>")
_NAMED = Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD_ONLY = Parameter.KEYWORD_ONLY
_VAR_POSITIONAL = Parameter.VAR_POSITIONAL
_VAR_KEYWORD = Parameter.VAR_KEYWORD
_BY_POSITION = (Parameter.POSITIONAL_ONLY, _NAMED)


def of(function: Any) -> Signature | None:
    """Return what a function takes; None if nothing tells. Classes tell nothing here."""
    if not callable(function) or isinstance(function, type):
        return None
    documented = re.match(r"(?:\w+)?(\(.*\)) -> ", getattr(function, "__doc__", None) or "")
    if documented is not None and not inspect.isfunction(function):
        return _parsed(documented[1])
    with suppress(TypeError, ValueError):
        return Signature([_plain(each) for each in inspect.signature(function).parameters.values()])
    return None


def written(arguments: str) -> Signature:
    """Read arguments as `Internal.arguments` has them: `self, fn, recurse=None, *, optional`."""
    signature = _parsed(f"({arguments})")
    assert signature is not None, arguments
    return signature


def is_called_as(ours: Signature, theirs: Signature) -> bool:
    """Return whether a function accepts the arguments that it is called with."""
    words = {name for name, each in ours.parameters.items() if each.kind is _KEYWORD_ONLY}
    return _binds(theirs, len(ours.parameters) - len(words), words)


def stands_in(ours: Signature, theirs: Signature) -> bool:
    """Return whether a replacement accepts every argument of the function that it replaces.

    With all of them, and with those alone that have no default; by position or by name, since which
    of the two PyTorch's callers do is not known.
    """
    parameters = theirs.parameters.values()
    by_position = [each for each in parameters if each.kind in _BY_POSITION]
    words = {each.name for each in parameters if each.kind is _KEYWORD_ONLY}
    needed = [each for each in by_position if each.default is Parameter.empty]
    return all(
        _binds(ours, len(given), words) or _binds(ours, 0, words | {each.name for each in given})
        for given in (by_position, needed)
    )


class Stubs:
    """A stub file's functions.

    Args:
        file: such as `torch/_C/__init__.pyi`; one that is missing has no functions.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, name: str) -> Signature | None:
        """Return what a function of the module takes; None if the file does not have it."""
        found = self._functions.get(name)
        return None if found is None else _parsed(found)

    @cached_property
    def _functions(self) -> dict[str, str]:
        text = self._file.read_text(encoding="utf-8") if self._file.is_file() else ""
        return dict(re.findall(r"^def (\w+)(\([^)]*(?:\)(?! ->)[^)]*)*\)) ->", text, re.M))


def _binds(signature: Signature, count: int, words: set[str]) -> bool:
    try:
        signature.bind(*[None] * count, **dict.fromkeys(words))
    except TypeError:
        return False
    return True


def _plain(parameter: Parameter) -> Parameter:
    """Leave a parameter's type out, and show its default briefly."""
    return parameter.replace(annotation=Parameter.empty)


def _parsed(parameters: str) -> Signature | None:
    """Read `(a, b: int, c: T[U, V] = <X.Y: 1>, *, d=1)`, of Python or pybind11: without types.

    None where it cannot be read.
    """
    text, nested = parameters[1:-1], ""
    while text != nested:
        text, nested = _NESTED.sub("", text), text
    found = []
    after_star = False
    for part in filter(None, map(str.strip, text.split(","))):
        stars = len(part) - len(part.lstrip("*"))
        name = re.split("[:=]", part.lstrip("*"), maxsplit=1)[0].strip()
        kind = (_KEYWORD_ONLY if after_star else _NAMED, _VAR_POSITIONAL, _VAR_KEYWORD)[stars]
        after_star = after_star or stars == 1
        if name and name != "/":
            found.append((name, kind, None if "=" in part else Parameter.empty))
    with suppress(ValueError):
        return Signature([Parameter(name, kind, default=value) for name, kind, value in found])
    return None
