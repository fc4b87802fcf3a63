"""Which answer to a question lets a program go on, as its compiled code tells.

`assert mask.all()` and `if (labels < 0).any(): raise ValueError(...)` ask whether something is
wrong. If a value is not known, the branch that does not raise is taken.
The bytecode says which that is, however the line is written.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FrameType

_MOST_STEPS = 64
"""A message may take some instructions to put together before it is raised."""
_KEEPS = ("TO_BOOL", "NOP", "COPY", "DUP_TOP", "EXTENDED_ARG", "CACHE", "NOT_TAKEN")
_ENDS = ("RETURN", "YIELD", "FOR_ITER", "SEND", "RERAISE", "JUMP_BACKWARD")


def healthy_answer(frame: FrameType) -> bool | None:
    """Return the truth value by which a frame does not raise; None if it may raise by neither.

    Args:
        frame: asks for a truth value by the instruction that it is at.
    """
    return _healthy_answer(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=1024)
def _healthy_answer(code: CodeType, offset: int) -> bool | None:
    instructions = list(dis.get_instructions(code))
    places = {each.offset: at for at, each in enumerate(instructions)}
    at = places.get(offset)
    if at is None:
        return None
    if not (_tests(instructions[at]) or instructions[at].opname in ("TO_BOOL", "UNARY_NOT")):
        at += 1  # a call, which gives the value to the instruction after it
    raises = {answer: _raises(instructions, places, at, answer) for answer in (True, False)}
    return None if raises[True] == raises[False] else raises[False]


def _tests(instruction: dis.Instruction) -> bool:
    return "JUMP" in instruction.opname and instruction.opname.rstrip("_ORP").endswith(
        ("IF_TRUE", "IF_FALSE")
    )


def _raises(
    instructions: Sequence[dis.Instruction], places: dict[int, int], at: int, value: bool
) -> bool:
    """Return whether a frame raises, without another question, where it goes on with a value."""
    is_there = True  # on top of the stack
    was_tested = False
    for _ in range(_MOST_STEPS):
        if at >= len(instructions):
            return False
        instruction = instructions[at]
        name = instruction.opname
        at += 1
        if name == "RAISE_VARARGS":
            return was_tested
        if name.startswith(_ENDS):
            return False
        if _tests(instruction):
            if not is_there:
                return False
            was_tested = True
            is_copied = at > 1 and instructions[at - 2].opname in ("COPY", "DUP_TOP")
            if value is ("IF_TRUE" in name):
                at = places[instruction.argval]
                is_there = is_copied or name.endswith("OR_POP")
            else:
                is_there = False
        elif name == "UNARY_NOT" and is_there:
            value = not value
        elif name.startswith("JUMP"):
            at = places[instruction.argval]
        elif name not in _KEEPS:
            if not was_tested:
                return False  # something else is made of the value
            is_there = False
    return False
