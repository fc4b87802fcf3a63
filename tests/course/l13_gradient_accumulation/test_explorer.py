"""The explorer of gradient accumulation."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l13_gradient_accumulation.explorer import (
    measure_gradient,
    measure_step,
)


@pytest.mark.parametrize(
    ("loss", "times"),
    [
        ("mean / steps", 1.0),
        ("mean", 4.0),  # four means instead of their mean
        ("sum", 1.0),  # against the sum over the whole batch
        ("document 003's", 5.0),  # four times 1 + 1/4
    ],
)
def test_gradients_against_the_whole_batch(loss: str, times: float) -> None:
    gradient = measure_gradient(4, loss)
    assert gradient.times == pytest.approx(times, rel=1e-12)
    assert gradient.error < 1e-12


def test_gradients_stay_between_micro_batches() -> None:
    # Three layers of 256 with bias: 3 x (262144 + 1024) B of parameters, and of gradients.
    one = measure_step(1024, 1, 256, "sum", "T4")
    four = measure_step(1024, 4, 256, "sum", "T4")
    assert four.peak_bytes - one.peak_bytes == 3 * (262_144 + 1024)
    assert four.unexplained_bytes == 0
