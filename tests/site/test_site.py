"""The site of one lesson is built without a warning, and its pages hold what pages promise."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

import vramlab
from docs.builder import pages, reference, sources
from docs.builder.__main__ import ROOT, build
from vramlab_course.plots.picture import new_picture
from vramlab_course.translations.notebook import in_language

LESSON = ROOT / "lessons" / "05_one_training_step.ipynb"
WORDS = "allocated bytes over two steps"


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site of lesson 05, whose one output is a picture, with a part of the reference."""
    folder = tmp_path_factory.mktemp("site")
    lesson = nbformat.read(LESSON, as_version=4)
    (cell,) = (cell for cell in lesson.cells if cell.id == "record-timeline")
    picture = new_picture(height_in=2.0)
    picture.alt = WORDS
    shown = {"text/html": picture.to_html(), "text/plain": WORDS}
    cell.outputs = [new_output("display_data", data=shown)]
    nbformat.write(lesson, folder / "run.ipynb")
    assert build({LESSON: folder / "run.ipynb"}, folder, ("vramlab.units", "vramlab.errors")) == 0
    return folder / "html"


def test_every_page_is_there_and_none_has_a_fault(html: Path) -> None:
    expected = {
        "index.html",
        "CONTRIBUTING.html",
        "SECURITY.html",
        "lessons/index.html",
        f"lessons/{LESSON.stem}.html",
        "zh/lessons/index.html",
        f"zh/lessons/{LESSON.stem}.html",
    }
    guides = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "contributing").glob("*.md")]
    expected |= {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in guides}
    expected |= {f"reference/{name}.html" for name in ("index", "vramlab", "vramlab.units")}
    expected -= {"docs/index.html"}
    assert {name for name in expected if not (html / name).is_file()} == set()
    assert pages.faults(html) == []


def test_an_exercise_is_a_download_and_search_finds_prose_and_docstrings(html: Path) -> None:
    page = (html / "lessons" / f"{LESSON.stem}.html").read_text()
    assert f'/{LESSON.name}"' in page
    assert "google.colab" not in page  # what installs the course there is for notebooks only
    exercise = f"exercises/{LESSON.stem}/{LESSON.name}"
    english = (ROOT / exercise).read_bytes()
    downloads = [path.read_bytes() for path in html.glob(f"_downloads/*/{LESSON.name}")]
    assert sorted(downloads) == sorted([english, in_language(english, exercise, "zh")])
    index = (html / "searchindex.js").read_text()
    assert "workspac" in index  # the stem of what the lesson is about
    assert "format_bytes" in index


def test_a_translated_lesson_says_its_language_and_leads_on_in_it(html: Path) -> None:
    page = (html / "zh" / "lessons" / f"{LESSON.stem}.html").read_text()
    assert '<html lang="zh"' in page
    assert "<h1>05 · 一个训练步" in page
    # Lesson 06 has no page on this site: its notebook is offered, to each in the language.
    following = [path.read_text() for path in html.glob("_downloads/*/06_optimizer_states.ipynb")]
    assert sorted("优化器记住什么" in text for text in following) == [False, True]
    assert '<html lang="en"' in (html / "lessons" / "index.html").read_text()
    assert 'href="../zh/lessons/index.html"' in (html / "lessons" / "index.html").read_text()


def test_the_site_loads_nothing_from_other_machines(html: Path) -> None:
    loaded = [
        target
        for path in html.rglob("*.html")
        for line in path.read_text().split("<")
        if line.startswith(("script ", "img ", "link ")) and "://" in line
        for target in [line[:120]]
    ]
    assert loaded == []


def test_the_map_of_lessons_has_every_lesson_with_its_question_and_minutes() -> None:
    lessons = sorted((ROOT / "lessons").glob("*.ipynb"))
    lines = sources.lessons_page(lessons, sources.workshops_of(ROOT)).splitlines()
    rows = [line for line in lines if re.match(r"\| \[\d\d · ", line)]
    assert len(rows) == len(lessons)
    assert rows[4] == (
        "| [05 · One training step](05_one_training_step.ipynb) | Your model has 16 MiB of "
        "parameters, and one training step needs many times as much. What is the rest? | 25 |"
    )


def test_the_reference_has_every_module_except_what_is_left_out_on_purpose() -> None:
    described = "\n".join(reference.pages(ROOT).values())
    for path in (ROOT / "vramlab").rglob("*.py"):
        relative = path.relative_to(ROOT)
        name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        left_out = bool(reference.LEFT_OUT.fullmatch(relative.as_posix()))
        assert (f".. automodule:: {name}\n" in described) is not left_out, name


def test_the_first_page_of_the_reference_leads_to_where_its_names_are_defined() -> None:
    page = reference.pages(ROOT)["reference/vramlab.rst"]
    leads = dict(re.findall(r":py:obj:`vramlab\.(\w+) <([\w.]+)\.\w+>`", page))
    assert sorted(leads) == sorted(vramlab.__all__)
    for name, module in leads.items():
        defined = getattr(importlib.import_module(module), name)
        assert defined is getattr(vramlab, name)
        assert getattr(defined, "__module__", module) in {module, "builtins"}
