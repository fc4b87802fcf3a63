"""The page of all formulas and the cheat sheets are made of the formulas and the lessons."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.builder import formula_pages
from docs.builder.formula_pages import Formula, cheat_sheet, formulas_of, formulas_table
from vramlab_course.course_map import PARTS, Part
from vramlab_course.experiments.formula_checks import FormulaCheck

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOST_WORDS = 950
"""What fits on a page of A4 in the size of print in which the site prints."""


def test_a_formula_has_its_sentence_its_expression_and_its_source() -> None:
    by_name = {
        formula.name: formula for formula in formulas_of("vramlab_course.lessons.l20_zero.formulas")
    }
    assert by_name["zero.paper_moved"] == Formula(
        "zero.paper_moved",
        "What a rank sends by the paper's count, as a multiple of the parameters' bytes",
        "3 if stage == 3 else 2",
        "the paper's §7.",
    )
    assert by_name["zero.chain_peak_bytes"].expression == ""  # several steps


def test_methods_are_formulas_too_and_names_in_an_expression_are_said() -> None:
    by_name = {f.name: f for f in formulas_of("vramlab_course.formulas.kv_cache")}
    expression = by_name["kv_cache.KVCache.token_bytes"].expression
    assert expression == "2 * layers * kv_heads * head_size * ITEM_BYTES[dtype]"
    sizes = {f.name: f for f in formulas_of("vramlab.cuda_rules.sizes")}
    assert sizes["sizes.unsplit_remainder_bytes"].expression.endswith(
        ", where size_bytes = block_bytes(request_bytes)"
    )


def test_characters_of_markdown_mean_themselves_outside_of_code() -> None:
    row = formulas_table([Formula("f", "a_b < `c_d`", "x | y", "")]).splitlines()[-1]
    assert row == r"| `f` | a\_b \< `c_d` | `x \| y` |"


def test_every_module_of_formulas_is_on_the_page() -> None:
    page = formula_pages.formulas_markdown()
    for name in formula_pages.MODULES:
        if formulas_of(name):
            file = Path(str(find_spec(name).origin))  # type: ignore[union-attr]
            assert f"(../{file.relative_to(DOCS.parent)})" in page


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"part {part.number}")
def test_a_cheat_sheet_fits_on_a_page_and_has_every_lesson(part: Part) -> None:
    text = (DOCS / f"cheat_sheet_{part.number}.md").read_text()
    assert text.startswith(f"# Cheat sheet {part.number}: {part.title}\n")
    assert len(text.split()) <= MOST_WORDS
    for stem in part.stems():
        assert f"](../lessons/{stem}.ipynb)" in text
    assert "several steps" not in text


def test_a_cheat_sheet_tells_how_many_numbers_of_its_part_are_equal() -> None:
    checks = [
        FormulaCheck("a", "01", "?", 3, 2, 10, 10),
        FormulaCheck("b", "03", "?", 4, 4, 10, 10),
        FormulaCheck("c", "04", "?", 9, 9, 10, 10),
    ]
    sheet = cheat_sheet(PARTS[0], checks)  # lessons 01 to 03: 3 + 4 numbers, 2 + 4 equal
    assert "experiments predict 7 numbers; 6 of them match" in sheet
