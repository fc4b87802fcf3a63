"""What grading a class costs: `vramlab grade` beside nbgrader and otter-grader, on two cores.

All graders get the same submissions, no two of which are alike, and take turns, so that all meet
the same machine; what counts is the ratio. Wall time tells how long a teacher waits, but also what
else the machine does; CPU time, of all processes together, tells only what grading takes. Starting
a grader is counted, so small classes tell more of that.

    python -m benchmarks.grading                     all of it
    python -m benchmarks.grading contest             the graders side by side
    python -m benchmarks.grading pair                `vramlab grade` beside nbgrader's own steps,
                                                     for exercises 02 and 05
    python -m benchmarks.grading growth --sizes 10 30 100 300 1000
    python -m benchmarks.grading --write             keep it, for docs/grading.md

otter-grader needs an environment of its own, with what the course needs: `--otter ENV/bin/python`.
Its own command grades in containers; here `otter run` does in each of them what the container
would, two at a time, so that starting containers does not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.graders import CORES, Grader, Nbgrader, Otter, Vramlab, environment
from benchmarks.grading_results import (
    REFERENCE,
    RESULTS_FILE,
    GradingResults,
    Run,
    contest_table,
    growth_table,
    pair_table,
)
from benchmarks.submissions import submission
from benchmarks.usage import CommandFailed, adopt_orphans, run
from vramlab.progress import working

SIZES = (10, 30, 100)
PAIR = ("02_pages_and_blocks", "05_one_training_step")

VRAMLAB = Vramlab(REFERENCE)
WITHOUT_PAGES = Vramlab("vramlab grade --no-feedback", ("--no-feedback",))
COURSE = Nbgrader("nbgrader autograde, the course's settings", stock=False)
STOCK = Nbgrader("nbgrader autograde, its own steps", stock=True)


def measure(grader: Grader, students: int, *, alike: bool = False) -> Run:
    """Let a grader grade a class, in a folder that is gone afterwards."""
    notebooks = {
        f"student{n:04}": submission(n, grader.exercise, alike=alike) for n in range(students)
    }
    with tempfile.TemporaryDirectory(prefix="vramlab-benchmark-") as name:
        folder = Path(name)
        grader.lay_out(folder, notebooks)
        with working(f"{grader.name}, {students} students"):
            used = run(grader.command(folder), folder, environment(folder))
        points = grader.points(folder)
    missing = [student for student in notebooks if points.get(student) is None]
    if missing:
        raise CommandFailed(f"{grader.name} has left {len(missing)} without a score: {missing}")
    total = sum(score or 0.0 for score in points.values())
    kind = "alike" if alike else "varied"
    return Run(grader.name, kind, students, total, **vars(used))


def contest(students: int, rounds: int, otter: str | None, keep: _Keep) -> None:
    """Measure all graders in turn, and `vramlab grade` also on a class that answers alike."""
    graders: list[Grader] = [VRAMLAB, WITHOUT_PAGES, COURSE, STOCK]
    if otter:
        graders.append(Otter("otter run", otter))
    else:
        print("without otter-grader: --otter names no Python that has it")
    for _ in range(rounds):
        for grader in graders:
            keep.add("contest", measure(grader, students))
        keep.add("contest", measure(VRAMLAB, students, alike=True))


def pair(exercises: Sequence[str], students: int, keep: _Keep) -> None:
    """Measure `vramlab grade` and nbgrader's own steps in turn, on classes of some exercises.

    Both try the same cases, hidden ones too.
    """
    for exercise in exercises:
        for grader in (VRAMLAB, STOCK):
            run = measure(replace(grader, exercise=exercise), students)
            keep.add("pair", replace(run, kind=exercise))


def growth(sizes: Sequence[int], keep: _Keep) -> None:
    """Measure `vramlab grade` on classes of different sizes."""
    for students in sizes:
        keep.add("growth", measure(VRAMLAB, students))


class _Keep:
    """Collects runs, tells about each, and writes them if asked to."""

    def __init__(self, results: GradingResults, *, write: bool) -> None:
        self.results = results
        self._write = write

    def add(self, part: str, one: Run) -> None:
        print(
            f"{one.grader}, {one.students} {one.kind}: wall {one.wall_s:.1f} s, "
            f"CPU {one.cpu_s:.1f} s, {one.points:g} points",
            flush=True,
        )
        more: dict[str, Any] = {part: (*getattr(self.results, part), one)}
        self.results = replace(self.results, **more)
        if self._write:
            RESULTS_FILE.write_text(self.results.to_json(), encoding="utf-8")


def main() -> int:
    """Measure and print; answer the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ("contest", "growth", "pair")
    parser.add_argument("what", nargs="*", default=known, help=f"any of {', '.join(known)}")
    parser.add_argument("--students", type=int, default=20, help="in the contest")
    parser.add_argument("--exercises", nargs="+", default=PAIR, help="of the pair")
    parser.add_argument("--rounds", type=int, default=2, help="of the contest")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of growing classes")
    parser.add_argument("--otter", metavar="PYTHON", help="of an environment with otter-grader")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS_FILE.name}")
    parser.add_argument("--note", default="", help="what else the machine was doing, for the page")
    options = parser.parse_args()
    if unknown := set(options.what) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if not sys.platform.startswith("linux"):
        parser.error("CPU time of processes that were left behind is counted on Linux only")
    adopt_orphans()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    keep = _Keep(_earlier(options.what, options.note), write=options.write)
    if "contest" in options.what:
        contest(options.students, options.rounds, options.otter, keep)
        print(contest_table(keep.results.contest, REFERENCE), end="\n\n")
    if "pair" in options.what:
        pair(options.exercises, options.students, keep)
        print(pair_table(keep.results.pair), end="\n\n")
    if "growth" in options.what:
        growth(options.sizes, keep)
        print(growth_table(keep.results.growth))
    return 0


def _earlier(what: Sequence[str], note: str) -> GradingResults:
    """Begin with what was found before, of the parts that are not measured anew."""
    versions = {name: version(name) for name in ("vramlab", "nbgrader", "torch", "distributed")}
    found = GradingResults(versions, f"two cores{note and f'; {note}'}")
    if RESULTS_FILE.exists():
        before = GradingResults.from_json(RESULTS_FILE.read_text(encoding="utf-8"))
        if "contest" not in what:
            found = replace(found, contest=before.contest)
        if "growth" not in what:
            found = replace(found, growth=before.growth)
        if "pair" not in what:
            found = replace(found, pair=before.pair)
    return found


if __name__ == "__main__":
    sys.exit(main())
