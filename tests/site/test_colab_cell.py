"""Notebooks begin with a cell that installs the course in Colab, and does nothing elsewhere."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement

from docs.builder import address, colab

ADDRESS = "https://github.com/someone/vramlab"


class Shell:
    """Notes the magics that a cell calls."""

    def __init__(self) -> None:
        self.called: list[tuple[str, str]] = []

    def run_line_magic(self, name: str, line: str) -> None:
        self.called.append((name, line))


@pytest.fixture
def shell() -> Shell:
    return Shell()


def run(shell: Shell, repository: str | None = ADDRESS) -> None:
    code = TransformerManager().transform_cell(colab.source(repository))
    exec(code, {"get_ipython": lambda: shell})


def test_elsewhere_nothing_happens(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run(shell)
    assert shell.called == []


def test_in_colab_the_course_is_installed_once(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    run(shell)  # vramlab is there
    assert shell.called == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run(shell)
    git = f"git+{ADDRESS}"
    wanted = (
        f'install --quiet "vramlab @ {git}" '
        f'"vramlab-classroom @ {git}#subdirectory=packages/vramlab-classroom" '
        f'"vramlab-course @ {git}#subdirectory=packages/vramlab-course"'
    )
    assert shell.called == [("pip", wanted)]


@pytest.mark.parametrize("repository", [ADDRESS, None])
def test_what_is_installed_is_this_package_with_what_the_notebooks_need(
    repository: str | None,
) -> None:
    for text in address.requirements(repository):
        wanted = Requirement(text)
        folder = (wanted.url or "").partition("#subdirectory=")[2]
        if wanted.name != "vramlab":
            folder = folder or f"packages/{wanted.name}"
        project = tomllib.loads((colab.ROOT / folder / "pyproject.toml").read_text())["project"]
        assert wanted.name == project["name"]


def test_every_lesson_and_master_has_the_cell_as_it_would_be_written_now() -> None:
    assert len(colab._notebooks(colab.ROOT)) >= 2 * 23
    assert colab.stale() == []  # else: python -m docs.builder.colab


def test_exercises_get_it_from_their_masters() -> None:
    for path in sorted((colab.ROOT / "exercises").glob("*/*.ipynb")):
        second = nbformat.read(path, as_version=nbformat.NO_CONVERT).cells[1]
        assert (second.id, second.source) == (colab.CELL_ID, colab.source())
        assert "nbgrader" not in second.metadata


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """Return a course of one lesson and one exercise without the cell."""
    for name in ("lessons/01_cuda_context", "solutions/01_cuda_context/01_cuda_context"):
        there = tmp_path / f"{name}.ipynb"
        there.parent.mkdir(parents=True)
        shutil.copy(colab.ROOT / f"{name}.ipynb", there)
        notebook: Any = nbformat.read(there, as_version=nbformat.NO_CONVERT)
        notebook.cells = [cell for cell in notebook.cells if cell.id != colab.CELL_ID]
        there.write_text(nbformat.writes(notebook) + "\n")
    return tmp_path


def test_the_cell_is_put_in_once_and_nothing_else_changes(course: Path) -> None:
    paths = colab._notebooks(course)
    before = [json.loads(path.read_text()) for path in paths]
    assert colab.stale(course) == paths
    colab.write(course)
    written = [path.read_bytes() for path in paths]
    assert colab.stale(course) == []
    for path, old in zip(paths, before, strict=True):
        new = json.loads(path.read_text())
        assert new["cells"].pop(1)["id"] == colab.CELL_ID
        assert new == old
    colab.write(course)
    assert [path.read_bytes() for path in paths] == written


# ---- The address ----
