"""The transformers' explorer: by formula at once, and measured when asked."""

from __future__ import annotations

from vramlab_course.lessons.l12_estimating_large_models.explorer import (
    transformer_explorer,
)
from vramlab_course.widgets import Explorer


def small(**settings: object) -> Explorer:
    defaults = {"batch": 4, "sequence": 128, "layers": 2, "width": 256, "vocabulary": 1024}
    return transformer_explorer(**{**defaults, **settings})  # type: ignore[arg-type]


def test_it_answers_by_formula_without_a_gpu() -> None:
    text = small().output.value
    assert "measured" not in text
    # 1024 x 256 + 128 x 256 + 2 x 789,760 + 512
    assert "1.9 million parameters" in text
    assert "A100-40GB has" in text
    assert "it fits, at" in text


def test_measured_stands_beside_predicted_and_is_equal() -> None:
    explorer = small(measure=True)
    assert explorer.output.value.count("+0 B") >= 6
    assert "unsplit remainders of blocks" in explorer.output.value
    explorer.controls["measure"].value = False
    assert "unsplit remainders of blocks" not in explorer.output.value
