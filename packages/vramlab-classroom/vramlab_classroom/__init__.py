"""Grading: the judge, and what stands behind `vramlab grade`.

`judge/` explains how one answer is judged, `sandbox/` how it is isolated. `nbgrader/` gets
nbgrader's notebooks and gradebook there and back. The rest is about a class, in `run/` unless it
says otherwise:

How a submission becomes a grade
    It is found (`submissions.py`), read where it can do no harm and cleaned (`reading.py`), and
    its answers are judged (`worker.py`); what comes back is data (`graded_submission.py`). That is
    done by the workers of a Dask cluster (`cluster.py`), many at a time, each in a sandbox
    (`sandbox/bubblewrap.py`), and all of the same versions (`versions.py`). A worker gets the
    submission as data; it sees no gradebook, no other submission and no solution. Verdicts stay
    valid until code that judges changes (`sources.py`).

How a grade gets into the gradebook
    One process writes. What was marked is in the journal first (`journal.py`), so that it is never
    lost and never done twice; then it goes through nbgrader's own converters
    (`gradebook_writer.py`), so that gradebook and formgrader show it as always. What lay beside the
    notebook comes with it (`attachments.py`). A worker makes the feedback page (`pages.py`,
    `feedback_requests.py`).

What ties it together
    `run.py`; `nbgrader/course.py` says where everything lies, `progress.py` shows how far it is,
    and `needs_review.py` what is left for a human.

How submissions come in, and grades go out (`lms/`, `reports/`)
    A folder, or what Canvas or Moodle gave for download, is collected (`collecting.py`): files are
    listed and read without trusting them (`archives.py`), and their names say whose they are
    (`submission_names.py`,
    `student_ids.py`). Feedback goes back by the same names (`returning.py`).
    Everything that is exported starts from `nbgrader/scores.py`, which reads the gradebook: CSV
    (`scores_csv.py`), the files of Canvas and Moodle (`gradebook_files.py`), and what a class did
    (`class_report.py`, as a page `class_page.py`). For Gradescope, `gradescope_zip.py` packs all
    that grades an exercise, and `gradescope.py` is what runs there.

What could not be graded has no score: it is never a zero, and never stops the class.
"""

__version__ = "0.1.0"
