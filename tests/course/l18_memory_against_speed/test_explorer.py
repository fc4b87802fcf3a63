"""The explorer of methods: each alone, and all together."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l18_memory_against_speed.explorer import methods_explorer
from vramlab_course.widgets.explorer import Explorer


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return methods_explorer(batch=4, chosen=())


def test_methods_are_shown_alone_and_together(explorer: Explorer) -> None:
    shown = explorer.output.value
    assert "None of them" in shown
    assert "all together" not in shown
    explorer.controls["autocast"].value = True
    assert "Mixed precision" in explorer.output.value
    assert "all together" not in explorer.output.value  # there is one only
    explorer.controls["optimizer"].value = "sgd"
    assert "all together" in explorer.output.value


def test_the_largest_batch_fits_the_smallest_gpu() -> None:
    explorer = methods_explorer(batch=64, gpu="T4", chosen=())
    assert 'role="alert"' not in explorer.output.value
