"""Categories of the blocks of a moment: who was seen in them.

In this order:
1. A tensor was seen in it: parameters, buffers, gradients, optimizer states (`owners.py`), or one
   that autograd has saved for its backward pass: activations (`vramlab.measure.graph`).
2. Its allocation told: a library's workspace, data from the host or from a factory (`origins.py`).
3. The rest are temporaries: also outputs that backward does not need, and gradients of activations.
"""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.report.evidence.peak import LiveBlock


def category_of(block: LiveBlock) -> Category:
    """Return what one block is, as far as the run has told until now."""
    return block.owner or Category.TEMPORARIES
