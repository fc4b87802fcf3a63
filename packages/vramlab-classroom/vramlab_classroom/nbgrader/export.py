"""Lets `nbgrader export` write what `vramlab scores` writes: its own CSV has 0.0 for no score."""

from __future__ import annotations

from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin

from vramlab_classroom.nbgrader.scores import read_scores
from vramlab_classroom.nbgrader.scores_csv import scores_csv

DEFAULT_FILE = "grades.csv"
"""nbgrader's own."""


class ScoresExport(ExportPlugin):  # type: ignore[misc]
    """Writes scores as CSV; see `vramlab_classroom.nbgrader.scores_csv`."""

    def export(self, gradebook: Gradebook) -> None:
        """Write the scores of the assignments and students that were asked for, or of all."""
        students = {str(student) for student in self.student}
        scores = [
            score
            for score in read_scores(gradebook, [str(name) for name in self.assignment])
            if not students or score.student in students
        ]
        Path(self.to or DEFAULT_FILE).write_text(scores_csv(scores), encoding="utf-8", newline="")
