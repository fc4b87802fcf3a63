"""The attention explorer, against what attention is known to keep."""

from __future__ import annotations

from vramlab_course.lessons.l11_sequence_length.attention_formulas import KINDS
from vramlab_course.lessons.l11_sequence_length.explorer import attention_explorer


def test_it_shows_what_stays_and_how_that_grows() -> None:
    explorer = attention_explorer(length=1024, heads=4)
    # 4 heads x 1024 x 1024 scores of 2 B, and an output of 4 x 1024 x 64 x 2 B: 8 MiB + 512 KiB
    assert "At 1,024 tokens, step by step attention keeps 8.5 MiB" in explorer.output.value
    # 2 MiB + 256 KiB at 512 tokens: 8.5 / 2.25 = 3.78
    assert "3.78 times as much as at 512" in explorer.output.value
    assert explorer.controls["kind"].options == KINDS
    explorer.controls["kind"].value = "flash"
    # 512 KiB, a logsumexp of 4 x 1024 x 4 B = 16 KiB, 1 KiB: 529 KiB, which is 0.517 MiB
    assert "flash attention keeps 529 KiB, 2.00 times as much" in explorer.output.value
    explorer.controls["mode"].value = "no_grad"
    assert "most in backward" not in explorer.output.value.split("<table")[0]
