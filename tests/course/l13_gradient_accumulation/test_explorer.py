"""The explorer of gradient accumulation."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l13_gradient_accumulation.explorer import (
    LOSSES,
    accumulation_explorer,
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


def test_it_says_what_is_saved_and_what_the_gradient_is() -> None:
    explorer = accumulation_explorer(rows=256, steps=2, width=256)
    assert tuple(explorer.controls["loss"].options) == tuple(LOSSES)
    assert "less than 512 rows at once" in explorer.output.value
    assert "The gradient is 1 times" in explorer.output.value
    explorer.controls["loss"].value = "document 003's"
    assert "The gradient is 3 times" in explorer.output.value  # 2 x (1 + 1/2)
    explorer.controls["width"].value = 4096
    # The gradients of wide layers outweigh what 256 rows save.
    assert "more than 512 rows at once" in explorer.output.value
