"""The ZeRO explorer: bytes per rank, what fits, and that measuring says the same."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l20_zero.explorer import zero_explorer
from vramlab_course.widgets.explorer import Explorer


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return zero_explorer()


def test_the_papers_model_fits_from_the_first_stage_on(explorer: Explorer) -> None:
    text = explorer.output.value
    assert "7,500,000,000 parameters with Adam, mixed, on 64 GPUs." in text
    # 4 x 7.5e9 B, and one layer's 12 x 156.25e6: 31.9 GB of 42.4
    assert "ZeRO-1 is the first that fits: A100-40GB has 39.39 GiB" in text
    assert "31,875,022,848 B" in text  # the rest is rounding: 96 x 224 + 3 x 448
    explorer.controls["gpu"].value = "T4"
    # 2 x 7.5e9 and 16 x 7.5e9 / 64 are 16.9 GB, 1.9 without the gathered ones
    assert "ZeRO-3 is the first that fits: T4 has" in explorer.output.value


def test_measuring_agrees_to_the_byte() -> None:
    settings = {"width": 1024, "ranks": 8, "gpu": "T4"}
    for measured in ("DDP", "ZeRO-2"):
        view = zero_explorer.view(layers=2, measured=measured, **settings)
        assert f"Measured at {measured}" in view.summary
        assert "+0 B against the closed form" in view.summary
