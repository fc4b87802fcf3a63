"""Lessons in other languages: pages beside the English ones, with the same outputs.

What a lesson shows depends on its code, which no translation touches: so the run of the English
notebook serves all. Lessons without a translation have no page: links lead to the English one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from vramlab_course.translations.language import ENGLISH, languages
from vramlab_course.translations.notebook import in_language, is_translated
from vramlab_course.translations.speech import OWN_NAME, QUESTION, spoken

_LINK = re.compile(r"\]\((?P<target>\.{0,2}[\w/.-]+\.ipynb)\)")
_GUIDE = re.compile(r"\]\(\.\./(?P<page>docs/[\w/.-]+\.md)")

_PAGE = """\
# {name}

{rows}

[English](/lessons/index.md)

```{{toctree}}
:hidden:

{pages}
```
"""


def translated(runs: Mapping[Path, Path], language: str) -> dict[Path, str]:
    """Name the lessons that a language has, with their places on the site."""
    names = {lesson: f"lessons/{lesson.name}" for lesson in sorted(runs)}
    return {
        lesson: f"{language}/{name}"
        for lesson, name in names.items()
        if is_translated(name, language)
    }


def others(runs: Mapping[Path, Path]) -> list[str]:
    """Name the languages, English aside, that have any of these lessons."""
    return [each for each in languages() if each != ENGLISH and translated(runs, each)]


def collect(
    root: Path, runs: Mapping[Path, Path], language: str, downloads: str
) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the pages of a language, and the files that they offer, both by their places.

    Args:
        root: the checkout.
        runs: for each lesson the notebook that shows it, with outputs.
        language: such as 'zh'.
        downloads: the folder of files that are no pages.
    """
    places = translated(runs, language)
    files: dict[str, bytes] = {}

    def lead(link: re.Match[str]) -> str:
        """Lead to the page in this language, or else to the English, or else to the notebook."""
        name = os.path.normpath(Path("lessons") / link["target"])
        if f"{language}/{name}" in places.values():
            return link[0]
        if root / name in runs:
            return f"](/{name})"
        files[f"{downloads}/{language}/{name}"] = in_language(
            (root / name).read_bytes(), name, language
        )
        return f"](path:../../{downloads}/{language}/{name})"

    pages = {}
    for lesson, place in places.items():
        text = in_language(runs[lesson].read_bytes(), f"lessons/{lesson.name}", language)
        pages[place] = _GUIDE.sub(r"](/\g<page>", _LINK.sub(lead, text.decode()))
    pages[f"{language}/lessons/index.md"] = _map(pages, language)
    return pages, files


def _map(pages: Mapping[str, str], language: str) -> str:
    """Make the page that lists lessons with their questions, as their first cells tell them."""
    rows = [f"| {spoken('lesson', language)} | {spoken(QUESTION, language)} |", "| --- | --- |"]
    for place, text in pages.items():
        title, question, _ = "".join(json.loads(text)["cells"][0]["source"]).split("\n\n", 2)
        question = " ".join(question.strip("*").split())
        rows.append(f"| [{title.removeprefix('# ')}]({Path(place).name}) | {question} |")
    return _PAGE.format(
        name=spoken(OWN_NAME, language),
        rows="\n".join(rows),
        pages="\n".join(Path(place).stem for place in pages),
    )


def say_which(html: Path) -> None:
    """Have the finished pages say their language: Sphinx knows one for all."""
    for language in languages():
        for path in (html / language).rglob("*.html") if language != ENGLISH else ():
            text = path.read_text(encoding="utf-8")
            path.write_text(
                text.replace('<html lang="en"', f'<html lang="{language}"', 1), encoding="utf-8"
            )
