"""One rank alone at each stage of ZeRO: what it keeps and sends is what the formulas say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import record_timeline
from vramlab.programs.master_weights import MasterAdamW
from vramlab_course import experiments
from vramlab_course.lessons.l20_zero import experiment as experiment
from vramlab_course.lessons.l20_zero import formulas as zero
from vramlab_course.lessons.l20_zero.experiment import read_rank
from vramlab_course.rules import RULES


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with VirtualGPU("A100-40GB", torch_version=RULES):
        yield


@pytest.mark.parametrize("stage", zero.STAGES)
@pytest.mark.parametrize(("ranks", "rank"), [(4, 0), (7, 6)])
def test_each_stage_keeps_and_sends_what_is_predicted(
    stage: zero.Stage, ranks: int, rank: int
) -> None:
    reading = read_rank(stage, ranks, rank, layers=4, width=1024)
    assert reading.parameters == 4 * 1024**2
    assert reading.kept_bytes == sum(zero.kept_bytes(stage, reading.groups, ranks, rank).values())
    # Each collective's pieces are rounded down to whole bytes.
    sent_bytes = zero.sent_bytes(stage, reading.groups, ranks)
    assert 0 <= sent_bytes - reading.collectives.sent_bytes < 64


def test_rows_that_do_not_divide_are_padded() -> None:
    # 1000 rows on 64 ranks: the last one has memory for 16 rows of each layer, and none of them.
    reading = read_rank(3, 64, 63, layers=4, width=1000, bias=True)
    predicted = zero.kept_bytes(3, reading.groups, 64, 63)
    assert predicted[zero.STATES] == 0
    assert reading.kept_bytes == sum(predicted.values())


def test_parameters_stay_gathered_at_stage_2_only() -> None:
    two, three = (read_rank(stage, 8, layers=4) for stage in (2, 3))
    gathered_bytes = zero.gathered_bytes(two.groups, 8)
    assert gathered_bytes == 4 * 4 * 1024**2
    assert two.after_forward_bytes - three.after_forward_bytes == gathered_bytes
    assert three.after_forward_bytes == zero.chain_activations_bytes(4, 1024, dtype="float32")


def test_mixed_precision_sends_half() -> None:
    whole, half = (read_rank(3, 8, layers=4, precision=p) for p in ("float32", "mixed"))
    assert half.kept_bytes == whole.kept_bytes  # float32 shards
    assert half.collectives.sent_bytes == whole.collectives.sent_bytes // 2


def test_offloaded_shards_are_on_the_host_and_travel() -> None:
    reading = read_rank(3, 8, layers=4, offload=True)
    assert reading.kept_bytes == 0
    shard_bytes = 4 * reading.parameters // 8
    assert reading.transfers.to_gpu_bytes == 2 * shard_bytes  # for forward, and for backward
    assert reading.transfers.to_host_bytes == shard_bytes  # gradients


@pytest.mark.parametrize(
    ("layers", "width", "ranks"),
    [(4, 1024, 4), (5, 1024, 96)],  # 1024 rows on 96 ranks: 11 each, 1056 in all
)
def test_the_peak(layers: int, width: int, ranks: int) -> None:
    outcome = experiments.run("zero-peak", ranks=ranks, layers=layers, width=width)
    for stage in outcome.result.stages:
        (expectation,) = stage.expectations
        assert stage.measured_bytes("peak") == expectation.predicted_bytes, stage.name


def test_shards_are_parameters_in_a_timeline() -> None:
    with experiment.rank_alone(0, 8), record_timeline() as recording:
        training = experiment.ZeroTraining(3, 2, 1024)
        recording.watch(model=training.model)
    seen = [sighting.label for sighting in recording.timeline.sightings]
    assert set(seen) == {"0.weight", "1.weight"}


def test_masters_are_twelve_bytes_a_parameter() -> None:
    model = torch.nn.Linear(1024, 1024, bias=False, device="cuda", dtype=torch.float16)
    before_bytes = torch.cuda.memory_allocated()
    optimizer = MasterAdamW(model.parameters())
    optimizer.step()  # no gradient, nothing to do
    assert torch.cuda.memory_allocated() == before_bytes
    model.weight.grad = torch.zeros_like(model.weight)
    optimizer.step()
    assert torch.cuda.memory_allocated() - before_bytes == (2 + 12) * 1024**2
