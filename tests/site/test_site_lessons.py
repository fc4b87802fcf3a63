"""Lessons are run for the site, once; a lesson that fails or complains stops the build."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from docs.builder.lessons import WIDGET, LessonFailed, fingerprint, run, run_all


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout with a package, a lock, and a folder for lessons."""
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    (tmp_path / "vramlab").mkdir()
    (tmp_path / "vramlab" / "__init__.py").write_text("MARK = 'this checkout'\n")
    (tmp_path / "lessons").mkdir()
    return tmp_path


def lesson(root: Path, code: str) -> Path:
    path = root / "lessons" / "01_tiny.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(code, id="tiny")]), path)
    return path


def test_a_lesson_runs_in_its_folder_once_and_again_when_the_package_changes(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import os, vramlab; print(vramlab.MARK, 'in', os.path.basename(os.getcwd()))"
    path = lesson(root, code)

    runs = run_all([path], root / "kept", root)
    (cell,) = nbformat.read(runs[path], as_version=4).cells
    assert [output.text for output in cell.outputs] == ["this checkout in lessons\n"]
    assert nbformat.read(path, as_version=4).cells[0].outputs == []

    assert run_all([path], root / "kept", root) == runs
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "lessons: 0 unchanged, 1 to run"
    assert said[1].startswith("lessons: 1 of 1, 01_tiny, ")
    assert said[2:] == ["lessons: 1 unchanged, 0 to run"]

    before = fingerprint(root)
    (root / "vramlab" / "__init__.py").write_text("MARK = 'changed'\n")
    assert fingerprint(root) != before


def test_a_failing_cell_fails_the_build_with_its_error(root: Path) -> None:
    path = lesson(root, "1 / 0")
    with pytest.raises(ExceptionGroup, match="lessons failed") as caught:
        run_all([path], root / "kept", root)
    (failure,) = caught.value.exceptions
    assert "01_tiny.ipynb" in str(failure)
    assert "ZeroDivisionError" in str(failure)
    assert list((root / "kept").iterdir()) == []


def test_a_warning_fails_the_build_and_a_widget_leaves_what_it_shows_without_a_kernel(
    root: Path,
) -> None:
    show = f"display({{{WIDGET!r}: {{}}, 'text/html': '<p>still</p>'}}, raw=True)"
    path = lesson(root, show)
    (output,) = run(path, root).cells[0].outputs
    assert output.data == {"text/html": "<p>still</p>"}

    path = lesson(root, "import warnings; warnings.warn('old')")
    with pytest.raises(LessonFailed, match=r"01_tiny\.ipynb, cell tiny, wrote to stderr: .*old"):
        run(path, root)
