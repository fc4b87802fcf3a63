"""Every lesson keeps what lessons promise: its parts are there, and it runs without a GPU."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest
from forked_kernels import execute
from given_away import given_away
from lesson_parts import (
    LESSONS,
    Notebook,
    called_name,
    calls,
    code_cells,
    main_path,
    names_called,
    prose,
    read_lesson,
)
from numbers_without_output import WITHOUT_OUTPUT
from stated_numbers import stated_only

MOST_MINUTES = 25

PREMISES = {
    # The table that the reader is asked to use has the sizes of segments in its rows.
    "02_pages_and_blocks": {"sizes"},
    # Two pieces are drawn, and asked is what fits into them; and 800 MiB are tried in 1,000 before
    # it is asked what tensors of 7 MiB take.
    "03_fragmentation_and_oom": {"split", "fragment-800"},
    # What training keeps is drawn. After eval() it is as much, of other tensors.
    "07_inference": {"two-passes"},
    # What x takes is said. Asked is what its reshaping adds.
    "08_what_operators_save": {"predict-reshape"},
    # What float32 takes is said. Asked is whether autocast changes it.
    "12_estimating_large_models": {"floor-idea"},
}
"""Cells that say, in what a question is about, a size that happens to be its answer."""


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def lesson(path: Path) -> Notebook:
    return read_lesson(path)


def title(path: Path) -> str:
    """Such as `02 · Pages and blocks`."""
    heading: str = read_lesson(path).cells[0].source
    return heading.partition("\n")[0].removeprefix("# ")


# ---- The opening ----


def test_lessons_are_numbered_without_gaps() -> None:
    numbers = [path.stem.partition("_")[0] for path in LESSONS]
    assert numbers == [f"{number:02}" for number in range(1, 31)]


def test_says_what_one_can_do_afterwards_how_long_it_takes_and_what_it_builds_on(
    path: Path, lesson: Notebook
) -> None:
    opening = lesson.cells[0].source
    assert re.search(r"^Afterwards you can\n\n(- .+\n)+", opening, flags=re.MULTILINE)
    minutes = re.search(r"\*\*Takes\*\* about (\d+) minutes", opening)
    assert minutes is not None
    assert int(minutes[1]) <= MOST_MINUTES
    builds_on = re.search(r"\*\*Builds on\*\* (.+)", opening)
    assert builds_on is not None
    earlier = [int(number) for number in re.findall(r"\[(\d\d) · ", builds_on[1])]
    assert all(number < int(path.stem[:2]) for number in earlier)
    assert earlier or path.stem.startswith("01")


def test_the_first_code_cell_attaches_a_gpu(lesson: Notebook) -> None:
    assert "attach" in {called_name(call) for call in calls(code_cells(lesson.cells)[0])}


# ---- Predict, measure, explain ----


def test_every_prediction_is_asked_shown_and_revealed_in_a_later_cell(lesson: Notebook) -> None:
    asked: dict[str, int] = {}
    revealed: dict[str, int] = {}
    for number, cell in enumerate(code_cells(lesson.cells)):
        tree = ast.parse(cell.source)
        for node in tree.body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and called_name(node.value) == "predict"
            ):
                assert isinstance(node.targets[0], ast.Name)
                name = node.targets[0].id
                assert name not in asked
                asked[name] = number
                assert ast.unparse(tree.body[-1]) == name, f"{cell.id} does not show its field"
        for call in calls(cell):
            if called_name(call) == "reveal":
                assert isinstance(call.func, ast.Attribute)
                revealed.setdefault(ast.unparse(call.func.value), number)
                # JupyterLab shows a cell's last expression, and nothing else by itself.
                assert ast.unparse(tree.body[-1]) == ast.unparse(call), f"{cell.id} hides it"
    assert len(asked) >= 2
    assert sorted(asked) == sorted(revealed)
    assert [name for name, number in asked.items() if revealed[name] <= number] == []


def test_has_a_picture_and_something_to_explore(lesson: Notebook) -> None:
    called = names_called(lesson.cells)
    assert any(name.startswith("draw_") for name in called)
    assert any(name.endswith("explorer") or name == "Explorer" for name in called)


# ---- The end ----


def test_names_its_exercise_and_the_next_step(path: Path, lesson: Notebook) -> None:
    last = main_path(lesson)[-1].source
    assert "**Next:**" in last
    assert f"(../exercises/{path.stem}/{path.stem}.ipynb)" in last


def test_leads_to_the_next_lesson(path: Path, lesson: Notebook) -> None:
    number = f"{int(path.stem[:2]) + 1:02}"
    for following in (other for other in LESSONS if other.stem.startswith(f"{number}_")):
        leads_to = f", then [{title(following)}]({following.name})."
        assert leads_to in main_path(lesson)[-1].source


# ---- The file ----


def test_is_committed_without_outputs_and_with_readable_unique_cell_ids(lesson: Notebook) -> None:
    nbformat.validate(lesson)
    assert (lesson.nbformat, lesson.nbformat_minor) == (4, 5)
    ids = [cell.id for cell in lesson.cells]
    assert len(set(ids)) == len(ids)
    assert [i for i in ids if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", i)] == []
    assert [i for i in ids if re.fullmatch(r"[0-9a-f]{8}", i)] == []  # what Jupyter makes up
    for cell in code_cells(lesson.cells):
        assert (cell.outputs, cell.execution_count) == ([], None), cell.id


def test_names_no_path_of_the_authors_machine(lesson: Notebook) -> None:
    text = "\n".join(cell.source for cell in lesson.cells)
    assert re.findall(r"(?<![\w.:/])/(?:home|root|tmp|usr|work|Users)/\S*|[A-Z]:\\\S*", text) == []


def test_links_lead_to_files_that_exist(path: Path, lesson: Notebook) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(lesson.cells))
    own = [target for target in targets if not target.startswith("https://")]
    assert [target for target in own if not (path.parent / target).is_file()] == []


def test_writes_formulas_that_every_page_shows(lesson: Notebook) -> None:
    assert "$$" not in prose(lesson.cells)  # only JupyterLab reads TeX; the site does not


# ---- Running it ----


# The '::' lets pytest-xdist's loadscope give each lesson to whichever worker is free. The last
# lessons take longest, so they come first: no worker is left with one alone.
@pytest.mark.long
@pytest.mark.parametrize("path", LESSONS[::-1], ids=lambda path: f"{path.stem}::run")
def test_runs_from_top_to_bottom_without_a_word_on_stderr(
    path: Path, lesson: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("VRAMLAB_GPU", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    execute(lesson, path.parent)
    said = {
        cell.id: output.text
        for cell in code_cells(lesson.cells)
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    }
    assert said == {}
    assert all(cell.execution_count for cell in code_cells(lesson.cells) if cell.source)
    # No answer shows before the learner commits to a prediction: neither in the text, nor printed,
    # nor in a picture, nor in the words that follow it.
    assert {cell for cell, _ in given_away(lesson.cells)} == PREMISES.get(path.stem, set())
    # A number in a sentence or a title is in an output near it, or has become wrong.
    stated = {words for _, words in stated_only(lesson.cells)}
    assert stated - WITHOUT_OUTPUT.get(path.stem[:2], set()) == set()
