"""Every lesson in JupyterLab, as `make lab` starts it: it runs, it moves, all can use it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import nbformat
import pytest
from accessibility import violations
from notebook_page import ANSWER_MS, NotebookPage, faults, shows_something
from running_lab import ROOT, RunningLab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("*.ipynb"))
OURS = (".jp-OutputArea-output", ".jp-MarkdownOutput")
"""What is the course's in a notebook; everything around it is JupyterLab's."""

BUGS = ("AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "TypeError")
"""What an explorer shows instead of a view if it is broken, and not if a setting is refused."""


@pytest.fixture(scope="module", params=LESSONS)
def lesson(
    request: pytest.FixtureRequest, browser: Browser, lab: RunningLab
) -> Iterator[NotebookPage]:
    """Return a lesson that was run from top to bottom."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    lesson = NotebookPage(context.new_page(), lab, f"lessons/{request.param}.ipynb")
    lesson.run_all()
    yield lesson
    lesson.close()
    context.close()


def test_the_lab_opens_on_the_start_page(lab: RunningLab, page: Page) -> None:
    page.goto(lab.address(""))
    page.get_by_role("heading", name="Start", exact=True).wait_for(timeout=120_000)
    assert page.url == f"{lab.url}lab/tree/start.ipynb"


def test_a_lesson_runs_from_top_to_bottom_and_shows_what_it_found(lesson: NotebookPage) -> None:
    run = lesson.save()
    assert faults(run) == []
    with_outputs = [
        cell.id for cell in run.cells if any(map(shows_something, cell.get("outputs", ())))
    ]
    assert with_outputs
    for cell_id in with_outputs:
        outputs = lesson.cell(cell_id).locator(".jp-OutputArea-output:not(:empty)")
        outputs.last.wait_for()  # to be visible
        for picture in outputs.locator("img:not([hidden])").all():
            picture.scroll_into_view_if_needed()
            assert picture.evaluate("picture => picture.naturalWidth") > 0
            assert picture.get_attribute("alt")


def test_the_explorers_of_a_lesson_follow_the_mouse_and_the_keyboard(lesson: NotebookPage) -> None:
    explorers = [cell.id for cell in lesson.cells if cell.id.endswith("explorer")]
    assert explorers
    for cell_id in explorers:
        explorer = lesson.cell(cell_id).get_by_role("group")
        sliders = explorer.get_by_role("slider", disabled=False).all()
        lists = explorer.get_by_role("combobox").all()
        moves = [
            *(partial(drag_a_third, lesson, slider) for slider in sliders),
            *(partial(press_an_arrow, slider) for slider in sliders),
        ]
        if not moves and lists:
            moves.append(partial(choose_another, lists[0]))
        if not moves:
            moves.append(partial(type_a_number, explorer.get_by_role("textbox")))
        for move in moves:
            lesson.wait_for_change(explorer, move)
            if (refusal := explorer.get_by_role("alert")).count():
                # Some settings exclude each other. Start over, or the next is refused, too.
                assert refusal.locator("strong").inner_text() not in BUGS
                lesson.run(cell_id)
        for options in lists:  # two options may well lead to the same
            before = options.input_value()
            choose_another(options)
            assert options.input_value() != before


def test_a_prediction_of_a_lesson_is_committed_with_the_keyboard(lesson: NotebookPage) -> None:
    cell = lesson.cell(next(cell.id for cell in lesson.cells if " = predict(" in cell.source))
    answer = lesson.cell(next(cell.id for cell in lesson.cells if ".reveal(" in cell.source))
    # All cells have been run, and nothing is given away.
    answer.get_by_role("status").filter(has_text="once you have committed").wait_for()
    cell.get_by_role("textbox", name="Your prediction in").focus()
    keyboard = lesson.page.keyboard
    keyboard.type("150 to 160")
    keyboard.press("Enter")
    cell.get_by_role("status").filter(has_text="Committed: 150 to 160 ").wait_for()
    answer.get_by_role("cell", name="150 to 160 ").wait_for()
    assert cell.get_by_role("alert").count() == 0


def test_axe_finds_nothing_in_what_a_lesson_shows(lesson: NotebookPage, axe: str) -> None:
    lesson.lay_out_everything()
    found = violations(lesson.page, axe, OURS)
    # JupyterLab scrolls wide outputs in an element of its own, which needs a mouse in Safari.
    assert [one for one in found if "jp-OutputArea-output" not in one] == []


def test_a_cell_that_runs_for_long_says_what_it_is_at_until_it_ends(
    lab: RunningLab, page: Page
) -> None:
    """Its line takes no room afterwards, and the saved notebook says nothing of it."""
    lesson = NotebookPage(page, lab, "lessons/05_one_training_step.ipynb")
    _colab, cell_id, *_ = [cell.id for cell in lesson.cells if cell.cell_type == "code"]
    lesson.fill_in(
        cell_id,
        "import time\n"
        "import vramlab_course.widgets\n"
        "from vramlab.measure import Stages\n"
        'vramlab.attach("T4", quiet=True)\n'
        'with Stages("slow").stage("waiting"):\n'
        "    time.sleep(5)\n"
        'print("over")',
    )
    page.keyboard.press("Control+Enter")
    output = lesson.cell(cell_id).locator(".jp-OutputArea-output")
    output.get_by_text("running for 3 s, at: waiting").wait_for(timeout=ANSWER_MS)
    output.get_by_text("over").wait_for(timeout=ANSWER_MS)
    line, _said = output.all()
    box = line.bounding_box()
    assert box is not None
    assert box["height"] == 0
    assert "running for" not in nbformat.writes(lesson.save())
    lesson.close()


def test_an_explorer_fits_a_phone_and_is_touched(lab: RunningLab, phone: Page) -> None:
    lesson = NotebookPage(phone, lab, "lessons/04_parameters.ipynb", application="notebooks")
    lesson.run_all()
    explorer = lesson.cell("explorer").get_by_role("group")
    controls = explorer.locator(".widget-inline-hbox").all()
    assert controls
    for control in controls:
        box = control.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    track = explorer.get_by_role("slider", name="Width").locator("xpath=../..")
    lesson.wait_for_change(explorer, track.tap)
    lesson.close()


def drag_a_third(lesson: NotebookPage, slider: Locator) -> None:
    """Drag a slider by a third of its length, to where there is more room."""
    length = slider.evaluate("handle => handle.closest('.slider').clientWidth")
    lesson.drag(slider, length / 3 if share(slider) < 0.5 else -length / 3)


def press_an_arrow(slider: Locator) -> None:
    """Move a slider one step with the keyboard, to where there is more room."""
    slider.focus()
    slider.press("ArrowRight" if share(slider) < 0.5 else "ArrowLeft")


def choose_another(list_of_options: Locator) -> None:
    """Choose the next option with the keyboard, or the one before it if there is none."""
    last = list_of_options.evaluate("list => list.selectedIndex === list.options.length - 1")
    list_of_options.focus()
    list_of_options.press("ArrowUp" if last else "ArrowDown")


def type_a_number(field: Locator) -> None:
    """Type another number into a field."""
    field.fill("65520")
    field.press("Enter")


def share(slider: Locator) -> float:
    """Where a slider stands: 0 is its least, 1 its greatest value."""
    least, now, greatest = (
        float(slider.get_attribute(f"aria-value{end}") or "nan") for end in ("min", "now", "max")
    )
    return (now - least) / (greatest - least)
