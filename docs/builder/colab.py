"""The cell with which notebooks begin: in Colab it installs the course, elsewhere it does nothing.

Colab opens a notebook alone, without the package beside it. It has PyTorch, transformers, pictures
and widgets; what `vramlab-course` adds to them is small, and replaces nothing of Colab's own
Jupyter. The cell is folded in JupyterLab, and left out of the site.

    python -m docs.builder.colab            write the cells of lessons/ and solutions/ again
    python -m docs.builder.colab --check    say which are stale; the exit status is 1 if any is

exercises/ come from solutions/: run `make notebooks` afterwards. What is installed, and from where,
stands in `address.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import nbformat

from docs.builder.address import REPOSITORY, requirements

ROOT = Path(__file__).resolve().parents[2]
CELL_ID = "colab"

Notebook = Any


def source(repository: str | None = REPOSITORY) -> str:
    """Write what the cell does."""
    wanted = " ".join(f'"{each}"' for each in requirements(repository))
    return f"""\
# In Colab: install the course
import sys
from importlib.util import find_spec

if "google.colab" in sys.modules and not find_spec("vramlab_course"):
    %pip install --quiet {wanted}"""


def cell(repository: str | None = REPOSITORY) -> Any:
    """The cell, which belongs to no task of an exercise: nbgrader does not know it."""
    return nbformat.v4.new_code_cell(
        source(repository),
        id=CELL_ID,
        metadata={"jupyter": {"source_hidden": True}, "tags": ["remove-cell"]},
    )


def put(notebook: Notebook, repository: str | None = REPOSITORY) -> None:
    """Make it the second cell, behind the opening; all other cells stay as they are."""
    others = [each for each in notebook.cells if each.get("id") != CELL_ID]
    notebook.cells = [others[0], cell(repository), *others[1:]]


def stale(folder: Path = ROOT) -> list[Path]:
    """The notebooks whose cell is not what it would be now."""
    return [path for path in _notebooks(folder) if _text(path) != path.read_text("utf-8")]


def write(folder: Path = ROOT) -> None:
    """Write the stale cells again."""
    for path in stale(folder):
        path.write_text(_text(path), encoding="utf-8")


def _notebooks(folder: Path) -> list[Path]:
    return sorted([*folder.glob("lessons/*.ipynb"), *folder.glob("solutions/*/*.ipynb")])


def _text(path: Path) -> str:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    put(notebook)
    text: str = nbformat.writes(notebook)
    return f"{text}\n"


def main() -> int:
    """Write or check; answer the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.builder.colab")
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        write()
        return 0
    outdated = stale()
    for path in outdated:
        print(
            f"{path.relative_to(ROOT)} is stale: run `python -m docs.builder.colab`",
            file=sys.stderr,
        )
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
