"""The choice that exercise 18 expects is the fastest of those that fit."""

from __future__ import annotations

from itertools import product
from typing import Any

from vramlab_course.lessons.l18_memory_against_speed.tasks import (
    A100,
    CHOICES,
    GOOD,
    PLAIN,
    ROOM,
    _read,
)


def read(chosen: dict[str, Any]) -> tuple[int, float]:
    with A100.attached():
        reading = _read(16, chosen)
    return reading.peak_bytes, reading.needed.seconds


def test_no_choice_that_fits_is_faster() -> None:
    plain_bytes, _ = read(PLAIN)
    limit_bytes = int(ROOM * plain_bytes)
    good_bytes, good_s = read(GOOD)
    assert good_bytes <= limit_bytes
    # fused is never slower or larger than the default, so half of the choices need no trial
    others = [
        dict(zip(CHOICES, values, strict=True))
        for values in product(*CHOICES.values())
        if values[-1] == "adamw, fused"
    ]
    assert len(others) == 16
    fitting = {str(choice): read(choice) for choice in others}
    assert min(s for size, s in fitting.values() if size <= limit_bytes) == good_s
