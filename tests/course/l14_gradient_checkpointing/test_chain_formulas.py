"""Closed forms for checkpointed chains, against the simulated schedules and sums by hand."""

from __future__ import annotations

import pytest

from vramlab.units import KIB, MIB
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    recompute_all,
    segments,
    store_all,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_formulas import (
    best_count,
    deepest,
    linear_sizes,
    mlp_flops,
    mlp_sizes,
    moments_bytes,
    peak_bytes,
    reentrant_segments_bytes,
    segments_bytes,
    segments_held_bytes,
    selective_bytes,
    transformer_flops,
    transformer_kept_bytes,
)

LINEAR = linear_sizes(8192, 64)  # states of 8192 x 64 x 4 B = 2 MiB, weights of 16 KiB
MLP = mlp_sizes(8192, 64)  # 8 MiB before GELU and after it; two weights of 64 KiB


def test_a_chain_of_nodes_by_hand() -> None:
    # 9 states recorded beyond the input, the gradients of f10 and f9, a weight's, the loss
    assert segments_bytes(10, 1, LINEAR) == (9 + 2) * 2 * MIB + 16 * KIB + 512
    # f4; f8 to f11; and the same besides
    assert segments_bytes(12, 3, LINEAR) == (1 + 4 + 2) * 2 * MIB + 16 * KIB + 512
    # f0 is the input; f1 is recorded; the gradients of f2 and f1; those of the weights 1 to 11
    assert peak_bytes(recompute_all(12), LINEAR) == (1 + 2) * 2 * MIB + 11 * 16 * KIB + 512


def test_a_chain_of_mlps_by_hand() -> None:
    # three steps with 16 MiB inside each, f1 and f2, f3's gradient, that of GELU's result
    assert (
        segments_bytes(3, 1, MLP) == 3 * 16 * MIB + 2 * 2 * MIB + 2 * MIB + 8 * MIB + 64 * KIB + 512
    )
    # each step's first product and its result; GELU again; the gradients as above; two scalars
    assert selective_bytes(3, MLP) == 3 * 10 * MIB + 8 * MIB + 2 * MIB + 8 * MIB + 64 * KIB + 1024


@pytest.mark.parametrize("steps", [1, 2, 7, 12, 16])
def test_the_closed_form_is_the_simulated_peak(steps: int) -> None:
    for count in range(1, steps + 1):
        assert segments_bytes(steps, count, LINEAR) == peak_bytes(segments(steps, count), LINEAR)


def test_the_simulation_sees_later_peaks_as_well() -> None:
    # With heavy parameters the peak is where most gradients are there; the closed form says so.
    heavy = linear_sizes(64, 1024)
    assert peak_bytes(store_all(8), heavy) > segments_bytes(8, 1, heavy)
    held_after, _ = moments_bytes(store_all(8), heavy)[-1]
    assert held_after == 8 * 1024 * 1024 * 4 + 512  # all gradients of weights, and the loss


def test_reentrant_needs_a_state_and_gradients_more() -> None:
    assert reentrant_segments_bytes(12, 1, MLP) == segments_bytes(12, 1, MLP)
    # Second to last of 3 segments of 4: f4 to f7 recorded, f8 held, and the gradients of the
    # parameters of 4 steps; of the last segment: f4, f8 to f11 recorded
    difference = reentrant_segments_bytes(12, 3, MLP) - segments_bytes(12, 3, MLP)
    assert difference == 4 * 2 * 64 * KIB


def test_what_is_held_after_the_forward_pass() -> None:
    # f3, f6, f9 and, of the last 5 steps, a result each and 16 MiB inside
    assert segments_held_bytes(14, 4, MLP) == (3 + 5) * 2 * MIB + 5 * 16 * MIB


def test_the_best_count_is_the_root_for_nodes_and_more_for_steps_with_an_inside() -> None:
    assert best_count(16, LINEAR) == 4
    assert best_count(100, LINEAR) == 10
    assert best_count(16, MLP) == 16


def test_the_deepest_chain_just_fits() -> None:
    limit = 100 * MIB
    for kind in ("store all", "each step", "segments"):
        assert deepest(limit, kind, MLP) > 0
    # n parameters of 128 KiB, and (n - 1) states + n x 16 MiB + 10 MiB and a little
    steps = deepest(limit, "store all", MLP)
    assert steps * 128 * KIB + segments_bytes(steps, 1, MLP) <= limit
    assert (steps + 1) * 128 * KIB + segments_bytes(steps + 1, 1, MLP) > limit


def test_flops() -> None:
    flops = mlp_flops(10, 8)
    assert flops.last_product == 2 * 10 * 8 * 32
    # 3 steps forward and 3 back, less the gradient of the input: 2 x 3 + 4 x 3 - 1 products
    assert flops.step(3, 3) == (2 * 3 + 4 * 3 - 1) * flops.last_product
    # width 4, 2 x 3 tokens: 24 x 6 x 16 and 4 x 6 x 3 x 4 a layer
    assert transformer_flops(5, 4, 2, 3) == (5 * (24 * 6 * 16 + 4 * 6 * 3 * 4), 5 * 8 * 6 * 16)


def test_a_checkpointed_transformer_keeps_inputs() -> None:
    # 12 inputs, a norm's input and its result: 14 x 48 MiB; 2 x 64 KiB; 4 KiB; a mask of 12 MiB
    assert transformer_kept_bytes(12, 768, 32, 512, 12 * MIB) == (
        14 * 48 * MIB + 128 * KIB + 4 * KIB + 12 * MIB
    )
