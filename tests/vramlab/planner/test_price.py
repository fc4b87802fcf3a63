"""What a plan costs, counted on short models and extended to long ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab.cuda_rules.collectives import ring_sent_bytes
from vramlab.planner import Plan, estimate, price
from vramlab.planner.price import ladder_table, measure_price
from vramlab.programs.transformer_memory import Sizes
from vramlab.units import GIB

pytestmark = pytest.mark.long

SMALL = Sizes(vocabulary=512, positions=64, width=128, layers=5, heads=4, bias=False, tied=False)
PLAN = Plan(SMALL, "A100-40GB", batch=4, sequence=64, precision="pure bfloat16")


def test_flops_of_a_step_are_those_of_its_matrix_products() -> None:
    tokens, width, layers = 4 * 64, 128, 5
    matrices = layers * (3 + 1 + 4 + 4) * width * width + 512 * width  # qkv, project, up, down
    # 4 texts, 4 heads of 32; products with keys and values forward, and backward five: what flash
    # attention computes again is one of them, and a mask saves nothing that is counted
    attention = layers * (2 + 5) * 2 * 4 * 4 * 64 * 64 * 32
    assert measure_price(PLAN).flops == 3 * 2 * tokens * matrices + attention


def test_one_gpu_sends_nothing() -> None:
    assert measure_price(PLAN).sent_bytes == 0


def test_ddp_sends_its_gradients_around_a_ring() -> None:
    price = measure_price(PLAN.but(data=4))
    assert price.sent_bytes == ring_sent_bytes("all-reduce", 2 * SMALL.parameters(), 4)


def test_zero_3_sends_half_as_much_again_but_for_what_belongs_to_no_layer() -> None:
    price = measure_price(PLAN.but(data=4, zero=3))
    layers = 2 * sum(rows * columns for rows, columns in SMALL.matrices) + 2 * 4 * 128
    root = 2 * SMALL.parameters() - 5 * layers
    gathered = 5 * 2 * layers + root  # each layer twice; embedding and head once
    reduced = 2 * SMALL.parameters()
    assert price.sent_bytes == 3 * (gathered + reduced) // 4


def test_optimizer_on_the_host_gets_gradients_and_gives_parameters_back() -> None:
    plan = PLAN.but(precision="bfloat16, float32 master", offload="optimizer")
    assert measure_price(plan).host_bytes == 2 * 2 * SMALL.parameters()  # in bfloat16, each way
    assert measure_price(PLAN).host_bytes == 0


def test_micro_batches_of_a_pipeline_are_sent_on() -> None:
    four = PLAN.but(sizes=replace(SMALL, layers=4), pipeline=2, micro_batch=1)
    first, last = (measure_price(four, stage) for stage in (0, 1))
    assert first.sent_bytes == last.sent_bytes == 4 * 64 * 128 * 2  # activations; gradients
    assert last.flops > first.flops  # it has the head


def test_counted_on_short_models_it_is_what_long_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PLAN.but(data=2, zero=3, checkpointing="full")
    extended = measure_price(plan)
    monkeypatch.setattr(price, "LAYERS_COUNTED", 3)  # and with 4
    assert measure_price(plan) == extended


def test_least_seconds_are_those_of_the_catalogue() -> None:
    computing, sending = price.Price(312 * 10**12, 300 * 10**9).least_seconds(PLAN)
    assert (computing, sending) == (1.0, 1.0)  # 312 TFLOP/s in bfloat16, 300 GB/s of NVLink


def test_step_takes_as_long_as_its_longest_part() -> None:
    there_and_back = PLAN.model.pcie_bandwidth_bytes_per_s  # takes a second each way
    a_step = price.Price(312 * 10**12, 0, host_bytes=2 * there_and_back)  # and 1 s of arithmetic
    assert a_step.step_seconds(PLAN) == 2.0
    assert price.Price(312 * 10**12, 0, host_bytes=10**9).step_seconds(PLAN) == 1.0


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (PLAN.but(pipeline=2, micro_batch=1), "5 layers in 2 stages: stages have to be alike"),
        (PLAN.but(data=2, zero=1), "with ZeRO-1 each rank sends the parameters"),
        (PLAN.but(tensor=2), "FlopCounterMode sees whole matrices"),
    ],
)
def test_what_cannot_be_counted_is_refused(plan: Plan, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        measure_price(plan)


def test_ladder_adds_up() -> None:
    table = ladder_table({"small": PLAN}, "One plan")
    found = estimate(PLAN)
    [(name, states, rest, peak, share)] = table.rows
    assert name == "small"
    assert peak == f"{found.peak_bytes / GIB:,.2f}"
    assert abs(float(states) + float(rest) - float(peak)) < 0.015
    assert share == f"{found.peak_bytes / found.available_bytes:.0%}"
