"""A small class, graded with the course's own commands, in nbgrader's formgrader."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from running_lab import BIN, ROOT, RunningLab

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXERCISE = "01_cuda_context"


@pytest.fixture(scope="module")
def graded(lab: RunningLab) -> RunningLab:
    """Grade two submissions, one that is solved and one that is not."""
    handed_in = lab.course / "handed-in"
    for student, folder in (("ada", "solutions"), ("ben", "exercises")):
        (handed_in / student).mkdir(parents=True)
        notebook = ROOT / folder / EXERCISE / f"{EXERCISE}.ipynb"
        shutil.copy(notebook, handed_in / student)
    command(lab, "nbgrader", "generate_assignment", EXERCISE)
    command(lab, "vramlab", "collect", "handed-in")
    command(lab, "vramlab", "grade", "01", "--no-feedback")
    return lab


def command(lab: RunningLab, name: str, *arguments: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VRAMLAB_")}
    environment |= {"PATH": f"{BIN}{os.pathsep}{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [BIN / name, *arguments], cwd=lab.course, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_formgrader_opens_from_the_menu_and_shows_assignments_and_scores(
    graded: RunningLab, page: Page
) -> None:
    page.goto(graded.address("lab?reset"))
    page.get_by_role("menuitem", name="Nbgrader").click(timeout=120_000)
    page.get_by_role("menuitem", name="Formgrader", exact=True).click()
    formgrader = page.frame_locator("iframe")
    rows = formgrader.get_by_role("row")
    rows.filter(has_text=EXERCISE).wait_for(timeout=60_000)
    shown = "\n".join(rows.all_inner_texts())
    for exercise in (graded.course / "exercises").iterdir():
        assert exercise.name in shown
    submissions = rows.filter(has_text=EXERCISE).get_by_role("link", name="2", exact=True)
    assert submissions.count() == 1

    formgrader.get_by_role("link", name="Manage Students").click()
    rows.filter(has_text="ada").filter(has_text="13 / 13").wait_for()
    rows.filter(has_text="ben").filter(has_text="0 / 13").wait_for()
