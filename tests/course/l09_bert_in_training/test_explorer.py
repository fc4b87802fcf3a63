"""BERT's explorer: what it predicts is what it measures."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab_course.formulas.bert import Bert
from vramlab_course.lessons.l09_bert_in_training.experiment import IMPLEMENTATIONS
from vramlab_course.lessons.l09_bert_in_training.explorer import MODES, bert_explorer, measure_bert
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


def test_controls_change_what_is_shown() -> None:
    explorer = bert_explorer(batch=8, length=128, layers=2, width=128, gpu="T4")
    assert explorer.controls["mode"].options == tuple(MODES)
    assert explorer.controls["attention"].options == tuple(IMPLEMENTATIONS)
    # 2 layers x (8 x 2 x 128 x 128) scores x (4 B + 1 B) for the dropped softmax
    assert "softmax, dropped, and mask" in explorer.output.value
    assert f"{2 * 8 * 2 * 128 * 128 * 5 / MIB:,.4f} MiB" in explorer.output.value
    explorer.controls["mode"].value = "eval()"
    assert "softmax, dropped, and mask" not in explorer.output.value
    explorer.controls["attention"].value = "sdpa"
    assert "sums of the softmax" in explorer.output.value
    assert "2 layers of 128, batch 8 x 128, eval(), sdpa" in explorer.output.value


def test_too_long_a_text_says_so_in_place() -> None:
    # 64 x 2 x 2048 x 2048 scores of 4 B: 2 GiB, five times in each of 4 layers
    explorer = bert_explorer(batch=64, length=2048, layers=4, width=128, gpu="T4")
    assert "OutOfMemoryError" in explorer.output.value
