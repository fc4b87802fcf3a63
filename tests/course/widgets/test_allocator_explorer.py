"""The allocator's explorer and the small language of its programs."""

from __future__ import annotations

from vramlab.units import MIB
from vramlab_course.widgets import allocator_explorer
from vramlab_course.widgets.allocator_program import ProgramStep, parse


def test_a_program_has_one_step_a_line() -> None:
    assert parse("a 10 MiB\n\n b = 1.5 KiB \nfree a\nempty_cache") == (
        ProgramStep("a 10 MiB", "a", 10 * MIB),
        ProgramStep("b = 1.5 KiB", "b", 1536),
        ProgramStep("free a", "a", 0),
        ProgramStep("empty_cache", "", 0),
    )


def test_the_view_follows_the_steps() -> None:
    explorer = allocator_explorer("a 6 MiB\nb 300 KiB\nfree a", memory_mib=64)
    # 300 KiB of a small segment of 2 MiB; the 6 MiB are cached in a segment of 20 MiB
    assert "After &#x27;free a&#x27;: 300 KiB allocated, 22 MiB reserved." in explorer.output.value
    explorer.controls["steps"].value = 1
    assert "After &#x27;a 6 MiB&#x27;: 6 MiB allocated, 20 MiB reserved." in explorer.output.value
    explorer.controls["steps"].value = 0
    assert "Before the first step: 0 B allocated, 0 B reserved." in explorer.output.value


def test_blocks_carry_their_names_and_counters_add_up() -> None:
    html = allocator_explorer("a 6 MiB\nb 1000 B", memory_mib=64).output.value
    assert "a 6 MiB allocated, 14 MiB free (cached)" in html
    assert "b 1000 B allocated, 24 B rounded up or not split off" in html
    # 64 - 20 - 2 = 42 MiB are free for others
    assert "42.0000 MiB<br>44,040,192 B" in html


def test_out_of_memory_is_part_of_the_view() -> None:
    html = allocator_explorer("a 30 MiB\nb 20 MiB", memory_mib=32).output.value
    assert "30 MiB allocated, 30 MiB reserved. CUDA out of memory. Tried to allocate 20.00 MiB" in (
        html
    )
    assert "<img" in html


def test_a_longer_program_gives_the_slider_more_steps() -> None:
    explorer = allocator_explorer("a 6 MiB")
    assert explorer.controls["steps"].max == 1
    explorer.controls["program"].value = "a 6 MiB\nb 6 MiB\nfree a"
    assert explorer.controls["steps"].max == 3
    explorer.controls["program"].value = "a 6"
    assert "ProgramError" in explorer.output.value
    assert explorer.controls["steps"].max == 3
