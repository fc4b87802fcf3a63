"""Modules that are imported late: what works without them, and that no trace remains."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vramlab.gpu.core.patching.late_modules import answered_until_needed, is_imported

NAME = "slow_package_of_a_test"
FILES = {
    "__init__": """
        from . import below, settings
        imported = True
        def ask():
            return "the real answer"
        """,
    "below": """
        from . import settings
        times = settings.times + 1
        settings.times = times
        """,
    "settings": "times = 0",
}


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / NAME
    folder.mkdir()
    for module, code in FILES.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield NAME
    for each in [each for each in sys.modules if each.startswith(NAME)]:
        del sys.modules[each]


def loaded() -> list[str]:
    """The modules of the package that are there, a late one included."""
    return sorted(each.removeprefix(NAME) for each in sys.modules if each.startswith(NAME))


def imported(name: str) -> Any:
    return importlib.import_module(name)


def test_what_it_has_needs_no_import(name: str) -> None:
    with answered_until_needed(name, {"ask": lambda: "without it"}):
        assert imported(name).ask() == "without it"
        assert not is_imported(name)
        assert loaded() == [""]
    assert loaded() == []
    assert imported(name).ask() == "the real answer"


def test_anything_else_imports_the_real_one(name: str) -> None:
    with answered_until_needed(name, {"ask": lambda: "without it"}):
        late = imported(name)
        assert late.imported
        assert is_imported(name)
        real = imported(name)
        assert real is not late
        assert real.ask() == "the real answer"
        assert late.imported  # who has the late one, goes on
    assert imported(name) is real


def test_a_module_below_is_loaded_once_by_its_parent(name: str) -> None:
    with answered_until_needed(name, {}):
        below = imported(f"{name}.below")
        assert is_imported(name)
        assert imported(name).below is below
        assert below.__spec__.loader.name == f"{name}.below"
        assert below.times == 1


def test_a_module_that_comes_alone_is_the_same_one_later(name: str) -> None:
    with answered_until_needed(name, {}, alone=("settings",)):
        settings = imported(name).settings
        assert loaded() == ["", ".settings"]
        assert imported(f"{name}.settings") is settings
        settings.times = 5
        assert imported(name).imported
        assert imported(name).settings is settings
        assert settings.times == 6
    assert loaded() == ["", ".below", ".settings"]


def test_one_that_is_there_stays(name: str) -> None:
    real = imported(name)
    with answered_until_needed(name, {"ask": lambda: "without it"}):
        assert imported(name) is real
        assert real.ask() == "the real answer"
    assert imported(name) is real


def test_the_finder_goes_too(name: str) -> None:
    before = list(sys.meta_path)
    with answered_until_needed(name, {}):
        assert sys.meta_path != before
    assert sys.meta_path == before
