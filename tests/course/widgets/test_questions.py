"""Questions are found by their keys, lesson by lesson."""

from __future__ import annotations

import re
import subprocess

import pytest
from warm_python import warm_python

from vramlab_course.widgets.questions import find


def test_a_question_is_found_by_its_key() -> None:
    assert find("05.forward").text == "How much memory does the first forward pass add?"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("05.forwrd", "'05.forward'"),
        ("05", "'05.forward', '05.peak', '05.nameless'"),
        ("55.forward", "'05.forward', '09.forward'"),
        ("?", "'01.first', '01.del', '01.empty'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"no prediction {key!r}; the nearest are {nearest}")
    ):
        find(key)


def test_only_the_lesson_that_asks_is_imported() -> None:
    program = """
import sys
from vramlab_course.widgets import predict
predict("05.forward")
print([name for name in sys.modules if name.endswith(".predictions")])
"""
    done = subprocess.run([warm_python(), "-c", program], capture_output=True, text=True)
    assert done.stdout == "['vramlab_course.lessons.l05_one_training_step.predictions']\n"
