"""What makes verdicts void, and what must be the same on all machines."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module, invalidate_caches
from importlib.metadata import version
from pathlib import Path

import pytest

from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.nbgrader.released_cells import ReleasedCell
from vramlab_classroom.run.versions import digest, fingerprint, versions

CELL = ReleasedCell("f-test", "code", "check('f')", "c", locked=True, is_answer=False, points=2.0)


@pytest.fixture
def exercise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exercise:
    (tmp_path / "mendable_exercise.py").write_text("TRUTH = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mendable_exercise", raising=False)
    invalidate_caches()
    return Exercise("mendable", import_module("mendable_exercise").__name__, ())


def test_the_same_judges_the_same(exercise: Exercise) -> None:
    assert fingerprint(exercise, "seed", [CELL]) == fingerprint(exercise, "seed", [CELL])


def test_all_that_judges_counts(exercise: Exercise, tmp_path: Path) -> None:
    seen = {
        fingerprint(exercise, "seed", [CELL]),
        fingerprint(exercise, "another seed", [CELL]),
        fingerprint(exercise, "seed", [replace(CELL, points=3.0)]),
    }
    (tmp_path / "mendable_exercise.py").write_text("TRUTH = 2\n")
    seen.add(fingerprint(exercise, "seed", [CELL]))
    seen.add(fingerprint(exercise, "seed", [CELL], {"truth": "truth = 2"}))
    assert len(seen) == 5


def test_a_checkout_has_another_version_as_soon_as_a_file_changes(tmp_path: Path) -> None:
    assert versions()["torch"] == version("torch")
    assert versions()["vramlab"].startswith(f"{version('vramlab')} (files ")
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("ab")
    second.write_text("c")
    before = digest([first, second])
    first.write_text("a")
    second.write_text("bc")
    assert digest([first, second]) != before
