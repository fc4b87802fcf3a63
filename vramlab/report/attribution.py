"""Categories of the blocks of a moment: by who was seen in them, else by when they were born.

In this order:
1. A tensor was seen in it: parameters, buffers, gradients, optimizer states (`owners.py`).
2. Its allocation told: a library's workspace, data from the host or from a factory (`origins.py`).
3. Born in the backward pass: activations if autograd recorded the op (a checkpoint recomputes
   them), else temporaries; the gradients of activations are among those.
4. Born before a backward pass and alive when it began: activations.
5. No backward pass has begun since, or memory ran out before it did: activations if autograd
   recorded the op and the block lived to the end of that, else temporaries. (Until the backward
   pass begins nobody can tell what it will need.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from vramlab.measure import Category
from vramlab.report.peak import LiveBlock


@dataclass(frozen=True, slots=True)
class ForwardEnd:
    """A moment at which a forward pass was over."""

    moment: int
    """When, by the clock of the run."""
    is_backward: bool
    """Whether a backward pass began; else memory ran out."""


def category_of(block: LiveBlock, turns: Sequence[ForwardEnd]) -> Category:
    """Say what one block is.

    Args:
        block: seen during the run.
        turns: the moments at which forward passes were over, in order.
    """
    if block.owner is not None:
        return block.owner
    needed = block.origin.recorded
    index = bisect_right(turns, block.born, key=lambda turn: turn.moment)
    if not block.origin.in_backward and index < len(turns):
        turn = turns[index]
        alive = block.freed is None or block.freed > turn.moment
        needed = alive and (turn.is_backward or needed)
    return Category.ACTIVATIONS if needed else Category.TEMPORARIES
