"""What imports what: pictures and grades know measurements, and never the other way round.

The order is that of the map in README.md, which says so.

Machines with GPUs that people record on often have no Jupyter packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import vramlab

PACKAGE = Path(vramlab.__file__).parent
SHOWING = "plots"
"""The first part that shows, asks or grades."""
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


def rows_of_the_map() -> list[set[str]]:
    """The parts of the package as README.md lists them, from what knows least on."""
    text = (PACKAGE.parent / "README.md").read_text().partition("\nIn `vramlab/`, ")[2]
    table = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    rows = [{Path(name).stem for name in re.findall("`([^`]+)`", cell)} for cell in table]
    assert len(rows) > 15
    return rows


def imported_parts(module: Path) -> set[str]:
    """The parts of vramlab that a module imports; for a name of `vramlab` itself, its home's."""
    names = {name for name in imported_by(module) if name.startswith("vramlab.")}
    homes = {vramlab._HOME.get(name.removeprefix("vramlab."), name) for name in names}
    return {home.split(".")[1] for home in homes}


def test_every_part_imports_from_rows_above_it() -> None:
    known: set[str] = set()
    against = set()
    for row in rows_of_the_map():
        known |= row
        for module in modules_of(row):
            against |= {(module.name, part) for part in imported_parts(module) - known}
    assert against == set()


def modules_of(parts: set[str]) -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if part_of(path) in parts]


def test_what_measures_needs_neither_jupyter_nor_matplotlib() -> None:
    rows = rows_of_the_map()
    first = next(number for number, row in enumerate(rows) if SHOWING in row)
    measuring = modules_of(set().union(*rows[:first]))
    assert len(measuring) > 100
    assert {
        (module.name, name)
        for module in measuring
        for name in imported_by(module)
        if name.partition(".")[0] in SHOWS
    } == set()
