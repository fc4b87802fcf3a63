"""What an interactive timeline shows: every block, and every byte at every position."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import Category, Timeline, record_timeline
from vramlab.units import MIB
from vramlab.viz import timeline_view
from vramlab.viz.recorded import view_of


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """A layer of 4 MiB, 2,048 rows of 1,024 in and out: 8 MiB each; then 64 GiB, in vain."""
    with VirtualGPU("T4"):
        layer = torch.nn.Linear(1024, 1024, bias=False).cuda()
        with record_timeline() as recording:
            recording.stage("forward")
            x = torch.zeros(2048, 1024, device="cuda")
            recording.watch(model=layer, inputs={"x": x})
            y = layer(x)
            del y
            recording.stage(None)
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(64 * 1024 * MIB, dtype=torch.uint8, device="cuda")
        return recording.timeline


def curves(data: dict[str, Any]) -> list[int]:
    """Add up what the script of a page is given, as it does."""
    changes = [0] * (data["events"] + 2)
    for _, _, _, size_bytes, start, end in data["blocks"]:
        changes[start] += size_bytes
        changes[end] -= size_bytes
    for position, more_bytes in (change for sums in data["rest"] for change in sums):
        changes[position] += more_bytes
    return list(accumulate(changes))[:-1]


def test_all_bytes_are_there_at_every_position(timeline: Timeline) -> None:
    view = view_of(timeline)
    assert view.allocated_bytes() == list(timeline.allocated_bytes)
    assert curves(view.to_dict()) == list(timeline.allocated_bytes)


def test_a_block_tells_its_tensor_its_line_and_its_life(timeline: Timeline) -> None:
    blocks = view_of(timeline).blocks
    weight, x = blocks[0], blocks[1]
    (y,) = (block for block in blocks if block.size_bytes == 8 * MIB and block is not x)
    assert (weight.category, weight.name, weight.start) == (Category.PARAMETERS, "weight", 0)
    assert (x.category, x.name, x.size_bytes) == (Category.INPUTS, "input.x", 8 * MIB)
    assert x.line.endswith('x = torch.zeros(2048, 1024, device="cuda")')
    assert x.line.startswith("test_timeline_view.py:")
    assert x.end == timeline.event_count + 1  # it outlives the recording
    assert y.end <= timeline.event_count


def test_stages_reserved_bytes_and_failures_are_told(timeline: Timeline) -> None:
    data = view_of(timeline, "A title").to_dict()
    assert data["title"] == "A title"
    assert [name for name, _, _ in data["stages"]] == ["forward"]
    assert sum(more for _, more in data["reserved"]) == timeline.reserved_bytes[-1]
    (failure,) = timeline.out_of_memory
    assert data["out_of_memory"] == ((failure.position, failure.requested_bytes),)
    json.dumps(data)


def test_the_largest_blocks_are_listed_and_the_others_added_up(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_view, "MOST_BLOCKS", 2)
    data = view_of(timeline).to_dict()
    sizes = sorted((block.size_bytes for block in timeline.blocks), reverse=True)
    assert len(sizes) > 2
    assert sorted((block[3] for block in data["blocks"]), reverse=True) == sizes[:2]
    assert curves(data) == list(timeline.allocated_bytes)
