"""The table of CUDA contexts says what is measured, what is estimated, and what was."""

from __future__ import annotations

from vramlab_course.lessons.l01_cuda_context.experiment import contexts_table


def test_measured_estimated_and_past_contexts_are_told_apart() -> None:
    table = contexts_table(["RTX-3090", "V100-16GB", "T4"])
    cells = {row[0]: (row[1], row[3]) for row in table.rows}
    assert cells == {
        "RTX-3090": ("256", "1,639"),
        "V100-16GB": ("~324", "1,351"),
        "T4": ("~134", ""),  # not measured, and in no document
    }


def test_every_size_has_its_source_below() -> None:
    notes = contexts_table(["RTX-3090"]).notes
    assert [note.partition(":")[0] for note in notes] == [
        "RTX-3090, today",
        "RTX-3090, in the past",
    ]
    assert "document 003" in notes[1]
