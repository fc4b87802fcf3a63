"""The progress of a run while it goes on."""

from __future__ import annotations

import io
from contextlib import nullcontext
from functools import partial

import torch

from vramlab import VirtualGPU
from vramlab.report.collect import Ground, RunningEngine, virtual_devices
from vramlab.report.evidence.unsure_operators import UnsureOperators
from vramlab.report.evidence.watch import Watch
from vramlab.report.reporter import Files, Reporter
from vramlab.report.running.children import Children
from vramlab.report.running.processes import Processes


def test_progress_asks_for_nothing_that_the_program_changes_meanwhile() -> None:
    """Another thread prints it, which cannot iterate over a dictionary that grows."""

    def not_yet() -> Ground:
        raise AssertionError("the program has not ended")

    with (
        VirtualGPU("T4") as gpu,
        Watch(gpu) as watch,
        Processes("train.py", None, None) as processes,
    ):
        engine = RunningEngine("T4", nullcontext(), watch, partial(virtual_devices, gpu), not_yet)
        reporter = Reporter(
            engine, Children([]), processes, "train.py", ".", io.StringIO(), Files()
        )
        torch.zeros(2**20, device="cuda")  # a segment of 20 MiB, and a context of 134 MiB
        told = reporter.progress()
    assert told.startswith("no forward pass yet; cuda:0 peak 154.00 MiB of 14.74 GiB on T4")


def test_sparse_tensors_are_measured_by_their_parts() -> None:
    """An operator without a rule makes one, which has no storage."""
    operators, unread = UnsureOperators(), torch.ops.aten.pdist.default
    with VirtualGPU("T4"):
        places = torch.zeros(2, 4, dtype=torch.int64, device="cuda")
        numbers = torch.ones(4, device="cuda")
        made = torch.sparse_coo_tensor(places, numbers, (3, 3), check_invariants=False)
        operators.op_ran(unread, (places, numbers), {}, made)
    (largest_bytes,) = operators.largest_bytes.values()
    assert largest_bytes == 2 * 4 * 8 + 4 * 4
