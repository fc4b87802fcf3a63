"""What a run's report finds in PyTorch's memory history is what it sees as it happens.

A virtual GPU keeps a history as PyTorch does, and can be watched in both ways at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import vramlab
from vramlab.measure import Category, graph
from vramlab.report.evidence import history_watch, owners
from vramlab.report.evidence.attribution import category_of
from vramlab.report.evidence.history_watch import HistoryWatch
from vramlab.report.evidence.watch import Watch
from vramlab.units import MIB


def train(steps: int = 3) -> nn.Module:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(64, 256).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def run_out() -> None:
    kept = []
    while True:
        kept.append(torch.zeros(1024 * MIB, dtype=torch.uint8, device="cuda"))


Watches = tuple[Watch, HistoryWatch]


def watched(program: Callable[[], object], keep: bool = False) -> Watches:
    gpu = vramlab.VirtualGPU("T4")
    with Watch(gpu) as seen, gpu, HistoryWatch(1, keep) as read:
        try:
            program()
        except torch.OutOfMemoryError as error:
            error.__traceback__ = None
    return seen, read


def sizes_of(watch: Watch | HistoryWatch) -> tuple[int, int, Counter[int]]:
    peak = watch.devices[0].peak()
    blocks = Counter(block.size_bytes for block in peak.blocks)
    return peak.allocated_bytes, watch.devices[0].peak_reserved_bytes, blocks


def bytes_of(watch: Watch | HistoryWatch, category: Category) -> int:
    blocks = watch.devices[0].peak().blocks
    return sum(b.size_bytes for b in blocks if category_of(b) == category)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("unread", [1, 10**9])
def test_peaks_and_blocks_are_the_same(
    keep: bool, unread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the history is read, and whether it is cleared then or not."""
    monkeypatch.setattr(history_watch, "_MOST_UNREAD", unread)
    seen, read = watched(train, keep)
    assert sizes_of(read) == sizes_of(seen)


def train_larger(sizes: Sequence[int], resets: bool = False) -> nn.Module:
    """Train on batches of some sizes; where the program resets the peaks, after each."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for size in sizes:
        loss = model(torch.randn(size, 256).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if resets:
            torch.cuda.reset_peak_memory_stats()
    return model


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [[64] * 15, [64] * 15 + [4096], [64] * 15 + [4096, 64], [64, 4096, *[64] * 12, 4096, 8192]],
)
def test_what_has_no_new_peak_is_dropped(
    sizes: list[int], resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks, blocks and their categories are those of watches that have followed all of it."""
    monkeypatch.setattr(history_watch, "place_of_storage", owners.place_on_virtual_gpu)
    with monkeypatch.context() as looking:
        looking.setattr(HistoryWatch, "_looks", lambda watch: True)
        _, whole = watched(lambda: train_larger(sizes, resets))
    monkeypatch.setattr(history_watch, "_MOST_SKIPPED", 100)
    dropped = []
    skip = HistoryWatch._skip
    monkeypatch.setattr(HistoryWatch, "_skip", lambda watch: (dropped.append(1), skip(watch)))
    seen, read = watched(lambda: train_larger(sizes, resets))
    assert dropped
    assert sizes_of(read) == sizes_of(seen)
    for category in Category:
        assert bytes_of(read, category) == bytes_of(whole, category), category


def test_owners_are_not_looked_for_while_passes_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    saved_in = graph.saved_in
    monkeypatch.setattr(graph, "saved_in", lambda roots: (looks.append(1), saved_in(roots))[1])
    with vramlab.VirtualGPU("T4"), HistoryWatch(1):
        train_larger([64] * 15)
        begins = len(looks)
        train_larger([128])
    # Four peaks and calm passes at most, and then those of other sizes.
    assert begins < 6
    assert len(looks) > begins


@pytest.mark.parametrize(
    "category", [Category.PARAMETERS, Category.OPTIMIZER_STATES, Category.GRADIENTS]
)
def test_owners_are_the_same(category: Category, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tensor is, a virtual GPU's storages tell in a way of their own."""
    monkeypatch.setattr(history_watch, "place_of_storage", owners.place_on_virtual_gpu)
    seen, read = watched(train)
    assert bytes_of(read, category) == bytes_of(seen, category) > 0


def test_what_ran_out_is_told_with_its_line() -> None:
    """13 GiB fit beside the context on 14.74 GiB; 1 GiB more does not."""
    seen, read = watched(run_out)
    failed = read.devices[0].last_out_of_memory
    assert failed is not None
    assert failed.origin.line is not None
    assert failed.origin.line.function == "run_out"
    assert (failed.segment_bytes, failed.live.allocated_bytes) == (1024 * MIB, 14 * 1024 * MIB)
    expected = seen.devices[0].last_out_of_memory
    assert expected is not None
    assert failed.live.reserved_bytes == expected.live.reserved_bytes


def test_a_program_may_reset_counters_and_ask_for_a_history() -> None:
    def program() -> None:
        train(1)
        torch.cuda.reset_accumulated_memory_stats()
        torch.cuda.memory._record_memory_history()
        train(2)
        torch.cuda.memory._record_memory_history(None)

    seen, read = watched(program)
    assert sizes_of(read) == sizes_of(seen)


def test_what_lay_on_the_gpu_before_counts_as_it_is() -> None:
    """1 MiB before and 2 MiB after are the peak; what is freed was none of the watch's."""
    with vramlab.VirtualGPU("T4"):
        before = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        with HistoryWatch(1) as read:
            after = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
            del before
        assert after.numel() == 2 * MIB
    peak = read.devices[0].peak()
    assert (peak.allocated_bytes, len(peak.blocks)) == (3 * MIB, 2)
