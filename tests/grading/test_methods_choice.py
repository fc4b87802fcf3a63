"""The choice that exercise 18 holds answers against is the fastest of those that fit."""

from __future__ import annotations

from itertools import product

from vramlab.grading.tasks.ex18_memory_against_speed import CHOICES, GOOD, _limit, _read


def test_no_choice_that_fits_is_faster() -> None:
    limit_bytes = _limit(16)
    good_bytes, good_s = _read(16, GOOD)
    assert good_bytes <= limit_bytes
    # fused is never slower or larger than the default, so half of the choices need no trial
    others = [
        dict(zip(CHOICES, values, strict=True))
        for values in product(*CHOICES.values())
        if values[-1] == "adamw, fused"
    ]
    assert len(others) == 16
    fitting = {str(choice): _read(16, choice) for choice in others}
    assert min(s for size, s in fitting.values() if size <= limit_bytes) == good_s
