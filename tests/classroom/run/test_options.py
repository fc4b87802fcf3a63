"""Variants, attempts and answers that a human reads, by `vramlab grade` and in the gradebook."""

from __future__ import annotations

import copy
import csv
import io
from pathlib import Path
from typing import Any

import inline_workers
import nbformat
import pytest
from course_folder import EXERCISE, gradebook_of, make_course, notebook, submit, with_answers
from nbgrader.api import Gradebook

from vramlab import cli
from vramlab_classroom.nbgrader.course import find_course
from vramlab_classroom.run import run
from vramlab_classroom.run.journal import read_markings

SETTINGS = "c.Attempts.percent = 10\nc.JudgeTasks.variant_per_student = True\n"
WRONG = "def block_bytes(requested_bytes):\n    return requested_bytes"
REASON = "to be read, and given points by hand"


def with_essay(original: dict[str, Any], text: str) -> dict[str, Any]:
    """Add an answer that a human reads, as JupyterLab's "Manually graded answer" does."""
    changed = copy.deepcopy(original)
    cell = nbformat.v4.new_markdown_cell(text, id="why")
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": "why",
        "grade": True,
        "points": 3,
        "locked": False,
        "solution": True,
        "task": False,
    }
    changed["cells"].append(cell)
    return changed


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, dict[str, Any]]]]:
    """A course, the exit status and the gradebook of each of two runs."""
    folder = make_course(tmp_path_factory.mktemp("course"))
    master = folder / "solutions" / EXERCISE / f"{EXERCISE}.ipynb"
    master.write_text(nbformat.writes(nbformat.from_dict(with_essay(notebook(), ""))))
    settings = folder / "autograder" / "nbgrader_config.py"
    settings.write_text(f"{settings.read_text()}\n{SETTINGS}")
    right = with_essay(notebook(), "Because sizes are rounded.")
    submit(folder, "ada", with_answers(right, {"block_bytes": WRONG}))
    submit(folder, "bob", right)
    submit(folder, "cee", with_essay(notebook(), "YOUR ANSWER HERE"))  # as released
    submit(folder, "dan", b"no notebook")
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("VRAMLAB_GRADEBOOK", raising=False)
        patch.setattr(run, "Workers", inline_workers.InlineWorkers)
        patch.setattr(run, "page", inline_workers.page_of_name)
        for answers in ({}, {"reserved_bytes": "def reserved_bytes(tensor_bytes):\n    return 0"}):
            if runs:
                submit(folder, "ada", with_answers(right, answers))
            status = cli.main(["grade", "--sandbox", "limits"])
            runs.append((status, gradebook_of(folder)))
            markings = read_markings(folder / "autograder" / "journal.db", EXERCISE)
            runs[-1][1]["cases"] = {
                marked.student: {
                    visible: [
                        case.config
                        for verdict in marked.verdicts
                        for case in verdict.cases
                        if case.visible is visible
                    ]
                    for visible in (True, False)
                }
                for marked in markings
            }
    return folder, runs


def scores(book: dict[str, Any], student: str) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = book[f"{student} {EXERCISE}"]["scores"]
    return {name.removesuffix("-test"): score for name, score in found.items()}


def test_each_student_and_each_attempt_has_hidden_cases_of_its_own(told) -> None:
    _, ((_, first), (_, second)) = told
    ada, bob, cee = (first["cases"][name] for name in ("ada", "bob", "cee"))
    assert bob[True] == cee[True]
    assert bob[False] != cee[False]
    assert second["cases"]["bob"] == bob
    assert second["cases"]["ada"][False] != ada[False]


def test_a_second_attempt_earns_less_and_loses_nothing(told) -> None:
    _, ((_, first), (_, second)) = told
    assert scores(first, "ada")["block_bytes"] == (0, None, False)
    assert scores(first, "ada")["reserved_bytes"] == (4, None, False)
    assert scores(second, "ada")["block_bytes"] == (1.8, None, False)  # 2 less 10 %
    assert scores(second, "ada")["reserved_bytes"] == (4, None, False)  # wrong by now
    assert scores(second, "bob") == scores(first, "bob")


def test_what_a_human_reads_waits_beside_what_was_judged(told) -> None:
    _, ((status, first), _) = told
    assert status == 1
    assert scores(first, "bob")["why"] == (None, None, True)
    assert scores(first, "bob")["segment_bytes"] == (3, None, False)
    assert scores(first, "cee")["why"] == (0, None, False)  # nothing was written
    assert scores(first, "dan")["why"] == (None, None, True)  # unknown


def test_it_is_listed_and_counts_once_it_has_points(
    told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = told
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run, "Workers", inline_workers.InlineWorkers)
    monkeypatch.setattr(run, "page", inline_workers.page_of_name)
    cli.main(["grade", "--students", "bob", "--sandbox", "limits"])
    assert f"  bob, {EXERCISE} why: {REASON}\n" in capsys.readouterr().out
    with Gradebook(find_course(folder).db_url) as gradebook:
        grade = gradebook.find_grade("why", EXERCISE, EXERCISE, "bob")
        grade.manual_score, grade.needs_manual_grade = 2.5, False
        gradebook.db.commit()
    assert cli.main(["grade", "--students", "bob", "--sandbox", "limits"]) == 0
    capsys.readouterr()
    cli.main(["scores", "02"])
    table = csv.DictReader(io.StringIO(capsys.readouterr().out))
    rows = {row["student"]: row for row in table}
    assert (rows["bob"]["why"], rows["bob"]["score"]) == ("2.5", "18.5")  # 16 and 2.5
    assert (rows["ada"]["why"], rows["ada"]["score"]) == ("", "")
    assert rows["ada"]["block_bytes"] == "1.8"
