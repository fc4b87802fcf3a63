"""Two processes of a pipeline get the gradients that one process gets from the whole batch."""

from __future__ import annotations

import pytest

import vramlab
from vramlab.ranks import torchrun
from vramlab.ranks.pipeline import LAYERS, WIDTH, train_alone


def test_gradients_are_those_of_the_whole_batch() -> None:
    """But for the order of sums: four means of six rows each, and the mean of those."""
    with vramlab.VirtualGPU("T4", values=True):
        alone = train_alone()
    assert len(alone) == LAYERS * (WIDTH * WIDTH + WIDTH)
    ranks = torchrun("vramlab.ranks.pipeline", 2)
    for schedule in ("GPipe", "1F1B"):
        together = [number for rank in ranks for number in rank[schedule]]
        assert together == pytest.approx(alone, rel=1e-12, abs=1e-15)
