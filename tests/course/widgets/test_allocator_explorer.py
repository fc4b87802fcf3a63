"""The allocator's explorer and the small language of its programs."""

from __future__ import annotations

import pytest

from vramlab.units import KIB, MIB
from vramlab_course.widgets import allocator_explorer
from vramlab_course.widgets.allocator_program import ProgramError, ProgramStep, parse


def test_a_program_has_one_step_a_line() -> None:
    assert parse("a 10 MiB\n\n b = 1.5 KiB \nfree a\nempty_cache") == (
        ProgramStep("a 10 MiB", "a", 10 * MIB),
        ProgramStep("b = 1.5 KiB", "b", 1536),
        ProgramStep("free a", "a", 0),
        ProgramStep("empty_cache", "", 0),
    )


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("a 10 Mb", r"line 1: 'a 10 Mb' is not a step\. Write 'a 10 MiB' to allocate"),
        ("a 1 MiB\ngive it back", r"line 2: 'give it back' is not a step"),
        ("free a", "line 1: there is no 'a' to free"),
        ("a 1 MiB\nfree a\nfree a", "line 3: there is no 'a' to free"),
        ("a 1 MiB\na 1 MiB", "line 2: 'a' is allocated already; free it first"),
        ("a 0 MiB", "line 1: 'a 0 MiB' allocates nothing; give at least 1 B"),
    ],
)
def test_a_mistake_is_named_with_its_line(program: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        parse(program)


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


def test_options_are_those_of_pytorch() -> None:
    explorer = allocator_explorer("a 6 MiB", "expandable_segments:True", memory_mib=64)
    assert "6 MiB allocated, 20 MiB reserved" in explorer.output.value
    explorer.controls["options"].value = "no_such_option:1"
    assert "AllocatorConfigError" in explorer.output.value
    assert "no_such_option" in explorer.output.value


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


def test_small_requests_are_shown_to_the_byte() -> None:
    html = allocator_explorer("a 513 B").output.value
    assert f"1 segment, 2 MiB reserved, {1024 // KIB} KiB allocated" in html
