"""What stands for a number that nobody knows passes for finite, as it would be in a healthy run.

`loss.item()` answers nan where reads are answered. Many programs stop there at once: `if not
math.isfinite(loss.item()): sys.exit(1)`. So that they go on, the functions of `math` know the one
nan that stands for the unknown from every other nan, by identity.

They are `math`'s own for the whole process wherever no such nan is given to programs: where reads
are errors, where values are computed, and while no GPU is attached. PyTorch's optimizers, which are
given one even where reads are errors, ask `math` for nothing. What is imported by name (`from math
import isfinite`) while another GPU or none is attached stays as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from vramlab.gpu.core.session import Session
from vramlab.gpu.ops.values import AnswerNan

UNKNOWN_VALUE = float("nan")
"""The nan that stands for a number that nobody knows. Arithmetic with it gives ordinary ones."""


def install(session: Session) -> None:
    """Replace `math`'s questions about floats where programs are given nan."""
    if session.has_values or not isinstance(session.values, AnswerNan):
        return
    patches = session.patches
    patches.set(math, "isfinite", _answering(True, math.isfinite))
    patches.set(math, "isnan", _answering(False, math.isnan))
    patches.set(math, "isinf", _answering(False, math.isinf))


def _answering(healthy: bool, ask: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(ask)
    def answer(x: Any, /) -> bool:
        return healthy if x is UNKNOWN_VALUE else ask(x)

    return answer
