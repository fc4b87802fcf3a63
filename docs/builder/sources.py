"""Puts all pages into one folder, from which Sphinx builds.

The folder looks like the checkout, so that links between pages hold in both; only the start page
is moved, from docs/index.md to its top. A link to a file that is no page, such as an exercise,
becomes a download, and the start page gets a picture from a lesson. What is the same as before is
left as it is: Sphinx reads only pages that are new.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import nbformat

from docs.builder import other_languages, reference
from vramlab_course.course_map import PARTS, paths_table
from vramlab_course.translations.speech import OWN_NAME, spoken

DOWNLOADS = "downloads"
"""The folder of files that are no pages. Sphinx reads nothing in it."""

TOP = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")

_LINK = re.compile(r"\]\((?P<target>[^\s:#()\"]+)\)")
"""A link to a file of the checkout, in Markdown or in Markdown within JSON."""

_PICTURE = re.compile(r"<!-- picture: (?P<lesson>\w+) (?P<cell>[\w-]+) -->")
"""Where a page shows the picture that a cell of a lesson has made."""

_LESSONS = """\
# Lessons

Each lesson asks a question, and answers it with measurements. What you see here is what its
notebook shows when it is run on virtual GPUs; run it yourself to make predictions, and to move the
explorers. Its exercise has graded tasks on the same subject.

{table}

## Ways through it

{paths}

## Workshops

