"""BERT's explorer: what it predicts is what it measures."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab_course.formulas.bert import Bert
from vramlab_course.lessons.l09_bert_in_training.experiment import IMPLEMENTATIONS
from vramlab_course.lessons.l09_bert_in_training.explorer import MODES, measure_bert
from vramlab_course.rules import RULES

SMALL = Bert(layers=2, width=128, heads=2, feed_forward=512)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_forward_pass_keeps_what_is_predicted(mode: str, implementation: str) -> None:
    train, attention = MODES[mode], IMPLEMENTATIONS[implementation]
    # (B, S, W) and (B, S, F) have 16 and 64 MiB: no block keeps an unsplit remainder
    with VirtualGPU("T4", torch_version=RULES):
        step = measure_bert(SMALL, 64, 512, train, implementation)
    kept = SMALL.forward_bytes(64, 512, train=train, attention=attention)
    assert step.forward.growth_bytes == kept
