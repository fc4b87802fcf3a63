"""What blocks are, told from addresses, lifetimes and sizes."""

from __future__ import annotations

import pytest
from trace_records import LARGE, alloc, block, free, live, segment, snapshots, training_step

from vramlab.measure import (
    Attribution,
    Category,
    Timeline,
    attribute,
    breakdown,
    category_curves,
    timeline_from_snapshots,
)
from vramlab.units import MIB

MARKS = [("forward", 0), ("backward", 3)]
SIGHTINGS = [
    (0, LARGE, "parameters", "weight"),
    (5, LARGE + 12 * MIB, "gradients", "weight.grad"),
]


@pytest.fixture
def step() -> Timeline:
    return timeline_from_snapshots(*training_step(), marks=MARKS, sightings=SIGHTINGS)


def test_addresses_name_blocks_and_lifetimes_the_others(step: Timeline) -> None:
    assert attribute(step) == (
        Attribution(Category.PARAMETERS, "address", "weight"),
        Attribution(Category.ACTIVATIONS, "lifetime"),  # born in forward, freed in backward
        Attribution(Category.TEMPORARIES, "lifetime"),  # born and freed in forward
        # seen at the end, but a gradient since it was allocated; the temporary that lay at the
        # same address before it is not one
        Attribution(Category.GRADIENTS, "address", "weight.grad"),
    )


def test_breakdown_adds_up_to_what_is_allocated(step: Timeline) -> None:
    at_peak = breakdown(step)
    assert at_peak.category_bytes == {
        Category.PARAMETERS: 4 * MIB,
        Category.GRADIENTS: 4 * MIB,
        Category.ACTIVATIONS: 8 * MIB,
    }
    assert sum(at_peak.category_bytes.values()) == at_peak.moment.allocated_bytes == 16 * MIB
    assert breakdown(step, position=2).category_bytes == {
        Category.PARAMETERS: 4 * MIB,
        Category.ACTIVATIONS: 8 * MIB,
        Category.TEMPORARIES: 3 * MIB,
    }


def test_breakdown_table_reaches_the_reserved_bytes(step: Timeline) -> None:
    table = breakdown(step).table()
    assert table.caption == "Where the bytes are after allocator event 5 in stage 'backward'"
    assert [row[0] for row in table.rows] == [
        "parameters",
        "gradients",
        "activations",
        "allocated in all",
        "cached: reserved, not allocated",
        "reserved in all",
    ]
    assert table.rows[-2][1] == "4.0000 MiB\n4,194,304 B"
    assert table.notes == (
        "Allocated: 16,777,216 B asked for + 0 B rounding + 0 B remainders that were not split "
        "off.",
    )


def test_curves_add_up_to_the_allocated_bytes_everywhere(step: Timeline) -> None:
    curves = category_curves(step)
    assert [size_bytes // MIB for size_bytes in curves[Category.ACTIVATIONS]] == [
        0, 8, 8, 8, 8, 8, 0, 0,
    ]  # fmt: skip
    assert tuple(sum(at) for at in zip(*curves.values(), strict=True)) == step.allocated_bytes


def test_without_a_backward_stage_nothing_is_called_an_activation() -> None:
    timeline = timeline_from_snapshots(*training_step())
    assert [attribution.category for attribution in attribute(timeline)] == [
        Category.OTHER,  # was there before, and nobody said what it is
        Category.TEMPORARIES,
        Category.TEMPORARIES,
        Category.TEMPORARIES,
    ]


def test_each_step_has_activations_of_its_own() -> None:
    timeline = timeline_from_snapshots(
        *snapshots(
            [segment(LARGE, block(20 * MIB))],
            [
                alloc(LARGE, 2 * MIB),
                *free(LARGE),
                alloc(LARGE, 4 * MIB),
                alloc(LARGE + 4 * MIB, 6 * MIB),
                *free(LARGE),
            ],
        ),
        marks=[("forward", 0), ("backward", 1), ("forward", 2), ("backward", 3)],
    )
    assert [attribution.category for attribution in attribute(timeline)] == [
        Category.ACTIVATIONS,
        Category.ACTIVATIONS,
        Category.TEMPORARIES,  # born in the second backward pass
    ]


def test_a_workspace_is_told_by_its_size_and_is_never_freed() -> None:
    size = 8_519_680
    second = LARGE + size
    timeline = timeline_from_snapshots(
        *snapshots(
            [segment(LARGE, block(40 * MIB))],
            [
                alloc(LARGE, size),
                alloc(second, size),
                alloc(second + size, size),
                *free(second),
                alloc(second, size),
            ],
        ),
        marks=[("forward", 0), ("backward", 3)],
    )
    assert attribute(timeline) == (
        Attribution(Category.WORKSPACES, "size"),  # of the forward pass
        Attribution(Category.ACTIVATIONS, "lifetime"),  # freed later: no workspace
        Attribution(Category.ACTIVATIONS, "lifetime"),  # one workspace a thread is enough
        Attribution(Category.WORKSPACES, "size"),  # of the backward pass
    )
    assert attribute(timeline, workspace_bytes=())[0].category is Category.ACTIVATIONS


def test_a_block_with_several_tensors_takes_the_most_lasting_category() -> None:
    timeline = timeline_from_snapshots(
        *snapshots([segment(LARGE, live(2 * MIB))], []),
        sightings=[
            (0, LARGE, "gradients", "a.grad"),
            (0, LARGE, "parameters", "a"),
            (0, LARGE, "inputs", "input"),
        ],
    )
    assert attribute(timeline) == (Attribution(Category.PARAMETERS, "address", "a"),)


def test_a_sighting_where_nothing_lives_names_nothing() -> None:
    timeline = timeline_from_snapshots(
        *training_step(), sightings=[(5, LARGE + 4 * MIB, "inputs", "input")]
    )
    # five counted events: the block at that address has just been freed
    assert attribute(timeline)[1].category is Category.TEMPORARIES


def test_what_a_last_forward_pass_leaves_behind_is_an_activation() -> None:
    timeline = timeline_from_snapshots(
        *snapshots(
            [segment(LARGE, block(20 * MIB))],
            [alloc(LARGE, 2 * MIB), alloc(LARGE + 2 * MIB, 4 * MIB), *free(LARGE)],
        ),
        marks=[("forward", 0)],
    )
    assert [attribution.category for attribution in attribute(timeline)] == [
        Category.TEMPORARIES,
        Category.ACTIVATIONS,
    ]
