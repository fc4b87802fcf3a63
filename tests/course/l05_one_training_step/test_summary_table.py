"""A published memory summary beside the measured one."""

from __future__ import annotations

from vramlab_course.experiments.outcome import Finding
from vramlab_course.lessons.l05_one_training_step.summary_table import summary_table


def finding(part: str, published: int, measured: int, unit: str = "KiB, cut") -> Finding:
    return Finding("a-summary", str(published), unit, "003", measured, part=part)


def test_rows_are_the_summarys_and_differences_show_both_numbers() -> None:
    table = summary_table(
        [
            finding("Allocated memory, all, Cur Usage", 49152, 49152),
            finding("Allocated memory, all, Peak Usage", 106497, 123137),
            finding("Allocated memory, small_pool, Cur Usage", 0, 0),
            finding("Allocated memory, small_pool, Peak Usage", 2, 1),
            finding("Allocations, all, Cur Usage", 7, 7, "count"),
            finding("Allocations, all, Peak Usage", 9, 11, "count"),
        ],
        "A summary",
    )
    assert table.header == ("metric", "Cur Usage", "Peak Usage")
    assert table.rows == (
        ("Allocated memory", "49,152 KB", "106,497 KB\nhere 123,137 KB"),
        ("  from small pool", "0 KB", "2 KB\nhere 1 KB"),
        ("Allocations", "7", "9\nhere 11"),
    )
    assert table.notes == ("3 of 6 numbers are equal.",)
    assert table.caption == "A summary"
