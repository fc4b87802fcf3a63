"""What `@pytest.mark.vram(...)` asks for. Knows nothing of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vramlab.errors import VramlabError
from vramlab.units import format_bytes, parse_bytes

_COMPARISONS = {
    "<=": int.__le__,
    "<": int.__lt__,
    ">=": int.__ge__,
    ">": int.__gt__,
    "==": int.__eq__,
}

_OF_GPU = ("gpu", "count", "values", "torch_version", "alloc_conf")
_LIMITS = ("peak", "reserved", "needed")


class UnusableMark(VramlabError):
    """A mark says what cannot be; the message says how it is written."""


@dataclass(frozen=True)
class Limit:
    """A bound on one figure of a GPU."""

    what: str
    """`peak`: allocated bytes at most; `reserved`: by PyTorch, at most; `needed`: reserved, and the
    CUDA context."""
    comparison: str
    """One of <=, <, >=, >, ==."""
    size_bytes: int
    """The bound."""

    @classmethod
    def parse(cls, what: str, text: str) -> Limit:
        """Read a bound such as `<= 12 GiB`; without a comparison it is the most.

        Raises:
            UnusableMark: it is none.
        """
        found = re.fullmatch(r"\s*(<=|>=|==|<|>)?(.*)", str(text))
        assert found is not None
        try:
            return cls(what, found[1] or "<=", parse_bytes(found[2]))
        except ValueError as error:
            raise UnusableMark(f"{what}={text!r}: {error}; such as '<= 12 GiB'") from error

    def holds(self, size_bytes: int) -> bool:
        """Return whether a figure is within the bound."""
        return _COMPARISONS[self.comparison](size_bytes, self.size_bytes)

    def __str__(self) -> str:
        return f"{self.what} {self.comparison} {format_bytes(self.size_bytes)}"


@dataclass(frozen=True)
class Request:
    """What a mark asks for."""

    gpu: Mapping[str, Any]
    """Options of `VirtualGPU`."""
    limits: tuple[Limit, ...]
    """Bounds, for every GPU; empty: the golden file says what is needed."""

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
        """Read a mark's arguments.

        Raises:
            UnusableMark: there are others than it takes.
        """
        unknown = [*map(repr, args), *(name for name in kwargs if name not in _OF_GPU + _LIMITS)]
        if unknown:
            known = ", ".join(_OF_GPU + _LIMITS)
            raise UnusableMark(f"pytest.mark.vram has no argument {unknown[0]}: use {known}")
        limits = tuple(Limit.parse(what, kwargs[what]) for what in _LIMITS if what in kwargs)
        gpu = {name: kwargs[name] for name in _OF_GPU if name in kwargs}
        return cls({"name": gpu.pop("gpu", "A100-40GB"), **gpu}, limits)
