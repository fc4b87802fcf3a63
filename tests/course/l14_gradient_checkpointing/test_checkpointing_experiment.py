"""What checkpointing saves and costs: every point of the chart, the transformers, the depths."""

from __future__ import annotations

from fractions import Fraction

import pytest

import vramlab
from vramlab_course import experiments
from vramlab_course.lessons.l14_gradient_checkpointing.checkpoint_claims_experiment import (
    deepest_chains,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_experiment import exchanges
from vramlab_course.rules import RULES


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context:FutureWarning")  # since 2.15
def test_every_strategy_takes_what_is_predicted() -> None:
    with vramlab.VirtualGPU("T4", torch_version=RULES):
        points = exchanges(steps=9, batch=8192, width=64)
    assert len(points) == 10
    for point in points:
        assert point.peak_bytes == point.predicted_peak_bytes, point.strategy
        assert point.flops == point.predicted_flops, point.strategy
    by_name = {point.strategy: point for point in points}
    # 9 steps: 27 thirds less the first input gradient, half a forward: 26.5; 36 more run again
    assert Fraction(by_name["recompute all"].flops, by_name["store all"].flops) == Fraction(
        2 * (9 * 3 + 36) - 1, 2 * 9 * 3 - 1
    )
    assert by_name["selective: products kept"].flops == by_name["store all"].flops


def test_a_whole_extra_forward_is_a_third_and_torch_stops_early() -> None:
    with vramlab.VirtualGPU("A100-40GB", torch_version=RULES):
        outcome = experiments.run("checkpoint-slowdown", batch=2, sequence=128)
    # of 24 T W^2 + 4 T S W a layer the last product's 8 T W^2 is not run again; S = W / 6
    again = (24 + 4 / 6 - 8) / (24 + 4 / 6)
    for name, share in (("BERT-base", 1 / 3), ("GPT-2", again / 3)):
        finding = outcome.finding("checkpoint-slowdown", f"slower: {name}")
        assert finding.measured == pytest.approx(share)
        assert finding.predicted == pytest.approx(share)
        stored = outcome[f"{name}, stored: forward"]
        checkpointed = outcome[f"{name}, checkpointed: forward"]
        (expectation,) = checkpointed.expectations
        assert checkpointed.growth_bytes == expectation.predicted_bytes
        assert stored.growth_bytes > 8 * checkpointed.growth_bytes


def test_the_deepest_chain_that_fits() -> None:
    with vramlab.VirtualGPU("T4", torch_version=RULES):
        depths = deepest_chains(states=32)
    # Two steps hold a state between them, 2 x 8 inside and 5 for going back: 22 of 32. Three hold
    # 2 + 3 x 8 + 5 = 31, and parameters and their gradients more than the one that is left.
    assert depths["store all"].measured == depths["store all"].predicted == 2
    assert depths["segments"].measured >= depths["each step"].measured > 2


@pytest.mark.parametrize("name", ["checkpoint-strategies", "checkpoint-sequential"])
def test_predictions_hold_on_other_gpus_and_sizes(name: str) -> None:
    with vramlab.VirtualGPU("RTX-4090", torch_version=RULES):
        outcome = experiments.run(name, steps=9, batch=8192, width=128, **_COUNTS.get(name, {}))
    compared = 0
    for stage in outcome.result.stages:
        for expectation in stage.expectations:
            assert stage.measured_bytes(expectation.quantity) == expectation.predicted_bytes
            compared += 1
    assert compared >= 6


_COUNTS = {"checkpoint-sequential": {"counts": (1, 2, 3, 9)}}


def test_the_residual_network_has_its_layers() -> None:
    from vramlab_course.lessons.l14_gradient_checkpointing.residual_network_experiment import (
        residual_network,
    )
    from vramlab_course.lessons.l14_gradient_checkpointing.residual_network_formulas import (
        scaled_stages,
    )

    assert scaled_stages(66) == (3, 24, 36, 3)
    assert sum(scaled_stages(333)) == 333
    network = residual_network((1, 1, 1, 1))
    convolutions = [m for m in network.modules() if type(m).__name__ == "Conv2d"]
    # the first, three in each block, and one beside the first block of each stage
    assert len(convolutions) == 1 + 4 * 3 + 4


def test_a_small_residual_network_keeps_what_is_predicted() -> None:
    with vramlab.VirtualGPU("T4", torch_version=RULES):
        outcome = experiments.run("checkpoint-resnet1000", blocks=22, batch=4)
    for name in ("stored whole", "segments"):
        stage = outcome[f"{name}: forward"]
        (expectation,) = stage.expectations
        assert stage.growth_bytes == expectation.predicted_bytes
