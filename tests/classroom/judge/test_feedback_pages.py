"""nbgrader's feedback pages say what could not be graded, instead of giving it 0.0."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from classroom import Classroom, with_cells
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory

from vramlab_classroom.judge.job_pool import JobDied, JobPool

EXERCISE = "02_pages_and_blocks"
WRONG = {"releasable_bytes": "def releasable_bytes(segments):\n    return 1"}


def _die(*arguments: object) -> None:
    raise JobDied("its process ended with SIGKILL")


def scores_on(page: Path) -> list[str]:
    """Give what a page says of every score, as text: on top, in its list of tasks, above tasks."""
    text = re.sub(r"<[^>]*>", "\n", page.read_text())
    return re.findall(r"Score: (.+? / [\d.]+)", text)


@pytest.fixture(scope="module")
def feedback(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two students whose repair took its process down; one has got points for it by hand."""
    classroom = Classroom(tmp_path_factory.mktemp("class"), EXERCISE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VRAMLAB_HIDDEN_SEED", "a judge that remembers nothing yet")
        patch.setattr(JobPool, "trial", _die)
        classroom.submit("ada", classroom.solution)
        classroom.submit("bob", with_cells(classroom.solution, WRONG))
        assert classroom.autograde()
    with classroom.gradebook() as gradebook:
        gradebook.find_grade("row_norms-test", EXERCISE, EXERCISE, "bob").manual_score = 1.5
        gradebook.db.commit()
    config = classroom.config
    step = GenerateFeedback(coursedir=CourseDirectory(config=config), config=config)
    step.log.setLevel(logging.ERROR)
    step.start()
    return classroom.folder / "autograder" / "feedback"


def test_what_has_no_score_is_not_graded_nor_is_the_whole(feedback: Path) -> None:
    cells = ["2.0 / 2.0", "3.0 / 3.0", "4.0 / 4.0", "3.0 / 3.0", "not graded / 4.0"]
    page = feedback / "ada" / EXERCISE / f"{EXERCISE}.html"
    assert scores_on(page) == ["not graded / 16.0", *cells, *cells]
