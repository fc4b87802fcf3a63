"""What the package's own source says about a verdict: a digest of all code that comes to it.

A fixed task, or a fixed rule of the virtual GPU that it measures on, makes verdicts void. A
changed comment, docstring or layout does not, nor does a module that has no part in judging: a
class should not be graded again for these.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from vramlab.garbage import no_garbage_collection
from vramlab_classroom.sandbox.packages import judging_packages

_DATA = (".toml", ".json")

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of statements that hold statements."""


def digest_of_code(modules: Collection[str]) -> str:
    """Return a digest of modules, the judging packages that they import, and data files.

    Imports are read, not done: those within functions count, and those for type checking, too.
    """
    with no_garbage_collection():  # of trees, which are gone as soon as they are read
        files = _closure(modules)
        codes = {name: _parsed(path.read_bytes()).digest for name, path in files.items()}
    summed = hashlib.sha256()
    for name, code in sorted(codes.items()):
        summed.update(f"{name} {code}\n".encode())
    for folder in sorted({path.parent for path in files.values()}):
        for path in sorted(folder.iterdir()):
            if path.suffix in _DATA:
                summed.update(f"{path.name} {_sha256(path.read_bytes())}\n".encode())
    return summed.hexdigest()


def _closure(modules: Collection[str]) -> dict[str, Path]:
    """Find the files of modules and of all of the judging packages that they import, by module."""
    waiting = list(modules)
    seen: set[str] = set()
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _file_of_package(name) or (_file(name) if name in modules else None)
        if path is not None:
            found[name] = path
            waiting += _parsed(path.read_bytes()).imported
    return found


def _file(module: str) -> Path | None:
    """Find the file of a module from elsewhere."""
    spec = find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin else None


def _file_of_package(module: str) -> Path | None:
    """Find the file of a module of these packages; None for other modules and names in modules."""
    package, *inner = module.split(".")
    if package not in judging_packages():
        return None
    place = judging_packages()[package].joinpath(*inner)
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return path
    return None


class _Source(NamedTuple):
    digest: str
    """Of what it does."""
    imported: frozenset[str]
    """Names of modules, and names in them."""


@cache
def _parsed(content: bytes) -> _Source:
    tree = ast.parse(content)
    imported = frozenset(name for node in _statements(tree) for name in _imported(node))
    return _Source(_sha256(ast.dump(tree).encode()), imported)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a node, and remove those that are only texts.

    The texts are docstrings, and those below the fields of classes.

    Expressions, which are most of a tree, have none in them.
    """
    for name in _BLOCKS:
        block: list[ast.AST] = getattr(node, name, [])
        block[:] = [each for each in block if not _is_text(each)]
        for each in block:
            yield each
            yield from _statements(each)


def _is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _imported(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        # With a module, the packages that it lies in are imported.
        while name:
            yield name
            name = name.rpartition(".")[0]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
