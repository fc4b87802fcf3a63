"""What the blocks of a timeline are to the program: parameters, gradients, activations...

A block is named in one of three ways, and every attribution says which:

    address     A tensor was seen at the block's address while the block lived: one that is watched,
                or one that autograd has saved for its backward pass. Certain: it holds for the
                block's whole life, also before the tensor was seen.
    size        Nothing was seen there, it was never freed, and it is as large as a cuBLAS
                workspace. At most one is expected per stream and thread: the first that is born
                outside of backward passes, and the first inside of them, where autograd's own
                thread runs. An unwatched tensor of exactly that size which is never freed would be
                mistaken for one.
    rest        Neither. It was there before the recording began (other), or it is a temporary: so
                are outputs that backward does not need, and the gradients of activations.

Copies of parameters that autograd saves (casts to 16 bits, layers that visit the GPU) are
activations: backward alone needs them.

No stage's name plays a part. Knows nothing of torch.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vramlab.categories import Category
from vramlab.measure.timeline import Timeline, TimelineMoment
from vramlab.table import ShownAsTable, Table
from vramlab.units import MIB, format_mib

WORKSPACE_BYTES = (8_519_680, 32 * MIB)
"""Sizes of cuBLAS workspaces: ':4096:2:16:8' (2 x 4096 KiB + 8 x 16 KiB), and ':4096:8' from
compute capability 9.0 on. Source: parseChosenWorkspaceSize in
aten/src/ATen/cuda/CublasHandlePool.cpp, PyTorch 2.13. CUBLAS_WORKSPACE_CONFIG can ask for others:
pass those to `attribute`."""

Evidence = Literal["address", "size", "rest"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """What one block is, and how that is known."""

    category: Category
    evidence: Evidence
    label: str = ""
    """Name of the tensor that was seen there; the first if there were several."""


def attribute(
    timeline: Timeline, workspace_bytes: tuple[int, ...] = WORKSPACE_BYTES
) -> tuple[Attribution, ...]:
    """Say of each block of a timeline what it is.

    Args:
        timeline: with its sightings and stages.
        workspace_bytes: sizes that a cuBLAS workspace may have, in requested bytes.

    Returns:
        One attribution per entry of `timeline.blocks`, in the same order.
    """
    named = _by_address(timeline)
    workspaces = _workspaces(timeline, named, workspace_bytes)
    attributions = []
    for number, block in enumerate(timeline.blocks):
        if number in named:
            attributions.append(named[number])
        elif number in workspaces:
            attributions.append(Attribution(Category.WORKSPACES, "size"))
        else:
            category = Category.OTHER if block.born < 0 else Category.TEMPORARIES
            attributions.append(Attribution(category, "rest"))
    return tuple(attributions)


@dataclass(frozen=True)
class Breakdown(ShownAsTable):
    """Where the bytes are at one moment: allocated bytes by category, and the cache."""

    moment: TimelineMoment
    category_bytes: Mapping[Category, int]
    """Allocated bytes of each category that has any, rounding included; they add up to
    `moment.allocated_bytes`."""

    def table(self) -> Table:
        """Show one row per category, the cache, and the reserved bytes they add up to."""
        moment = self.moment
        rows = [
            *((str(name), size_bytes) for name, size_bytes in self.category_bytes.items()),
            ("allocated in all", moment.allocated_bytes),
            ("cached: reserved, not allocated", moment.cached_bytes),
            ("reserved in all", moment.reserved_bytes),
        ]
        where = f" in stage '{moment.stage}'" if moment.stage else ""
        return Table(
            caption=f"Where the bytes are after allocator event {moment.position}{where}",
            header=("bytes of", "size"),
            rows=tuple((name, format_mib(size_bytes)) for name, size_bytes in rows),
            notes=(
                f"Allocated: {moment.requested_bytes:,} B asked for + {moment.rounding_bytes:,} B "
                f"rounding + {moment.remainder_bytes:,} B remainders that were not split off.",
            ),
        )


def breakdown(
    timeline: Timeline,
    position: int | None = None,
    workspace_bytes: tuple[int, ...] = WORKSPACE_BYTES,
) -> Breakdown:
    """Add up the bytes that live at a position by category.

    Args:
        timeline: with its sightings and stages.
        position: 0 to `timeline.event_count`; the peak if None.
        workspace_bytes: sizes that a cuBLAS workspace may have, in requested bytes.
    """
    moment = timeline.peak() if position is None else timeline.at(position)
    sums: dict[Category, int] = defaultdict(int)
    attributions = attribute(timeline, workspace_bytes)
    for block, attribution in zip(timeline.blocks, attributions, strict=True):
        if block.lives_at(moment.position):
            sums[attribution.category] += block.size_bytes
    return Breakdown(moment, {name: sums[name] for name in Category if name in sums})


def category_curves(
    timeline: Timeline, workspace_bytes: tuple[int, ...] = WORKSPACE_BYTES
) -> dict[Category, list[int]]:
    """Follow each category's allocated bytes over all positions; those without are left out."""
    changes: dict[Category, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    attributions = attribute(timeline, workspace_bytes)
    for block, attribution in zip(timeline.blocks, attributions, strict=True):
        changes[attribution.category][block.born + 1] += block.size_bytes
        if block.freed is not None:
            changes[attribution.category][block.freed + 1] -= block.size_bytes
    curves = {}
    for category in Category:
        if category in changes:
            curve, live_bytes = [], 0
            for position in range(timeline.event_count + 1):
                live_bytes += changes[category].get(position, 0)
                curve.append(live_bytes)
            curves[category] = curve
    return curves


def _by_address(timeline: Timeline) -> dict[int, Attribution]:
    """Blocks that a tensor was seen in, by number. The first category in `_PRECEDENCE` counts."""
    lives: dict[int, list[int]] = defaultdict(list)  # address -> blocks there, by birth
    for number, block in enumerate(timeline.blocks):
        lives[block.address].append(number)
    named: dict[int, Attribution] = {}
    for sighting in timeline.sightings:
        numbers = lives.get(sighting.address, [])
        births = [timeline.blocks[number].born for number in numbers]
        index = bisect.bisect_left(births, sighting.position) - 1
        if index < 0 or not timeline.blocks[numbers[index]].lives_at(sighting.position):
            continue
        found = Attribution(Category(sighting.category), "address", sighting.label)
        known = named.setdefault(numbers[index], found)
        if _PRECEDENCE.index(found.category) < _PRECEDENCE.index(known.category):
            named[numbers[index]] = found
    return named


_PRECEDENCE = (
    Category.PARAMETERS,
    Category.BUFFERS,
    Category.OPTIMIZER_STATES,
    Category.GRADIENTS,
    Category.INPUTS,
    Category.ACTIVATIONS,
)
"""Which category a block has in which tensors of several are seen."""


def _workspaces(
    timeline: Timeline, named: Mapping[int, Attribution], workspace_bytes: tuple[int, ...]
) -> set[int]:
    """Numbers of the blocks that are taken for cuBLAS workspaces."""
    first: dict[tuple[int, bool], int] = {}
    for number, block in enumerate(timeline.blocks):
        if number in named or block.freed is not None:
            continue
        if block.requested_bytes in workspace_bytes:
            in_backward = timeline.in_backward(block.born + 1)
            if block.born < 0 and (block.stream, False) in first:
                in_backward = True  # of an earlier step
            first.setdefault((block.stream, in_backward), number)
    return set(first.values())


def blocks_by_category(timeline: Timeline, position: int) -> dict[str, int]:
    """Sum the bytes at a position of a training step by category, without unsplit remainders.

    Blocks without an owner that were allocated before the recording are cuBLAS's or cuBLASLt's.
    """
    sums: dict[str, int] = {}
    for block, found in zip(timeline.blocks, attribute(timeline), strict=True):
        if block.lives_at(position):
            is_workspace = found.category is Category.OTHER
            name = str(Category.WORKSPACES if is_workspace else found.category)
            sums[name] = sums.get(name, 0) + block.rounded_bytes
    return sums
