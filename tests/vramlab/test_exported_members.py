"""The public surface: what `vramlab` itself has is listed, in order, there, typed and described."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import vramlab

SOURCE = ast.parse(Path(vramlab.__file__).read_text(encoding="utf-8"))
CONSTANTS = {"GIB": 2**30, "KIB": 2**10, "MIB": 2**20}


def seen_by_type_checkers() -> dict[str, str]:
    """The home of each name that is imported for type checkers, which know no `__getattr__`."""
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {
        alias.asname or alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_all_is_complete_and_in_order() -> None:
    def constants_classes_functions(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert vramlab.__all__ == sorted(vramlab._HOME, key=constants_classes_functions)


def test_nothing_else_is_public() -> None:
    for name in vramlab.__all__:  # a name that was asked for is kept in the module
        getattr(vramlab, name)
    machinery = {"TYPE_CHECKING", "Any", "annotations", "importlib"}
    modules = {name for name, value in vars(vramlab).items() if inspect.ismodule(value)}
    public = {name for name in vars(vramlab) if not name.startswith("_")}
    assert public - modules - machinery == set(vramlab.__all__)


def test_type_checkers_see_the_same_names_from_the_same_homes() -> None:
    assert seen_by_type_checkers() == vramlab._HOME


@pytest.mark.parametrize("name", vramlab.__all__)
def test_a_name_is_what_its_home_has(name: str) -> None:
    value = getattr(vramlab, name)
    assert value is getattr(importlib.import_module(vramlab._HOME[name]), name)
    if name in CONSTANTS:
        assert value == CONSTANTS[name]
        return


def test_what_the_public_functions_take_is_public() -> None:
    for taker in (vramlab.VirtualGPU, vramlab.attach):
        (given,) = (p for p in inspect.signature(taker).parameters.values() if p.name == "name")
        types = {part.strip() for part in str(given.annotation).split("|")}
        assert types - {"str", "None"} <= set(vramlab.__all__)
