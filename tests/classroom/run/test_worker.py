"""How a worker grades a submission: with the same feedback as learners saw before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from course_folder import EXERCISE, notebook, with_answers

from vramlab import cli
from vramlab_classroom.judge import notebook_api
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.job_pool import JobDied, JobPool, JobPoolError
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.notebooks import tasks_with_cells
from vramlab_classroom.judge.partial_credit import partial_points
from vramlab_classroom.judge.task import Diagnose, Fix, Predict
from vramlab_classroom.judge.verdict import Grade, Verdict, WrongAnswer
from vramlab_classroom.nbgrader.released_cells import ReleasedCell
from vramlab_classroom.run import worker
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.worker import (
    MarkingConditions,
    MarkingWork,
    OtherVersionsError,
    mark,
    page,
)
from vramlab_classroom.sandbox.bubblewrap import LimitsOnly

CONDITIONS = MarkingConditions("the seed of the tests", LimitsOnly(), (), {})

ANSWERS: Mapping[str, Mapping[str, str]] = {
    "right": {},
    "wrong": {
        "block_bytes": "def block_bytes(requested_bytes):\n    return requested_bytes",
        "releasable_bytes": "def releasable_bytes(segments):\n    return 'none'",
        "row_norms": "def row_norms(load, count):\n    return load(0).sum()",
    },
    "raises": {"segment_bytes": "def segment_bytes(requested_bytes):\n    return 1 // 0"},
    "not_python": {"reserved_bytes": "def reserved_bytes(:"},
}


def released() -> tuple[ReleasedCell, ...]:
    marked = [(cell, cell["metadata"].get("nbgrader")) for cell in notebook()["cells"]]
    return tuple(
        ReleasedCell(
            name=data["grade_id"],
            cell_type=cell["cell_type"],
            source="".join(cell["source"]),
            checksum="",
            locked=data["locked"],
            is_answer=data["solution"],
            points=data.get("points"),
        )
        for cell, data in marked
        if data
    )


def work(content: bytes) -> MarkingWork:
    return MarkingWork("ada", EXERCISE, content, released())


@pytest.fixture(scope="module")
def pool() -> Iterator[JobPool]:
    """Judge everything on one pool: starting one takes longer than judging."""
    with JobPool() as pool, pytest.MonkeyPatch.context() as patch:
        judges = {seed: Judge(pool, seed) for seed in (None, CONDITIONS.seed)}
        patch.setattr(worker, "_pool", lambda sandbox, hidden: pool)
        patch.setattr(worker, "_judge", lambda sandbox, hidden, seed, truths: judges[seed])
        patch.setattr(notebook_api, "shared_judge", lambda: judges[None])
        patch.setattr("vramlab_classroom.judge.judge.Judge", lambda pool: judges[None])
        yield pool


def submissions() -> dict[str, dict[str, Any]]:
    return {
        "blank": notebook("exercises"),
        **{name: with_answers(notebook(), answers) for name, answers in ANSWERS.items()},
    }


def by_check(
    content: dict[str, Any], patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """Run each test cell as JupyterLab and its Validate button do; give what it shows."""
    flat = {"cells": [{**cell, "source": "".join(cell["source"])} for cell in content["cells"]]}
    shown = {}
    for task, _, above in tasks_with_cells(flat):
        shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=above))
        patch.setattr(notebook_api, "get_ipython", lambda shell=shell: shell)
        try:
            notebook_api.check(EXERCISE, task)
            shown[task] = capsys.readouterr().out.rstrip("\n")
        except WrongAnswer as wrong:
            shown[task] = "\n".join(wrong._render_traceback_())
    return shown


def by_command(content: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = folder / "mine.ipynb"
    path.write_text(json.dumps(content))
    cli.main(["check", EXERCISE, "--notebook", f"{path}"])
    return capsys.readouterr().out


def on_visible_cases(verdict: Verdict) -> Verdict:
    """Give what a learner could know of the grader's verdict."""
    visible = tuple(case for case in verdict.cases if case.visible)
    task = find_exercise(EXERCISE).task(verdict.task)
    if verdict.grade is Grade.PASSED or not visible or isinstance(task, Fix):
        return replace(verdict, cases=visible)
    assert isinstance(task, Predict | Diagnose)
    earned = partial_points(task, visible, in_words=False) or None
    grade = Grade.PARTLY if earned else Grade.FAILED
    return replace(verdict, grade=grade, cases=visible, earned=earned)


