"""What comes back for a submission, and how it travels."""

from __future__ import annotations

import json

from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict
from vramlab_classroom.run.graded_submission import Marked

CASE = CaseResult({"size": 4}, True, "512", "512", visible=False)
PASSED = Verdict("f", 2, Grade.PASSED, "", (CASE,))
FAILED = Verdict("g", 3, Grade.FAILED, "You forgot to round.")
UNGRADED = Verdict("h", 4, Grade.UNGRADED, "Its process ended with SIGKILL.")


def test_it_travels_as_json() -> None:
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    marked = Marked("Åda", "02_pages", "ab12", (PASSED, FAILED), notebook=notebook)
    assert Marked.from_data(json.loads(json.dumps(marked.as_data()))) == marked


def test_a_task_without_a_score_leaves_the_sum_open() -> None:
    marked = Marked("ada", "02_pages", "ab12", (PASSED, UNGRADED))
    assert marked.ungraded == (UNGRADED,)
    assert marked.needs_human
    assert marked.points is None
