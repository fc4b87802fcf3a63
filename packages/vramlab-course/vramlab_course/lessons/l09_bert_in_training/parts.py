"""What BERT's forward pass keeps, by formula, summed up for the lesson's pictures and tables."""

from __future__ import annotations

from collections.abc import Mapping

from vramlab.table import Table
from vramlab.units import MIB
from vramlab_course.formulas.bert import (
    DROPPED_SOFTMAX,
    FEED_FORWARD,
    PARTS,
    SOFTMAX,
    SUMS,
    Attention,
    Bert,
)

PAIRS, REST = "pairs of tokens", "everything else"
GROUPS = (PAIRS, FEED_FORWARD, REST)
"""Three groups that can be told apart in a picture: what grows with the square of the length (and
the fused kernel's sum for each row, in its stead), the widest tensors, and the rest."""


def kept_by_group(
    batch: int,
    length: int,
    *,
    train: bool,
    attention: Attention = "eager",
    sizes: Bert | None = None,
) -> dict[str, dict[str, int]]:
    """Return bytes by group for the embeddings, each layer and the pooler; of BERT-base if None."""
    rows: dict[str, dict[str, int]] = {}
    for tensor in (sizes or Bert()).kept(batch, length, train=train, attention=attention):
        is_pairs = tensor.part in (SOFTMAX, DROPPED_SOFTMAX, SUMS)
        group = PAIRS if is_pairs else FEED_FORWARD if tensor.part == FEED_FORWARD else REST
        row = rows.setdefault(tensor.place, dict.fromkeys(GROUPS, 0))
        row[group] += tensor.size_bytes
    return rows


def summed(rows: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Add up the rows of `kept_by_group`."""
    return {group: sum(row[group] for row in rows.values()) for group in GROUPS}


def account(batch: int, length: int, *, train: bool, listed: int, measured: int) -> Table:
    """Compare three ways to count, in bytes: formula, autograd's list and the allocator.

    Args:
        batch, length: of the tokens.
        train: whether dropout is on.
        listed: what `record_saved_tensors` has listed.
        measured: by how much `memory_allocated()` grew.
    """
    kept = Bert().kept(batch, length, train=train)
    sums = {part: sum(t.size_bytes for t in kept if t.part == part) for part in PARTS}
    lines = [(part, size) for part, size in sums.items() if size]
    lines += [("predicted in all", sum(sums.values()))]
    lines += [("listed by autograd", listed), ("growth of memory_allocated()", measured)]
    return Table(
        "What BERT's forward pass keeps",
        ("part", "MiB", "bytes"),
        tuple((name, f"{size / MIB:,.4f}", f"{size:,}") for name, size in lines),
    )
