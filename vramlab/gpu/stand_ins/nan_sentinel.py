"""The nan that replaces an unknown number passes for finite, as in a healthy run.

`loss.item()` answers nan where reads are answered. Many programs stop there at once: `if not
math.isfinite(loss.item()): sys.exit(1)`. So that they go on, the functions of `math` and `numpy`
know this nan, and those that are computed with it, from every other one by their type
(`UnknownNumber`); `float(loss)`, which has to be a float, by identity.

They are `math`'s own for the whole process wherever no such nan is given to programs: where reads
are errors, where values are computed, and while no GPU is attached. PyTorch's optimizers, which are
given one even where reads are errors, ask `math` for nothing. What is imported by name (`from math
import isfinite`) while another GPU or none is attached stays as it is.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session
from vramlab.gpu.ops.values import HEALTHY, AnswerNan, UnknownNumber

UNKNOWN_VALUE = float("nan")
"""The nan that `float(tensor)` gives."""


def install(session: Session) -> None:
    """Replace questions about floats where programs are given nan."""
    if not session.has_values and isinstance(session.values, AnswerNan):
        pass_for_finite(session.patches)


def pass_for_finite(patches: Patches) -> None:
    """Replace `math`'s and NumPy's questions about floats."""
    for name, healthy in HEALTHY.items():
        patches.set(math, name, _answering(healthy, getattr(math, name)))
        if (numpy := sys.modules.get("numpy")) is not None:
            patches.set(numpy, name, _Ufunc(healthy, getattr(numpy, name)))


def _is_unknown(x: object) -> bool:
    return x is UNKNOWN_VALUE or type(x) is UnknownNumber


def _answering(healthy: bool, ask: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(ask)
    def answer(x: Any, /) -> bool:
        return healthy if _is_unknown(x) else ask(x)

    return answer


class _Ufunc:
    """A function of NumPy's, with all its attributes."""

    def __init__(self, healthy: bool, ask: Any) -> None:
        self._healthy = healthy
        self._ask = ask

    def __call__(self, x: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._healthy if _is_unknown(x) else self._ask(x, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ask, name)

    def __repr__(self) -> str:
        return repr(self._ask)
