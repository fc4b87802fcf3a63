"""The tables "In real libraries": their files are whole, and their bytes are what sizes say."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramlab.units import MIB
from vramlab_course.libraries import LibraryRow, library_table
from vramlab_course.libraries import results as results_module
from vramlab_course.libraries.__main__ import LESSONS
from vramlab_course.libraries.results import read_rows, save_rows

ROOT = Path(__file__).parents[3]


def sizes(lesson: str, name: str, of: str = "") -> dict[str, int]:
    """The one row whose name has these words."""
    (row,) = (row for row in read_rows(lesson)[1] if name in row.name and of in row.name)
    return dict(row.sizes_bytes)


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_lesson_has_its_rows_and_shows_them(lesson: str) -> None:
    conditions, rows = read_rows(lesson)
    assert conditions.startswith("PyTorch ")
    assert len({tuple(row.sizes_bytes) for row in rows}) == 1
    assert len({row.name for row in rows}) == len(rows) >= 3
    (notebook,) = (ROOT / "lessons").glob(f"{lesson}_*.ipynb")
    assert f'library_table(\\"{lesson}\\"' in notebook.read_text(encoding="utf-8")


def test_states_are_those_of_the_formats() -> None:
    numbers = 4096 * 1024
    scales = 2 * numbers // 256 * 4  # two moments, a float32 for each block of 256
    codebooks = 2 * 256 * 4
    assert sizes("16", "PagedAdamW8bit")["states"] == scales + codebooks
    assert sizes("16", ": AdamW8bit", of="bitsandbytes")["states"] == (
        2 * numbers + scales + codebooks
    )
    assert sizes("16", "AdamW4bit")["states"] == (
        numbers + 2 * numbers // 128 * 4 + 2 * 512  # and two small codebooks
    )
    assert sizes("16", "PyTorch: AdamW")["states"] == 8 * numbers


def test_deepspeed_keeps_what_the_stages_say() -> None:
    parameters = 8 * 2048**2
    kept = "kept between steps"
    assert sizes("20", "stage 0")[kept] // MIB == 14 * parameters // MIB
    # bfloat16 parameters whole, and an eighth of the float32 copy and two states
    for stage in ("stage 1,", "stage 2, buckets"):
        assert sizes("20", stage)[kept] // MIB == (16 + 12) * parameters // 8 // MIB
    # shards of all 16 bytes, and the bucket in bfloat16
    bucket = 2 * 2048**2
    assert sizes("20", "stage 3, b")[kept] // MIB == (2 * parameters + bucket) // MIB


def test_labels_peak_at_seven_times_the_logits() -> None:
    logits = 8192 * 128_256 * 2
    assert round(sizes("25", "labels=")["peak"] / logits, 1) == 7.0
    assert round(sizes("25", "the course: cross_entropy")["peak"] / logits, 1) == 3.0


def test_views_save_the_gradients_copy() -> None:
    plain = sizes("19", "buckets of 100")["peak of a step"]
    views = sizes("19", "bucket_view")["peak of a step"]
    assert plain - views == 128 * MIB - 20 * MIB


def test_transformers_and_accelerate_take_the_bytes_of_plain_pytorch() -> None:
    assert sizes("13", "accumulate()") == sizes("13", "four micro-batches", of="the course")
    assert sizes("15", "bf16") == sizes("15", "autocast")


def test_a_lesson_without_rows_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(results_module, "MEASURED", tmp_path / "measured.json")
    save_rows("90", "PyTorch 1, a GPU", [LibraryRow("one 1.0: this", {"held": 3 * MIB})])
    save_rows("91", "PyTorch 1, a GPU", [LibraryRow("one 1.0: that", {"held": 1})])
    table = library_table("90", "A caption")
    assert table.caption == "A caption (PyTorch 1, a GPU)"
    assert table.header == ("program", "held, MiB")
    assert table.rows == (("one 1.0: this", "3.0"),)
    with pytest.raises(KeyError, match="'16' has no table of libraries; 90, 91 have one"):
        library_table("16", "A caption")
