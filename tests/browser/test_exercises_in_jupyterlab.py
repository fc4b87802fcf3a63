"""An exercise in JupyterLab: its Validate button says what is missing, and when nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import nbformat
import pytest
from notebook_page import NotebookPage
from running_lab import ROOT, RunningLab

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXERCISE = "01_cuda_context"
VALIDATE_MS = 300_000


@pytest.fixture
def exercise(lab: RunningLab, page: Page) -> Iterator[NotebookPage]:
    """Return an exercise as learners get it."""
    exercise = NotebookPage(page, lab, f"exercises/{EXERCISE}/{EXERCISE}.ipynb")
    yield exercise
    exercise.close()


def validate(exercise: NotebookPage) -> str:
    """Press the Validate button, and return what the dialog says."""
    exercise.page.get_by_role("button", name="Validate").click()
    dialog = exercise.page.get_by_role("dialog")
    dialog.get_by_text("Validation Results").wait_for(timeout=VALIDATE_MS)
    said = dialog.inner_text()
    dialog.get_by_role("button", name="OK").click()
    dialog.wait_for(state="detached")
    return said


def test_validate_names_what_is_unanswered_and_passes_what_is_solved(
    exercise: NotebookPage,
) -> None:
    solution = nbformat.read(ROOT / "solutions" / EXERCISE / f"{EXERCISE}.ipynb", as_version=4)
    answers = {
        cell.id: cell.source
        for cell in solution.cells
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution")
    }
    said = validate(exercise)
    for name in answers:
        assert f"{name}: not answered yet" in said

    for name, source in answers.items():
        exercise.fill_in(name, source)
    assert "Success" in validate(exercise)
    typed = {cell.id: cell.source for cell in exercise.save().cells}
    assert {name: typed[name] for name in answers} == answers
