"""The peak of a micro-batch, by arithmetic."""

from __future__ import annotations

from vramlab.units import MIB
from vramlab_course.formulas.training import LinearChain
from vramlab_course.lessons.l13_gradient_accumulation.formulas import (
    later_moments,
    micro_batch_peak_bytes,
)

CHAIN = LinearChain(batch=2560, widths=(1024, 1024, 1024, 2048))
LAYER_1, LAYER_2, LAYER_3 = 4 * MIB + 4096, 4 * MIB + 4096, 8 * MIB + 8192  # weight and bias


def no_buffers(rows: int, columns: int) -> int:
    return 0


def test_a_later_micro_batch_holds_the_gradients_that_are_still_to_come() -> None:
    first, later = CHAIN.backward_moments(no_buffers), later_moments(CHAIN, no_buffers)
    assert later["clone 3"] - first["clone 3"] == LAYER_1 + LAYER_2 + LAYER_3
    assert later["clone 2"] - first["clone 2"] == LAYER_1 + LAYER_2
    assert later["bias 1"] - first["bias 1"] == LAYER_1


def test_the_peak_is_the_highest_moment() -> None:
    alone = micro_batch_peak_bytes(CHAIN, no_buffers, accumulated=False)
    later = micro_batch_peak_bytes(CHAIN, no_buffers, accumulated=True)
    # Held: parameters, x (10 MiB), two outputs of 10 MiB, y (20), loss and its gradient. Made: the
    # gradients of the last layer's input (10 MiB) and weight (8), the clone of y's gradient (20).
    parameters = LAYER_1 + LAYER_2 + LAYER_3
    assert alone == parameters + (10 + 20 + 20) * MIB + 2 * 512 + (10 + 8 + 20) * MIB
    assert later == alone + parameters
