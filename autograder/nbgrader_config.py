"""nbgrader's settings for this course; read from the repository's root and from this folder.

Each setting is explained next to it; `vramlab_classroom/judge/__init__.py` explains grading.
"""

import os
import sys
from functools import partial
from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
)

from vramlab_classroom.nbgrader.export import ScoresExport
from vramlab_classroom.nbgrader.feedback_pages import PAGE_FILTERS, FeedbackExporter, GetScores
from vramlab_classroom.nbgrader.gradebooks import forget_scores
from vramlab_classroom.nbgrader.late_penalty import LatePenalty
from vramlab_classroom.nbgrader.nbgrader_steps import JudgeTasks, RestoreCells, SaveGrades
from vramlab_classroom.sandbox.bubblewrap import best_command

HERE = Path(__file__).resolve().parent

# nbgrader starts `alembic` by that name: let it find the one beside this Python, whether or not the
# environment has been activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

c = get_config()  # noqa: F821  (given by nbgrader)

c.CourseDirectory.course_id = "vramlab"
c.CourseDirectory.root = str(HERE.parent)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.submitted_directory = "autograder/submitted"
c.CourseDirectory.autograded_directory = "autograder/autograded"
c.CourseDirectory.feedback_directory = "autograder/feedback"
# A gradebook elsewhere can be named outside of this file: postgresql://teacher@host/course.
c.CourseDirectory.db_url = os.environ.get("VRAMLAB_GRADEBOOK", f"sqlite:///{HERE / 'gradebook.db'}")

# One answer of a learner at a time, in processes of our own: nothing of a submission is executed
# in a kernel, so no kernel can die, print to stderr or outlast its time.
c.Autograde.sanitize_preprocessors = [
    RestoreCells,
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    JudgeTasks,
    LimitOutput,
    SaveGrades,
    AssignLatePenalties,  # nothing here changes metadata that was checked above
]
c.Autograde.pre_convert_hook = partial(forget_scores, c.CourseDirectory.db_url)
c.JudgeTasks.seed_file = str(HERE / "hidden_seed.txt")
c.JudgeTasks.masters = str(HERE.parent / "solutions")
# In bubblewrap where that works, as `vramlab grade` does; elsewhere with a warning.
c.JudgeTasks.pool_command = partial(best_command, HERE.parent)

# Other hidden cases for each student, so that what one tells helps no other:
# c.JudgeTasks.variant_per_student = True

# Of several submissions the last counts. Of each task the best, less for example 10 % of its points
# for each attempt after the first, and no more than 3 attempts:
# c.Attempts.percent = 10; c.Attempts.most = 3

# By default, late submissions lose no points. With a due date in the formgrader, for example 10 %
# of the points per day begun, after 15 minutes of grace, and all points after 5 days:
# c.LatePenalty.percent_per_day = 10; c.LatePenalty.grace_minutes = 15
# c.LatePenalty.zero_after_days = 5
c.AssignLatePenalties.plugin_class = LatePenalty

# nbgrader's own CSV has 0.0 for what could not be graded; here it is empty, with the reason.
c.ExportApp.plugin_class = ScoresExport

# What a learner wrote in Markdown must not run in the pages of feedback and formgrader, and a task
# that could not be graded has no 0.0 there.
c.HTMLExporter.filters = PAGE_FILTERS
c.GenerateFeedback.exporter_class = FeedbackExporter
c.GenerateFeedback.preprocessors = [GetScores, CSSHTMLHeaderPreprocessor]

# JupyterLab's Validate button does execute the notebook. A first check starts a process that
# imports torch, which takes longer than nbgrader's 30 s on a busy laptop.
c.Execute.timeout = 120
# exercises/ is committed and generated from solutions/: without `force`, nbgrader would skip the
# exercise and leave its gradebook empty.
c.GenerateAssignment.force = True
c.ClearSolutions.code_stub = {"python": "# your answer\nraise NotImplementedError"}
