"""`make check` names what is stale; the command that it names keeps what there is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from vramlab_course.translations import __main__ as command
from vramlab_course.translations import catalogue, language, speech
from vramlab_course.translations.catalogue import CatalogueEntry, read
from vramlab_course.translations.texts import Text

NAME = "lessons/01_one.ipynb"


def put_lesson(root: Path, **cells: str) -> None:
    path = root / NAME
    path.parent.mkdir(exist_ok=True)
    listed = [
        {"cell_type": "markdown", "id": cell, "source": [source]} for cell, source in cells.items()
    ]
    path.write_text(json.dumps({"cells": listed}), encoding="utf-8")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["translations", *words])
    return command.main()


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of one lesson, translated but for its second cell."""
    root, catalogues = tmp_path / "course", tmp_path / "course" / "catalogues"
    (catalogues / "zh").mkdir(parents=True)
    (catalogues / "zh" / "start.po").touch()
    (root / "start.ipynb").write_text('{"cells": []}', encoding="utf-8")
    monkeypatch.setattr(command, "ROOT", root)
    monkeypatch.setattr(command, "_TABLES", ())
    for module in (command, catalogue, language, speech):
        monkeypatch.setattr(module, "CATALOGUES", catalogues)
    put_lesson(root, title="# One", end="The end.")
    assert run(monkeypatch, "--begin", "zh", NAME) == 0
    path = catalogues / "zh" / "lessons" / "01_one.po"
    assert read(path) == [
        CatalogueEntry(Text("title", "# One")),
        CatalogueEntry(Text("end", "The end.")),
    ]
    catalogue.write(
        path,
        [CatalogueEntry(Text("title", "# One"), "# 一"), CatalogueEntry(Text("end", "The end."))],
        NAME,
        "zh",
    )
    return root


def of_the_lesson(said: str) -> list[str]:
    return [line for line in said.splitlines() if "01_one" in line]


def test_what_is_not_translated_is_named_and_not_wrong(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(monkeypatch, "--check") == 0
    captured = capsys.readouterr()
    assert of_the_lesson(captured.out) == [
        "catalogues/zh/lessons/01_one.po: cell end is new and wants a translation"
    ]
    assert captured.err == ""


def test_a_changed_source_makes_its_entry_stale(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = course / "catalogues" / "zh" / "lessons" / "01_one.po"
    before = path.read_bytes()
    put_lesson(course, title="# One, and a half", end="The end.")
    capsys.readouterr()
    assert run(monkeypatch, "--check") == 1
    captured = capsys.readouterr()
    assert of_the_lesson(captured.out)[0] == (
        "catalogues/zh/lessons/01_one.po: cell title has changed and wants a translation"
    )
    assert captured.err == (
        "catalogues/zh/lessons/01_one.po is stale: run `python -m vramlab_course.translations`\n"
    )
    assert path.read_bytes() == before

    assert run(monkeypatch) == 0
    stale = CatalogueEntry(Text("title", "# One, and a half"), "# 一", is_stale=True)
    assert read(path) == [stale, CatalogueEntry(Text("end", "The end."))]
    assert run(monkeypatch, "--check") == 0  # the translator knows
