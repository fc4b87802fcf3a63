"""The course that is graded: where its folders and its gradebook are, by nbgrader's settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vramlab.errors import VramlabError

if TYPE_CHECKING:
    from traitlets.config import Config

GRADEBOOK_VARIABLE = "VRAMLAB_GRADEBOOK"
"""URL of the gradebook, instead of the one in the settings."""

_SETTINGS = Path("autograder", "nbgrader_config.py")


class NoCourseError(VramlabError):
    """There is no course here."""


@dataclass(frozen=True)
class Course:
    """A course on disk."""

    root: Path
    """The folder that has `autograder/`."""

    config: Config
    """nbgrader's settings, with `CourseDirectory.db_url` as it was asked for."""

    @property
    def db_url(self) -> str:
        """URL of the gradebook, with its password if it has one: not for showing."""
        return str(self.config.CourseDirectory.db_url)

    @property
    def submitted(self) -> Path:
        """Submissions: `<student>/<assignment>/<assignment>.ipynb`."""
        return self._folder("submitted")

    @property
    def autograded(self) -> Path:
        """What nbgrader makes of them, with the verdicts; laid out in the same way."""
        return self._folder("autograded")

    @property
    def feedback(self) -> Path:
        """Pages for the students; laid out in the same way."""
        return self._folder("feedback")

    @property
    def solutions(self) -> Path:
        """The masters: `<assignment>/<assignment>.ipynb`."""
        return self._folder("source")

    @property
    def journal(self) -> Path:
        """What was marked and what was entered (see `journal.py`)."""
        return self.root / "autograder" / "journal.db"

    @property
    def seed_file(self) -> Path:
        """Holds the seed of the hidden cases."""
        return self.root / str(self.config.JudgeTasks.seed_file)

    @property
    def has_variants(self) -> bool:
        """Whether each student has hidden cases of their own."""
        from vramlab_classroom.nbgrader.nbgrader_steps import JudgeTasks

        return bool(JudgeTasks(config=self.config).variant_per_student)

    def _folder(self, step: str) -> Path:
        return self.root / str(self.config.CourseDirectory[f"{step}_directory"])


def find_course(start: Path | None = None, *, db_url: str | None = None) -> Course:
    """Find the course in a folder, or in one above it.

    Args:
        start: the folder; by default the current one.
        db_url: of the gradebook; by default what `VRAMLAB_GRADEBOOK` or else the settings say.

    Raises:
        NoCourseError: there is none.
    """
    start = (start or Path.cwd()).resolve()
    for root in (start, *start.parents):
        if (root / _SETTINGS).is_file():
            return _course(root, db_url or os.environ.get(GRADEBOOK_VARIABLE))
    raise NoCourseError(
        f"there is no course in {start} or above it: no folder has {_SETTINGS}; "
        "go to the folder of the course"
    )


def _course(root: Path, db_url: str | None) -> Course:
    from vramlab_classroom.nbgrader.release import course_config

    config = course_config(root)
    if db_url:
        config.CourseDirectory.db_url = db_url
    return Course(root, config)
