"""What blocks are, told from addresses and sizes."""

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
    (3, LARGE + 4 * MIB, "activations", "saved by ReluBackward0"),
    (5, LARGE + 12 * MIB, "gradients", "weight.grad"),
]


@pytest.fixture
def step() -> Timeline:
    return timeline_from_snapshots(*training_step(), marks=MARKS, sightings=SIGHTINGS)


def test_addresses_name_blocks_and_the_rest_are_temporaries(step: Timeline) -> None:
    assert attribute(step) == (
        Attribution(Category.PARAMETERS, "address", "weight"),
        # seen when backward began, but an activation since it was allocated
        Attribution(Category.ACTIVATIONS, "address", "saved by ReluBackward0"),
        Attribution(Category.TEMPORARIES, "rest"),  # born and freed in forward
        # the temporary that lay at the same address before it is not a gradient
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


def test_what_was_there_and_belongs_to_nobody_is_other() -> None:
    timeline = timeline_from_snapshots(*training_step())
    assert [attribution.category for attribution in attribute(timeline)] == [
        Category.OTHER,  # existed before, and has no known category
        Category.TEMPORARIES,
        Category.TEMPORARIES,
        Category.TEMPORARIES,
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
        backward_passes=[(3, 5)],
    )
    assert attribute(timeline) == (
        Attribution(Category.WORKSPACES, "size"),  # of the forward pass
        Attribution(Category.TEMPORARIES, "rest"),  # freed later: no workspace
        Attribution(Category.TEMPORARIES, "rest"),  # one workspace a thread is enough
        Attribution(Category.WORKSPACES, "size"),  # of the backward pass
    )
    assert attribute(timeline, workspace_bytes=())[0].category is Category.TEMPORARIES


def test_workspaces_of_earlier_steps_are_one_of_each_thread() -> None:
    size = 8_519_680
    there = segment(LARGE, *(live(size) for _ in range(3)))
    timeline = timeline_from_snapshots(*snapshots([there], []))
    assert [found.category for found in attribute(timeline)] == [
        Category.WORKSPACES,
        Category.WORKSPACES,
        Category.OTHER,
    ]


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
