"""Allocations as a table."""

from __future__ import annotations

import pytest
from trace_records import LARGE, training_step

from vramlab.measure import Timeline, allocations_table, timeline_from_snapshots
from vramlab.units import MIB

ACTIVATION = "activations: saved by ReluBackward0"


@pytest.fixture
def step() -> Timeline:
    return timeline_from_snapshots(
        *training_step(),
        marks=[("forward", 0), (None, 2), ("backward", 3)],
        sightings=[
            (0, LARGE, "parameters", "weight"),
            (3, LARGE + 4 * MIB, "activations", "saved by ReluBackward0"),
        ],
    )


def test_every_allocation_has_a_row_in_the_order_of_birth(step: Timeline) -> None:
    table = allocations_table(step)
    assert table.header == ("number", "MiB", "bytes", "what", "allocated in", "freed in")
    assert table.rows == (
        ("1", "4.0000", f"{4 * MIB:,}", "parameters: weight", "before", "-"),
        ("2", "8.0000", f"{8 * MIB:,}", ACTIVATION, "forward", "backward"),
        # freed by the third event, when 'forward' had ended and 'backward' had not begun
        ("3", "3.0000", f"{3 * MIB:,}", "temporaries", "forward", "between stages"),
        ("4", "4.0000", f"{4 * MIB:,}", "temporaries", "backward", "-"),
    )
    assert table.caption == "4 allocations: 19.0000 MiB in all"  # 4 + 8 + 3 + 4


def test_only_what_lives_at_a_position_is_listed(step: Timeline) -> None:
    peak = step.peak()
    table = allocations_table(step, peak.position)
    # Allocations keep their numbers: the third is gone by then.
    assert [row[0] for row in table.rows] == ["1", "2", "4"]
    assert table.caption == (
        f"3 allocations that live after allocator event {peak.position}: 16.0000 MiB in all"
    )
