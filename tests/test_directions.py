"""What imports what: pictures and grades know measurements, and never the other way round.

The order is that of the tables in docs/architecture.md, which say so.

Machines with GPUs that people record on often have no Jupyter packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import vramlab
from packages import FOLDERS

ROOT = Path(vramlab.__file__).parents[1]
SHOWING = "vramlab_course/plots"
"""The first part that shows, asks or grades."""
ROOMS = "vramlab_course/lessons"
"""Where a module's own name says whether it shows: an explorer, a picture; and tasks grade."""
SHOWS = {"matplotlib", "ipywidgets", "IPython", "nbconvert", "nbformat", "nbgrader", "traitlets"}


@cache
def imports_of(module: Path) -> frozenset[str]:
    """Names of modules, also of those that are imported within functions; not for types alone."""
    return frozenset(_imports(module))


def _imports(module: Path) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(module.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def tables() -> dict[str, list[set[str]]]:
    """The parts of each package, from what knows least on, as docs/architecture.md lists them."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = {}
    for package in FOLDERS:
        table = text.partition(f"\n**`{package}`**")[2].partition("\n**`")[0]
        rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        found[package] = [
            {f"{package}/{name.strip('/')}" for name in re.findall("`([^`]+)`", row)}
            for row in rows
        ]
        assert len(found[package]) > 5
    return found


def rows_of_the_map() -> list[set[str]]:
    return [row for rows in tables().values() for row in rows]


PARTS = {part for row in rows_of_the_map() for part in row}


def part_of(path: str) -> str | None:
    """The part that a file or module, given as a path without suffix, belongs to: the narrowest."""
    fitting = [part for part in PARTS if f"{path}/".startswith(f"{part.removesuffix('.py')}/")]
    return max(fitting, key=len, default=None)


def modules() -> list[Path]:
    return [path for folder in FOLDERS.values() for path in sorted(folder.rglob("*.py"))]


def shown(module: Path) -> Path:
    """Where a module is, from the folder of its package on."""
    (home,) = (folder.parent for folder in FOLDERS.values() if module.is_relative_to(folder))
    return module.relative_to(home)


def own_part(module: Path) -> str | None:
    return part_of(str(shown(module).with_suffix("")))


def imported_parts(module: Path) -> set[str]:
    """The parts that a module imports; for a name of `vramlab` itself, its home's."""
    parts = set()
    for name in imports_of(module):
        if name.partition(".")[0] in FOLDERS:
            home = vramlab._HOME.get(name.removeprefix("vramlab."), name)
            parts.add(part_of(home.replace(".", "/")))
    return {part for part in parts if part}


def test_every_module_is_on_the_map() -> None:
    inits = {f"{package}/__init__.py" for package in FOLDERS}
    assert {
        name
        for module in modules()
        if own_part(module) is None and (name := str(shown(module))) not in inits
    } == set()
    assert {
        part for part in PARTS if not (FOLDERS[part.partition("/")[0]].parent / part).exists()
    } == set()


def test_every_part_imports_from_rows_above_it() -> None:
    known: set[str] = set()
    against = set()
    for row in rows_of_the_map():
        known |= row
        for module in (module for module in modules() if own_part(module) in row):
            against |= {(module.name, part) for part in imported_parts(module) - known}
    assert against == set()


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_imports_what_it_may(package: str) -> None:
    """The core knows neither of the others, and the classroom not what a GPU is."""
    basics = set().union(*tables()["vramlab"][:2])
    allowed = {
        "vramlab": set().union(*tables()["vramlab"]),
        "vramlab_classroom": basics.union(*tables()["vramlab_classroom"]),
        "vramlab_course": PARTS,
    }
    assert {
        (str(shown(module)), part)
        for module in modules()
        if shown(module).parts[0] == package
        for part in imported_parts(module) - allowed[package]
    } == set()


def test_what_measures_needs_neither_jupyter_nor_matplotlib() -> None:
    rows = rows_of_the_map()
    first = next(number for number, row in enumerate(rows) if SHOWING in row)
    before: set[str] = set().union(*rows[:first])
    measuring = [
        module
        for module in modules()
        if (part := own_part(module)) in before and not f"{part}".startswith("vramlab_classroom")
    ]
    measuring += [
        module
        for module in modules()
        if own_part(module) == f"{ROOMS}"
        and not module.stem.endswith(("explorer", "picture", "tasks"))
    ]
    assert len(measuring) > 150
    assert {
        (module.name, name)
        for module in measuring
        for name in imports_of(module)
        if name.partition(".")[0] in SHOWS
    } == set()
