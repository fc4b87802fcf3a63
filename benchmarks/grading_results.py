"""What the grading benchmark found, in a file that is committed, and its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.submissions import ROOT
from vramlab.units import MIB

RESULTS_FILE = ROOT / "benchmarks" / "grading.json"
REFERENCE = "vramlab grade"
ABOUT = "written by `python -m benchmarks.grading --write`; seconds and bytes of each run"


@dataclass(frozen=True)
class Run:
    """One class, graded once by one grader.

    Attributes:
        grader: its name.
        kind: of the class: "varied" or "alike"; in a pair, the exercise, whose classes are varied.
        students: how many.
        points: that were given to all students together.
        wall_s: seconds from start to end.
        cpu_s: seconds of all processes.
        main_bytes: the most that the main process held, as resident memory.
        child_bytes: the most that any one of the others held.
    """

    grader: str
    kind: str
    students: int
    points: float
    wall_s: float
    cpu_s: float
    main_bytes: int
    child_bytes: int


@dataclass(frozen=True)
class GradingResults:
    """What was found.

    Attributes:
        versions: of the packages that were measured.
        machine: in general words.
        contest: all graders on the same classes.
        growth: `vramlab grade` on classes of different sizes.
        pair: `vramlab grade` and nbgrader's own steps on classes of several exercises, one after
            the other.
    """

    versions: Mapping[str, str]
    machine: str
    contest: tuple[Run, ...] = ()
    growth: tuple[Run, ...] = ()
    pair: tuple[Run, ...] = ()

    def to_json(self) -> str:
        """As text."""
        return json.dumps({"about": ABOUT, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> GradingResults:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        return GradingResults(
            data["versions"],
            data["machine"],
            tuple(Run(**run) for run in data["contest"]),
            tuple(Run(**run) for run in data["growth"]),
            tuple(Run(**run) for run in data["pair"]),
        )


def markdown() -> str:
    """Show what is in the committed file: who was compared, and how a class grows."""
    results = GradingResults.from_json(RESULTS_FILE.read_text(encoding="utf-8"))
    made_with = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    parts = (
        pair_table(results.pair) if results.pair else "",
        contest_table(results.contest, REFERENCE),
        growth_table(results.growth),
        at_scale(results),
        f"Made with {made_with}, on {results.machine}.",
    )
    return "\n\n".join(filter(None, parts))


def contest_table(runs: Iterable[Run], reference: str) -> str:
    """One line for each grader and class: its best round, and how many times slower it was.

    Args:
        runs: all of them.
        reference: the grader that the others are compared with, on a varied class.
    """
    best = _best(runs)
    fastest = {run.students: run for run in best if (run.grader, run.kind) == (reference, "varied")}
    lines = [
        "| grader | submissions | points given | wall time each | CPU time each "
        "| wall time, times | CPU time, times | rounds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rounds = _rounds(runs)
    for run in best:
        to = fastest.get(run.students)
        ratios = ("-", "-")
        if to is not None:
            ratios = (f"{run.wall_s / to.wall_s:.1f}", f"{run.cpu_s / to.cpu_s:.1f}")
        lines.append(
            f"| {run.grader} | {run.students} {run.kind} | {run.points:g} "
            f"| {run.wall_s / run.students:.2f} s | {run.cpu_s / run.students:.2f} s "
            f"| {ratios[0]} | {ratios[1]} | {rounds[_key(run)]} |"
        )
    return "\n".join(lines)


def pair_table(runs: Sequence[Run]) -> str:
    """One line for each exercise: what both graders took, and how many times more nbgrader did."""
    lines = [
        "| exercise | submissions | points given | `vramlab grade`: wall time, CPU time "
        "| nbgrader's own steps: wall time, CPU time | wall time, times | CPU time, times |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for exercise in dict.fromkeys(run.kind for run in runs):
        ours, theirs = (
            min((run for run in runs if run.kind == exercise and is_ours(run)), key=_cpu_s)
            for is_ours in (_is_reference, lambda run: not _is_reference(run))
        )
        points = {f"{run.points:g}" for run in (ours, theirs)}
        lines.append(
            f"| {exercise} | {ours.students} varied | {', '.join(sorted(points))} "
            f"| {ours.wall_s:.1f} s, {ours.cpu_s:.1f} s | {theirs.wall_s:.1f} s, "
            f"{theirs.cpu_s:.1f} s | {theirs.wall_s / ours.wall_s:.1f} "
            f"| {theirs.cpu_s / ours.cpu_s:.1f} |"
        )
    return "\n".join(lines)


def _is_reference(run: Run) -> bool:
    return run.grader == REFERENCE


def _cpu_s(run: Run) -> float:
    return run.cpu_s


def growth_table(runs: Sequence[Run]) -> str:
    """One line for each size of a class: time and memory, and the cost of one submission more."""
    lines = [
        "| submissions | wall time | CPU time | CPU time for each more "
        "| main process, at most | largest other process |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    before: Run | None = None
    for run in sorted(_best(runs), key=lambda run: run.students):
        more = "-"
        if before is not None:
            each_s = (run.cpu_s - before.cpu_s) / (run.students - before.students)
            more = f"{each_s:.2f} s"
        lines.append(
            f"| {run.students:,} | {run.wall_s:.0f} s | {run.cpu_s:.0f} s | {more} "
            f"| {run.main_bytes / MIB:.0f} MiB | {run.child_bytes / MIB:.0f} MiB |"
        )
        before = run
    return "\n".join(lines)


def at_scale(results: GradingResults) -> str:
    """Compare each grader's cost of a submission with that in the largest class that was graded.

    The others start anew for each submission, so that theirs does not depend on the class; except
    nbgrader with the course's settings, which starts once, as `vramlab grade` does.
    """
    largest = max(results.growth, key=lambda run: run.students, default=None)
    if largest is None:
        return ""
    wall_s, cpu_s = largest.wall_s / largest.students, largest.cpu_s / largest.students
    others = [
        f"{run.grader} took {run.wall_s / run.students / wall_s:.1f} times the wall time and "
        f"{run.cpu_s / run.students / cpu_s:.1f} times the CPU time"
        for run in _best(results.contest)
        if not run.grader.startswith(REFERENCE)
    ]
    return (
        f"In the class of {largest.students:,}, `{REFERENCE}` took {wall_s:.2f} s of wall time and "
        f"{cpu_s:.2f} s of CPU time for each submission. Against that, for each in the class "
        f"above: {'; '.join(others)}."
    )


def _key(run: Run) -> tuple[str, str, int]:
    return run.grader, run.kind, run.students


def _rounds(runs: Iterable[Run]) -> dict[tuple[str, str, int], int]:
    counts: dict[tuple[str, str, int], int] = {}
    for run in runs:
        counts[_key(run)] = counts.get(_key(run), 0) + 1
    return counts


def _best(runs: Iterable[Run]) -> list[Run]:
    """Of each grader and class, the least times of its rounds: what disturbs makes them longer."""
    best: dict[tuple[str, str, int], Run] = {}
    for run in runs:
        known = best.setdefault(_key(run), run)
        best[_key(run)] = Run(
            run.grader,
            run.kind,
            run.students,
            run.points,
            min(run.wall_s, known.wall_s),
            min(run.cpu_s, known.cpu_s),
            max(run.main_bytes, known.main_bytes),
            max(run.child_bytes, known.child_bytes),
        )
    return list(best.values())
