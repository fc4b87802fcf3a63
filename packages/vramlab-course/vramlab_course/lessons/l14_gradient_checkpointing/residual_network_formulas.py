"""A residual network of any depth for ImageNet: activations, and where to cut it into segments.

Source: the network of the authors of arXiv 1604.06174, github.com/dmlc/mxnet-memonger,
example_resnet.py: convolution, batch norm and ReLU in this order; blocks of 1 x 1, 3 x 3 and 1 x 1
convolutions, the last four times as wide; their planner (memonger.py) cuts between blocks whenever
a budget is used up, and looks for the best budget.

Letters of shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes

CLASSES, COLORS, SIDE = 1000, 3, 224
"""Images are (B, 3, 224, 224)."""

BASE, EXPANSION = 64, 4
"""Width of the first stage's inner convolutions, and how much wider its blocks' results are."""


@dataclass(frozen=True)
class NetworkPart:
    """A part of the network between two cuts: the stem, a block, or the head."""

    inner_bytes: int
    """What it keeps for the backward pass, besides its input and its result."""
    result_bytes: int
    """What it hands on."""


def scaled_stages(blocks: int, like: Sequence[int] = (3, 24, 36, 3)) -> tuple[int, ...]:
    """Return `blocks` divided among stages, in the proportions of the authors' example."""
    total = sum(like)
    stages = [blocks * count // total for count in like]
    # What rounding down has left over goes where most was cut off.
    by_rest = sorted(range(len(like)), key=lambda i: blocks * like[i] % total, reverse=True)
    for stage in by_rest[: blocks - sum(stages)]:
        stages[stage] += 1
    return tuple(stages)


def parts(stages: Sequence[int], batch: int) -> list[NetworkPart]:
    """Return stem, blocks and head, in order."""
    side = SIDE // 4
    pooled_bytes = _maps_bytes(batch, BASE, side)
    # Pooling keeps the place of each maximum, an int64.
    places_bytes = block_bytes(tensor_bytes((batch, BASE, side, side), "int64"))
    found = [NetworkPart(_unit_bytes(batch, BASE, SIDE // 2) + places_bytes, pooled_bytes)]
    for stage, count in enumerate(stages):
        width = BASE * 2**stage
        for block in range(count):
            first = block == 0
            before = side
            if first and stage:
                side //= 2
            inner_bytes = (
                _unit_bytes(batch, width, before)
                + _unit_bytes(batch, width, side)
                + _unit_bytes(batch, EXPANSION * width, side)
            )
            if first:  # a convolution beside the block makes the input as wide as its result
                inner_bytes += _unit_bytes(batch, EXPANSION * width, side)
            found.append(NetworkPart(inner_bytes, _maps_bytes(batch, EXPANSION * width, side)))
    features_bytes = block_bytes(tensor_bytes((batch, EXPANSION * BASE * 2 ** (len(stages) - 1))))
    return [*found, NetworkPart(features_bytes, block_bytes(tensor_bytes((batch, CLASSES))))]


def forward_bytes(pieces: Sequence[NetworkPart], cuts: Sequence[int] = ()) -> int:
    """Return allocated memory after the forward pass.

    Args:
        pieces: the network's parts.
        cuts: before which parts a new segment begins. The last segment is kept whole; of the others
            only their results.
    """
    last = cuts[-1] if cuts else 0
    between_bytes = sum(pieces[cut - 1].result_bytes for cut in cuts)
    kept_bytes = sum(part.inner_bytes + part.result_bytes for part in pieces[last:])
    # The head averages, and an average keeps nothing of what the last block hands on.
    return between_bytes + kept_bytes - pieces[-2].result_bytes


def cuts_by_budget(pieces: Sequence[NetworkPart], budget_bytes: int) -> list[int]:
    """Return cuts before each part at which parts since the last cut save more than the budget."""
    cuts = []
    since_bytes = 0
    for number, part in enumerate(pieces[:-1]):
        since_bytes += part.inner_bytes + part.result_bytes
        if since_bytes > budget_bytes:
            cuts.append(number + 1)
            since_bytes = 0
    return cuts


def best_cuts(pieces: Sequence[NetworkPart]) -> list[int]:
    """Return the cuts with the smallest sum of segment results and largest segment."""
    whole_bytes = forward_bytes(pieces)
    plans = [cuts_by_budget(pieces, whole_bytes // share) for share in range(2, 200)]
    return min(plans, key=lambda cuts: planned_bytes(pieces, cuts))


def planned_bytes(pieces: Sequence[NetworkPart], cuts: Sequence[int]) -> int:
    """Return the peak of segment results and one recomputed segment."""
    most_bytes = results_bytes = 0
    ends = [*cuts, len(pieces)]
    for begin, end in zip([0, *cuts], ends, strict=True):
        own_bytes = sum(part.inner_bytes + part.result_bytes for part in pieces[begin:end])
        most_bytes = max(most_bytes, results_bytes + own_bytes)
        results_bytes += pieces[end - 1].result_bytes
    return most_bytes


def _maps_bytes(batch: int, channels: int, side: int) -> int:
    return block_bytes(tensor_bytes((batch, channels, side, side)))


def _unit_bytes(batch: int, channels: int, side: int) -> int:
    """Convolution, batch norm, ReLU in place: two maps, and a mean and a deviation per channel."""
    return 2 * _maps_bytes(batch, channels, side) + 2 * block_bytes(tensor_bytes((channels,)))
