"""The explorer of methods: each alone, and all together."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l18_memory_against_speed.explorer import methods_explorer
from vramlab_course.widgets.explorer import Explorer


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return methods_explorer(batch=4, chosen=())


def test_the_largest_batch_fits_the_smallest_gpu() -> None:
    explorer = methods_explorer(batch=64, gpu="T4", chosen=())
    assert 'role="alert"' not in explorer.output.value
