"""The Chinese course: the same notebooks, cell by cell, in which only the words are others."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from vramlab_course.notebooks import installed_notebooks
from vramlab_course.translations.catalogue import CatalogueEntry, path_of, read
from vramlab_course.translations.language import CATALOGUES
from vramlab_course.translations.notebook import NOT_TRANSLATED, in_language, translate
from vramlab_course.translations.speech import WIDGETS, spoken

COURSE = installed_notebooks()
CHINESE = re.compile("[\u4e00-\u9fff]")


def name_of(notebook: Path) -> str:
    return notebook.relative_to(COURSE).as_posix()


PROMISED = [
    name_of(path)
    for number in range(1, 9)
    for pattern in (f"lessons/{number:02}_*.ipynb", f"exercises/{number:02}_*/*.ipynb")
    for path in COURSE.glob(pattern)
]
"""Lessons 01 to 08 and their exercises."""
NOT_YET = "lessons/23_capstone.ipynb"


def original(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((COURSE / name).read_text(encoding="utf-8"))
    return read


def markdown(notebook: dict[str, Any]) -> dict[str, str]:
    return {
        cell["id"]: "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    }


def all_entries() -> list[CatalogueEntry]:
    return [entry for path in sorted(CATALOGUES.glob("zh/**/*.po")) for entry in read(path)]


@pytest.mark.parametrize("name", PROMISED)
def test_every_cell_of_text_is_translated(name: str) -> None:
    """Also what has changed since, which `make check` names: it has a stale translation."""
    translated = {
        entry.text.place: entry.translation
        for entry in read(path_of(name, "zh"))
        if CHINESE.search(entry.translation)
    }
    assert set(markdown(original(name))) - set(translated) == set()


@pytest.mark.parametrize("name", [*PROMISED, "start.ipynb", NOT_YET])
def test_only_words_differ(name: str) -> None:
    """The same cells in the same order, nbgrader's metadata among them; code is untouched."""
    before, after = original(name), translate(original(name), name, "zh")
    assert {**before, "cells": []} == {**after, "cells": []}
    texts = markdown(before)
    for old, new in zip(before["cells"], after["cells"], strict=True):
        if old["cell_type"] == "markdown":
            assert {**old, "source": []} == {**new, "source": []}
        else:
            assert old == new
    chinese = markdown(after)
    expected = {
        entry.text.place: entry.translation
        for entry in read(path_of(name, "zh"))
        if entry.is_fresh and texts.get(entry.text.place) == entry.text.english
    }
    first, *others = texts
    assert {cell: chinese[cell] for cell in others} == {
        cell: expected.get(cell, texts[cell]) for cell in others
    }
    assert expected.get(first, texts[first]).partition("\n")[0] in chinese[first]
    nbformat.validate(nbformat.from_dict(after))


@pytest.mark.parametrize("name", ["lessons/01_cuda_context.ipynb", "start.ipynb", NOT_YET])
def test_the_file_is_written_as_nbformat_does(name: str) -> None:
    content = in_language((COURSE / name).read_bytes(), name, "zh").decode()
    assert content == nbformat.writes(nbformat.reads(content, as_version=4)) + "\n"


def test_what_is_not_translated_stays_english_and_says_so_below_its_title() -> None:
    before, after = (markdown(each) for each in (original(NOT_YET), chinese(NOT_YET)))
    title, note, *rest = after["title"].split("\n\n")
    assert note == f"> {spoken(NOT_TRANSLATED, 'zh')}"
    assert CHINESE.search(note)
    assert "\n\n".join([title, *rest]) == before["title"]
    assert {**before, "title": ""} == {**after, "title": ""}


def chinese(name: str) -> dict[str, Any]:
    return translate(original(name), name, "zh")


def test_a_cell_whose_english_has_changed_is_shown_in_english() -> None:
    name = "lessons/01_cuda_context.ipynb"
    notebook = original(name)
    changed = next(cell for cell in notebook["cells"] if cell["id"] == "context")
    changed["source"].append("\nAn untranslated sentence.")
    shown = markdown(translate(notebook, name, "zh"))
    assert shown["context"] == "".join(changed["source"])
    assert CHINESE.search(shown["four-owners"])
    assert shown["title"].split("\n\n")[1].startswith("> 这个 notebook 的英文有一部分")


# ---- What a translation must not lose ----

PARSER = MarkdownIt("commonmark").enable("table")


@cache
def tokens(text: str) -> tuple[Token, ...]:
    return tuple(
        token for block in PARSER.parse(text) for token in (block, *(block.children or ()))
    )


def code(text: str) -> Counter[str]:
    kinds = ("code_inline", "fence", "code_block")
    return Counter(token.content for token in tokens(text) if token.type in kinds)


def links(text: str) -> Counter[str]:
    return Counter(str(token.attrs["href"]) for token in tokens(text) if token.type == "link_open")


def structure(text: str) -> Counter[str]:
    """Headings, lists, tables and tags of HTML. Chinese has no italics, and more bold terms."""
    return Counter(
        re.sub(r">[^<]*<", "><", token.content) if token.type.startswith("html") else token.type
        for token in tokens(text)
        if token.nesting == 1 or token.type.startswith("html_inline")
        if token.type not in ("em_open", "strong_open")
    ) + Counter(re.findall(r"</?\w+", text))


def math(text: str) -> Counter[str]:
    return Counter(re.findall(r"\$[^$]+\$", text))


def numbers(text: str) -> Counter[str]:
    """Numbers; not those of code, and not millions, which Chinese counts in ten thousands."""
    words = re.sub(r"`[^`]*`|\d+ (million|billion)", "", text)
    return Counter(re.findall(r"\d[\d,.]*\d|\d", words))


def placeholders(text: str) -> Counter[str]:
    return Counter(re.findall(r"\{\w*\}", text))


TRANSLATED = [entry for entry in all_entries() if entry.is_fresh]


@pytest.mark.parametrize("kept", [code, links, structure, math], ids=lambda kept: kept.__name__)
def test_a_translation_has_all_of_it_and_no_more(kept: Any) -> None:
    assert len(TRANSLATED) > 300
    assert [
        (entry.text.place, kept(entry.text.english), kept(entry.translation))
        for entry in TRANSLATED
        if kept(entry.text.english) != kept(entry.translation)
    ] == []


def test_a_translation_has_every_number() -> None:
    assert [
        (entry.text.place, lost)
        for entry in TRANSLATED
        if (lost := numbers(entry.text.english) - numbers(entry.translation))
    ] == []


def test_what_widgets_say_has_the_same_values_in_it() -> None:
    entries = read(CATALOGUES / "zh" / WIDGETS)
    assert any(placeholders(entry.text.english) for entry in entries)
    assert [
        entry.text.english
        for entry in entries
        if entry.is_fresh and placeholders(entry.text.english) != placeholders(entry.translation)
    ] == []
