"""The benchmark of grading: its classes, what it counts, and its tables."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

from benchmarks import usage
from benchmarks.graders import for_otter
from benchmarks.grading_results import (
    RESULTS_FILE,
    GradingResults,
    Run,
    at_scale,
    contest_table,
    growth_table,
)
from benchmarks.submissions import ROOT, solutions, submission, vary
from vramlab.units import MIB
from vramlab_classroom.judge.notebooks import grade_id, tasks_with_cells

MEASURED = GradingResults.from_json(RESULTS_FILE.read_text(encoding="utf-8"))


def answers(number: int, *, alike: bool = False) -> dict[str, str]:
    cells = submission(number, alike=alike)["cells"]
    return {
        name: "".join(cell["source"]) for cell in cells if (name := grade_id(cell)) in solutions()
    }


def test_no_two_students_of_a_varied_class_answer_alike() -> None:
    ada, bob = answers(1), answers(2)
    assert ada.keys() == bob.keys() == solutions().keys()
    assert all(ada[name] != bob[name] for name in ada)
    assert answers(1, alike=True) == answers(2, alike=True) == solutions()


def test_every_third_student_makes_a_mistake_each_in_another_task() -> None:
    tasks = list(solutions())
    wrong = [[name for name in tasks if "+ (my_number + 1)" in answers(n)[name]] for n in range(9)]
    assert wrong == [[tasks[0]], [], [], [tasks[1]], [], [], [tasks[2]], [], []]


def test_a_variation_gives_the_same_and_a_mistake_something_else() -> None:
    source = "def twice(x):\n    return 2 * x\n"
    results = []
    for wrong in (False, True):
        names: dict[str, object] = {}
        exec(vary(source, 7, wrong=wrong), names)
        results.append(names["twice"](5))  # type: ignore[operator]
    assert results == [10, 10 + 7 + 1]


def test_an_otter_notebook_has_the_same_answers_and_a_check_for_each_task() -> None:
    notebook = for_otter(submission(1))
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    assert sources[0].startswith("import otter")
    assert set(answers(1).values()) <= set(sources)
    checks = [source for source in sources if source.startswith("grader.check(")]
    tasks = [task for task, _, _ in tasks_with_cells(submission(1))]
    assert [ast.literal_eval(check[len("grader.check") :]) for check in checks] == tasks


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux")
def test_cpu_time_of_processes_that_were_left_behind_counts(tmp_path: Path) -> None:
    """A command that ends at once leaves one behind, which spends half a second of CPU time."""
    spend = "import time\nwhile time.process_time() < 0.5: pass"
    leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spend!r}])"
    outer = (
        "import os; from pathlib import Path; from benchmarks import usage; usage.adopt_orphans()\n"
        f"command = [{sys.executable!r}, '-c', {leave!r}]\n"
        f"used = usage.run(command, Path({str(tmp_path)!r}), os.environ)\n"
        "assert used.cpu_s >= 0.5, used"
    )
    folder = tmp_path / "outer"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}"}
    assert usage.run([sys.executable, "-c", outer], folder, environment).cpu_s >= 0.5


def test_a_command_that_fails_is_told_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no kernel'); raise SystemExit(3)"]
    with pytest.raises(usage.CommandFailed, match=r"ended with status 3:\nno kernel"):
        usage.run(command, tmp_path, os.environ)


def run(grader: str, students: int, wall_s: float, cpu_s: float, kind: str = "varied") -> Run:
    return Run(grader, kind, students, 16.0 * students, wall_s, cpu_s, 150 * MIB, 400 * MIB)


def test_the_best_round_counts_and_ratios_are_to_the_reference() -> None:
    runs = [run("ours", 10, 10, 20), run("ours", 10, 12, 18), run("theirs", 10, 60, 54)]
    lines = contest_table(runs, "ours").splitlines()
    assert lines[2:] == [
        "| ours | 10 varied | 160 | 1.00 s | 1.80 s | 1.0 | 1.0 | 2 |",
        "| theirs | 10 varied | 160 | 6.00 s | 5.40 s | 6.0 | 3.0 | 1 |",  # 60 / 10, 54 / 18
    ]


def test_growth_tells_the_cost_of_each_submission_more() -> None:
    lines = growth_table([run("ours", 30, 60, 50), run("ours", 10, 30, 40)]).splitlines()
    assert lines[2:] == [
        "| 10 | 30 s | 40 s | - | 150 MiB | 400 MiB |",
        "| 30 | 60 s | 50 s | 0.50 s | 150 MiB | 400 MiB |",  # (50 - 40) / (30 - 10)
    ]


def test_at_scale_others_are_compared_for_each_submission() -> None:
    ours, theirs = run("vramlab grade", 100, 50, 80), run("theirs", 10, 60, 54)
    results = GradingResults({}, "", (run("vramlab grade", 10, 10, 20), theirs), (ours,))
    assert at_scale(results) == (
        "In the class of 100, `vramlab grade` took 0.50 s of wall time and 0.80 s of CPU time for "
        # (60 / 10) / 0.5 = 12, (54 / 10) / 0.8 = 6.75
        "each submission. Against that, for each in the class above: theirs took 12.0 times the "
        "wall time and 6.8 times the CPU time."
    )


def test_results_can_be_read_back() -> None:
    assert GradingResults.from_json(MEASURED.to_json()) == MEASURED


def test_all_graders_gave_the_same_points() -> None:
    for kind in ("varied", "alike"):
        for students in {one.students for one in MEASURED.contest}:
            given = {
                one.points
                for one in MEASURED.contest
                if (one.kind, one.students) == (kind, students)
            }
            assert len(given) <= 1