In a workshop you build the thing yourself, against a target in bytes and in steps, and see your own
run drawn ([how they are judged](/docs/grading.md#how-workshops-are-judged)):

{workshops}
{languages}
[All formulas](/docs/formulas.md) stand on one page. For each part there is a cheat sheet to print:
{sheets}.

```{{toctree}}
:hidden:

{pages}
```
"""


def collect(
    root: Path, runs: Mapping[Path, Path], modules: Collection[str] = ()
) -> dict[str, bytes]:
    """What the site is made of, by path within the folder.

    Args:
        root: the checkout.
        runs: for each lesson the notebook that shows it, with outputs.
        modules: what the reference describes; without any, everything.
    """
    files = {"index.md": root / "docs" / "index.md"}
    files |= {name: root / name for name in TOP}
    guides = [*(root / "docs").glob("*.md"), *(root / "docs" / "contributing").glob("*.md")]
    files |= {path.relative_to(root).as_posix(): path for path in guides}
    del files["docs/index.md"]
    files |= {f"lessons/{lesson.name}": run for lesson, run in runs.items()}
    texts = {name: path.read_text() for name, path in files.items()}
    texts["index.md"] = _with_picture(texts["index.md"], {p.stem: run for p, run in runs.items()})
    downloads: dict[str, bytes] = {}
    others = other_languages.others(runs)
    texts["lessons/index.md"] = lessons_page(sorted(runs), workshops_of(root), others)
    for language in others:
        translated, offered = other_languages.collect(root, runs, language, DOWNLOADS)
        texts |= translated
        downloads |= offered
    pages = frozenset(texts)
    for name, text in texts.items():
        texts[name] = _with_downloads(name, text, pages, root, downloads)
    texts |= reference.pages(root, modules)
    images = {
        f"docs/_static/{path.name}": path.read_bytes()
        for path in (root / "docs" / "_static").glob("*.svg")
    }
    return downloads | images | {name: text.encode() for name, text in texts.items()}


def _with_picture(text: str, runs: Mapping[str, Path]) -> str:
    """Put a picture from a lesson's run where the text wants it; nothing if it has not been run."""

    def outputs(wanted: re.Match[str]) -> str:
        lesson = nbformat.read(runs[wanted["lesson"]], as_version=4)
        (cell,) = (cell for cell in lesson.cells if cell.id == wanted["cell"])
        shown: list[str] = [output.data["text/html"] for output in cell.outputs]
        return "\n".join(shown)

    return _PICTURE.sub(outputs, text)


def _with_downloads(
    name: str, text: str, pages: frozenset[str], root: Path, downloads: dict[str, bytes]
) -> str:
    """Mark a page's links to files, but to pages and pictures, and note these as `downloads`."""

    def mark(link: re.Match[str]) -> str:
        target = os.path.normpath(Path("/", name).parent / link["target"]).lstrip("/")
        is_page = target in pages or target.startswith("docs/_static/")
        if is_page or not (root / target).is_file():
            return link[0]
        downloads[f"{DOWNLOADS}/{target}"] = (root / target).read_bytes()
        there = os.path.relpath(f"{DOWNLOADS}/{target}", Path(name).parent)
        return f"](path:{Path(there).as_posix()})"

    return _LINK.sub(mark, text)


def workshops_of(root: Path) -> list[Path]:
    """The notebooks of the workshops, as learners get them."""
    return sorted((root / "exercises").glob("workshop_*/*.ipynb"))


def lessons_page(lessons: list[Path], workshops: list[Path], others: Sequence[str] = ()) -> str:
    """The map of lessons and workshops, as their first cells tell it.

    Args:
        lessons, workshops: notebooks.
        others: languages beside it.
    """
    named = {language: spoken(OWN_NAME, language) for language in others}
    links = ", ".join(f"[{name}](/{other}/lessons/index.md)" for other, name in named.items())
    places = [f"{name} </{other}/lessons/index>" for other, name in named.items()]
    return _LESSONS.format(
        table=lessons_table(lessons),
        paths=paths_table(),
        workshops=workshops_table(workshops, "/exercises/"),
        sheets=", ".join(f"[{part.title}](/docs/cheat_sheet_{part.number}.md)" for part in PARTS),
        pages="\n".join([*(lesson.stem for lesson in lessons), *places]),
        languages=f"\nIn other languages: {links}.\n" if links else "",
    )


def lessons_table(lessons: Iterable[Path], folder: str = "") -> str:
    """Each lesson with its question and its minutes, as a table in Markdown.

    Args:
        lessons: notebooks.
        folder: where they are, seen from the page that shows the table; such as `lessons/`.
    """
    rows = ["| lesson | the question | minutes |", "| --- | --- | --- |"]
    return "\n".join([*rows, *(_row(lesson, folder) for lesson in lessons)])


def parts_table(root: Path, folder: str = "") -> str:
    """Show the parts of the course with their lessons as a table in Markdown.

    Args:
        root: the checkout.
        folder: where lessons are, seen from the page that shows the table; such as `lessons/`.
    """
    rows = ["| part | lessons |", "| --- | --- |"]
    for part in PARTS:
        links = (f"[{_title(root, stem)}]({folder}{stem}.ipynb)" for stem in part.stems())
        rows.append(f"| {part.number}. {part.title} | {', '.join(links)} |")
    return "\n".join(rows)


def _title(root: Path, stem: str) -> str:
    """Return `The CUDA context` for `01_cuda_context`: what its notebook is called."""
    opening = nbformat.read(root / "lessons" / f"{stem}.ipynb", as_version=4).cells[0].source
    return str(opening).partition("\n")[0].partition(" · ")[2].partition(":")[0]


def workshops_table(workshops: Iterable[Path], folder: str) -> str:
    """Each workshop with the lessons that it builds on and its minutes, as a table in Markdown.

    Args:
        workshops: notebooks.
        folder: where their folders are, seen from the page that shows the table.
    """
    rows = ["| workshop | builds on lessons | minutes |", "| --- | --- | --- |"]
    for path in workshops:
        opening = nbformat.read(path, as_version=4).cells[0].source
        title = opening.partition("\n")[0].removeprefix("# Workshop ")
        builds_on = re.search(r"\*\*Builds on\*\* lessons? (.+)\.", opening)
        minutes = re.search(r"\*\*Takes\*\* about (\d+) minutes", opening)
        if builds_on is None or minutes is None:
            raise ValueError(f"{path.name} does not say what it builds on and how long it takes")
        link = f"[{title}]({folder}{path.parent.name}/{path.name})"
        rows.append(f"| {link} | {builds_on[1]} | {minutes[1]} |")
    return "\n".join(rows)


def _row(lesson: Path, folder: str) -> str:
    opening = nbformat.read(lesson, as_version=4).cells[0].source
    title, question, _ = opening.split("\n\n", 2)
    minutes = re.search(r"\*\*Takes\*\* about (\d+) minutes", opening)
    if minutes is None:
        raise ValueError(f"the first cell of {lesson.name} does not say how long it takes")
    question = " ".join(question.strip("*").split())
    return f"| [{title.removeprefix('# ')}]({folder}{lesson.name}) | {question} | {minutes[1]} |"


def put(sources: Mapping[str, bytes], folder: Path) -> None:
    """Make `folder` hold these files and no others."""
    for name, content in sources.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in sources:
            path.unlink()
