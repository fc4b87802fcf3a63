"""A learner's own run, drawn."""

from __future__ import annotations

from typing import Any

import pytest
from torch.nn.functional import cross_entropy

from vramlab.errors import VramlabError
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.workshops import watch


def mean_loss(x: Any, weight: Any, targets: Any) -> Any:
    return cross_entropy(x @ weight.T, targets)


def test_the_picture_tells_the_run_and_what_is_above_the_target() -> None:
    picture = watch("f", mean_loss, case=1)
    # 500 x 4096 logits and their logarithms, 4 B each, beside x, the weight and the targets:
    # 2 * 8,192,000 + (500 + 4096) * 64 * 4 + 500 * 8 -> 16.75 MiB
    assert picture.alt.startswith(
        "mean_loss: peak 16.75 MiB, target 3.63 MiB, ours 3.13 MiB, PyTorch 16.75 MiB, best known"
    )
    assert "At the peak: 7.81 MiB: result of mm, [500, 4096] float32" in picture.alt
    above, below = picture.axes
    assert [label.get_text() for label in above.get_yticklabels()] == [
        "products",
        "other operators",
    ]
    assert any("target: " in text.get_text() for text in below.texts)


def other() -> None:
    """Nothing that is asked for."""


def test_cases_are_counted_from_0() -> None:
    with pytest.raises(VramlabError, match="mean_loss has 2 cases to watch: 0 to 1, not 2"):
        watch("F", mean_loss, case=2)


def test_an_error_has_the_answers_lines_and_not_ours() -> None:
    def mean_loss(x: Any, weight: Any, targets: Any) -> Any:
        return x @ weight

    with pytest.raises(RuntimeError) as caught:
        watch("F", mean_loss)
    assert [entry.name for entry in caught.traceback[:3]] == [
        "test_an_error_has_the_answers_lines_and_not_ours",
        "watch",
        "mean_loss",
    ]


def test_what_cannot_be_looked_at_is_said_in_a_sentence() -> None:
    def mean_loss(x: Any, weight: Any, targets: Any) -> Any:
        return None

    with pytest.raises(NotFixed, match="It has to return the loss: a tensor") as caught:
        watch("F", mean_loss)
    assert len(caught.traceback) == 2  # of this test, and of watch()
