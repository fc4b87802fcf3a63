"""Every block of a run, as the view that a page shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import Category
from vramlab.report.evidence import history
from vramlab.report.evidence.history import history_view, keep_histories
from vramlab.report.evidence.watch import Watch
from vramlab.units import MIB
from vramlab.viz import TimelineView


def train() -> None:
    """A layer of 4 MiB, 2,048 rows of 1,024 in and out (8 MiB each)."""
    layer = torch.nn.Linear(1024, 1024, bias=False).cuda()
    x = torch.zeros(2048, 1024, device="cuda")
    layer(x).sum().backward()


@pytest.fixture
def watch() -> Iterator[Watch]:
    with VirtualGPU("T4") as gpu, Watch(gpu) as watch:
        keep_histories(watch.devices)
        yield watch


def view(watch: Watch) -> TimelineView:
    return history_view(watch.devices[0], __file__.rpartition("/")[0], "A run")


def test_all_bytes_are_there_at_every_position(watch: Watch) -> None:
    train()
    seen = view(watch)
    allocated_bytes = seen.allocated_bytes()
    assert max(allocated_bytes) == torch.cuda.max_memory_allocated()
    assert allocated_bytes[-1] == torch.cuda.memory_allocated()
    assert seen.reserved_bytes[-1][1] == torch.cuda.memory_reserved()
    assert len(allocated_bytes) == seen.event_count + 1


def test_blocks_tell_their_line_and_what_they_are(watch: Watch) -> None:
    train()
    blocks = view(watch).blocks
    (weight, x, *_) = blocks
    assert (weight.category, weight.size_bytes) == (Category.PARAMETERS, 4 * MIB)
    assert x.category is Category.INPUTS
    assert x.line.startswith("test_history.py:")
    assert x.line.endswith('train: x = torch.zeros(2048, 1024, device="cuda")')
    assert any(block.line.startswith("backward of test_history.py:") for block in blocks)


def test_backward_passes_are_marked(watch: Watch) -> None:
    train()
    train()
    seen = view(watch)
    assert [name for name, _, _ in seen.stages] == ["backward", "backward"]
    born = {block.start for block in seen.blocks if block.line.startswith("backward of")}
    assert all(any(start < event <= end for _, start, end in seen.stages) for event in born)


def test_a_failure_is_marked_where_it_was(watch: Watch) -> None:
    kept = torch.zeros(MIB, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2**40, dtype=torch.uint8, device="cuda")
    del kept
    ((position, asked_bytes),) = view(watch).out_of_memory
    assert (position, asked_bytes) == (1, 2**40)  # after the first allocation, before the free


def test_a_long_run_shows_its_beginning(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_BLOCKS", 3)
    kept = [torch.zeros(MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
    del kept
    seen = view(watch)
    assert len(seen.blocks) == 3
    assert seen.allocated_bytes() == [0, MIB, 2 * MIB, 3 * MIB]  # nothing was freed until then
    assert seen.title == "A run: the first 3 allocations (--steps makes runs shorter)"


def test_nothing_is_kept_that_nobody_asks_for() -> None:
    with VirtualGPU("T4") as gpu, Watch(gpu) as watch:
        torch.zeros(MIB, device="cuda")
        assert watch.devices[0].history is None