@pytest.mark.parametrize("name", ["blank", *ANSWERS])
def test_cell_command_and_grader_come_to_one_verdict(
    pool: JobPool,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = submissions()[name]
    in_cells = by_check(content, monkeypatch, capsys)
    output = by_command(content, tmp_path, capsys)
    graded = Marked.from_data(mark(work(json.dumps(content).encode()), CONDITIONS))
    assert list(in_cells) == [task.name for task in find_exercise(EXERCISE).tasks]
    for verdict in graded.verdicts:
        shown = in_cells[verdict.task]
        assert f"{shown}\n\n" in output
        if verdict.grade is Grade.UNANSWERED:
            assert f"{verdict}" == shown
            continue
        seen = on_visible_cases(verdict)
        assert f"{seen}".splitlines()[0] == shown.splitlines()[0]
        if seen.cases:
            table = f"{seen}".split("\n\n")[-1]
            assert table == shown.split("\n\n")[-1]


def test_an_answer_that_only_knows_the_visible_cases_earns_nothing(pool: JobPool) -> None:
    task = find_exercise(EXERCISE).task("block_bytes")
    known = {
        case["requested_bytes"]: pool.measure(find_exercise(EXERCISE), task, [case])[0]["truth"]
        for case in task.visible
    }
    answer = f"def block_bytes(requested_bytes):\n    return {known}.get(requested_bytes, -1)"
    content = with_answers(notebook(), {"block_bytes": answer})
    graded = Marked.from_data(mark(work(json.dumps(content).encode()), CONDITIONS))
    verdict = graded.verdict("block_bytes")
    assert verdict is not None
    assert verdict.grade is Grade.FAILED
    assert all(case.right == case.visible for case in verdict.cases)


def test_a_notebook_that_cannot_be_read_has_a_problem(pool: JobPool) -> None:
    marked = Marked.from_data(mark(work(b"\x1b]0;{"), CONDITIONS))
    assert marked.verdicts == ()
    assert marked.problem.startswith("It is not a notebook: it is not JSON")
    assert marked.notebook is None


def test_other_versions_are_named_on_both_sides() -> None:
    conditions = replace(CONDITIONS, versions={"torch": "1.0"})
    with pytest.raises(OtherVersionsError, match=r"a worker has torch \d.*, but this machine has"):
        mark(work(b""), conditions)


class Dying:
    """A pool whose process ends when it looks for answers while it reads."""

    def __init__(self, pool: JobPool) -> None:
        self._pool = pool

    def call(self, module: str, function: str, **named: Any) -> Any:
        if named["arguments"].get("finding") or named["arguments"].get("plainly") is False:
            raise JobDied("its process ended with SIGSEGV")
        return self._pool.call(module, function, **named)


def test_a_cell_that_kills_its_reader_costs_only_its_own_points(
    pool: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps(notebook()).encode()
    usual = mark(work(content), CONDITIONS)
    monkeypatch.setattr(worker, "_pool", lambda sandbox, hidden: Dying(pool))
    assert mark(work(content), CONDITIONS) == usual


def test_what_could_not_be_judged_is_tried_once_more(
    pool: JobPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [JobPoolError("the judge's process ended")]
    judge_once = Judge._judge

    def failing(self: Judge, *arguments: Any) -> Verdict:
        if failures:
            raise failures.pop()
        return judge_once(self, *arguments)

    monkeypatch.setattr(Judge, "_judge", failing)
    fresh = with_answers(
        notebook(), {"block_bytes": "def block_bytes(requested_bytes):\n    return 0"}
    )
    graded = Marked.from_data(mark(work(json.dumps(fresh).encode()), CONDITIONS))
    assert not failures
    assert graded.ungraded == ()


ORDER = {
    "notebook": {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "*mine* <script>x"}
        ],
    },
    "resources": {
        "nbgrader": {"notebook": EXERCISE, "score": 3, "max_score": 4, "late_penalty": 0},
        "unique_key": EXERCISE,
    },
    "settings": json.dumps(
        {
            "HTMLExporter": {
                "filters": {
                    "markdown2html": "function vramlab_classroom.nbgrader.safe_pages:safe_markdown"
                }
            },
            "steps": ["function nbconvert.preprocessors.csshtmlheader:CSSHTMLHeaderPreprocessor"],
        }
    ),
}


def test_a_page_shows_what_a_learner_wrote_and_runs_none_of_it(pool: JobPool) -> None:
    html = page(ORDER, CONDITIONS)
    assert "<em>mine</em>" in html
    assert "<script>x" not in html
    assert "(Score: 3.0 / 4.0)" in html
