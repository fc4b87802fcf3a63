"""What imports what: pictures and grades know measurements, and never the other way round.

Machines with GPUs that people record on often have no Jupyter packages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import vramlab

PACKAGE = Path(vramlab.__file__).parent
OUTER = {"plots", "widgets", "grading", "classroom", "commands", "cli", "__main__"}
"""Parts that show, ask and grade."""
SHOWS = {"matplotlib", "ipywidgets", "IPython", "nbconvert", "nbformat", "nbgrader", "traitlets"}


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_by(module: Path) -> Iterator[str]:
    """Names of modules, also of those that are imported within functions; not for types alone."""
    waiting: list[ast.AST] = [ast.parse(module.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "vramlab":
            yield from (f"vramlab.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        waiting += ast.iter_child_nodes(node)


def inner_modules() -> list[Path]:
    found = [path for path in PACKAGE.rglob("*.py") if part_of(path) not in OUTER]
    assert len(found) > 100
    return found


def test_what_measures_needs_neither_jupyter_nor_matplotlib() -> None:
    assert {
        (module.name, name)
        for module in inner_modules()
        for name in imported_by(module)
        if name.partition(".")[0] in SHOWS
    } == set()


def test_what_measures_knows_nothing_of_pictures_widgets_and_grades() -> None:
    assert {
        (module.name, name)
        for module in inner_modules()
        for name in imported_by(module)
        if name.startswith("vramlab.") and name.split(".")[1] in OUTER
    } == set()
