"""Recorded runs of compiled programs, and the partitioner that agrees with them to the byte."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure.partitions import Partition, kept_for_backward
from vramlab_course.lessons.l29_compiled_programs import compiled

TRACED = 64
"""Rows that are traced; the recorded step has 128 times as many."""
LOSS_BYTES = 8192 * 1024 * 4 + 512
"""The float32 copy that square() keeps, and the loss."""


@pytest.mark.parametrize(
    ("way", "partition", "between"),
    # A compiled graph keeps what three blocks give to the next, too.
    [("eager", "eager", 0), ("compiled", "min-cut", 3 * 8192 * 1024 * 2)],
)
def test_the_recorded_step_keeps_what_the_partitioner_says(
    way: str, partition: Partition, between: int
) -> None:
    runs = compiled.recorded()
    held = runs["eager"]["model and input"].allocated_bytes
    before = (
        runs[way]["backward 5"].allocated_bytes - held
    )  # gradients as large as what they are of
    function, parameters = compiled.as_function(compiled.GatedBlock().to(torch.bfloat16))
    x = torch.zeros(TRACED, compiled.WIDTH, dtype=torch.bfloat16, requires_grad=True)
    block = kept_for_backward(function, x, *parameters, partition=partition)
    kept = compiled.BLOCKS * block * (compiled.ROWS // TRACED) + between
    assert runs[way]["forward 5"].allocated_bytes - before == kept + LOSS_BYTES


def test_without_a_compiler_the_recording_is_shown() -> None:
    with VirtualGPU("T4"):
        assert not compiled.can_compile()
        runs = compiled.run_all()
    assert runs == compiled.recorded()
    assert "native engine" in runs.by


def test_a_pool_stays_as_long_as_its_graph() -> None:
    moments = compiled.recorded()["a graph by hand"]
    assert moments["eager"].pool_bytes == 0
    pools = [moments[name].pool_bytes for name in ("captured", "replayed", "result let go")]
    assert len(set(pools)) == 1
    assert pools[0] > 2 * 2**25  # two results of 32 MiB
    assert moments["graph let go"].pool_bytes == 0


def test_each_shape_has_a_pool_and_the_first_is_not_recorded_again() -> None:
    pools = [moment.pool_bytes for moment in compiled.recorded().runs["shapes"]]
    assert pools[:4] == sorted(set(pools[:4]))
    assert pools[4] == pools[3]
