"""Two ranks with an expert each compute what one process with both computes."""

from __future__ import annotations

from itertools import chain

import pytest

import vramlab
from vramlab_course.lessons.l26_mixture_of_experts.ranks import whole
from vramlab_course.programs.ranks import torchrun

pytestmark = pytest.mark.long


def test_outputs_and_gradients_of_all_ranks_together() -> None:
    ranks = torchrun("vramlab_course.lessons.l26_mixture_of_experts.ranks", 2)
    with vramlab.VirtualGPU("T4", values=True):
        expected = whole(2)
    for name, numbers in expected.items():
        # tokens and experts are divided in order
        together = list(chain.from_iterable(rank[name] for rank in ranks))
        assert together == pytest.approx(numbers, rel=1e-12, abs=1e-12), name
