"""What the blocks of a moment are: by who was seen in them, else by when they were born.

In this order:
1. A tensor was seen in it: parameters, buffers, gradients, optimizer states (`owners.py`).
2. Its allocation told: a library's workspace, data from the host or from a factory (`origins.py`).
3. Born in the backward pass: activations if autograd recorded the op (a checkpoint recomputes
   them), else temporaries; the gradients of activations are among those.
4. Born before a backward pass and alive when it began: activations.
5. No backward pass has begun since: activations if autograd recorded the op, else temporaries.
   (Until the backward pass begins nobody can tell what it will need; memory often runs out before.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from vramlab.measure import Category
from vramlab.report.peak import LiveBlock


def category_of(block: LiveBlock, backward_starts: Sequence[int]) -> Category:
    """Say what one block is.

    Args:
        block: seen during the run.
        backward_starts: the moments at which backward passes began, in order.
    """
    if block.owner is not None:
        return block.owner
    index = bisect_right(backward_starts, block.born)
    if block.origin.in_backward or index == len(backward_starts):
        needed = block.origin.recorded
    else:
        needed = block.freed is None or block.freed > backward_starts[index]
    return Category.ACTIVATIONS if needed else Category.TEMPORARIES
