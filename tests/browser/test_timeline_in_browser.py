"""A timeline that is asked, by mouse and by keyboard, in a file without a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from accessibility import violations
from notebook_page import ANSWER_MS, NotebookPage
from running_lab import RunningLab

from vramlab.cli import main
from vramlab.measure import Category
from vramlab.units import MIB
from vramlab.viz import TimelineView, ViewBlock, timeline_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEW = TimelineView(
    title="Three blocks",
    event_count=100,
    blocks=(
        ViewBlock(Category.PARAMETERS, "weight", "train.py:3 build: w = f()", 10 * MIB, 0, 101),
        ViewBlock(Category.ACTIVATIONS, "", "train.py:9 step: y = w @ x", 30 * MIB, 20, 80),
        ViewBlock(Category.TEMPORARIES, "", "train.py:9 step: y = w @ x", 20 * MIB, 40, 60),
    ),
    reserved_bytes=((0, 20 * MIB), (40, 60 * MIB)),
    stages=(("forward", 0, 40), ("backward", 40, 100)),
)
PAGE = f'<!doctype html><html lang="en"><title>t</title><main>{timeline_html(VIEW)}</main></html>'


@pytest.fixture
def timeline(page: Page) -> Page:
    page.set_content(PAGE)
    page.get_by_role("application", name="Three blocks").focus()
    return page


def status_text(page: Page) -> str:
    return page.get_by_role("status").inner_text()


def test_the_words_for_pages_without_scripts_are_gone(timeline: Page) -> None:
    assert timeline.locator(".vt-static").count() == 0


def test_a_block_is_asked_by_hovering_over_it(timeline: Page) -> None:
    canvas = timeline.locator("canvas").bounding_box()
    assert canvas is not None
    # The middle of the time; 60 MiB are the highest, and 30 of 66 lie in the activations.
    x, y = canvas["x"] + canvas["width"] / 2, canvas["y"] + canvas["height"] / 2
    timeline.mouse.move(x, y + 30)
    assert status_text(timeline).startswith("activations, 30 MiB (31,457,280 B)")
    assert "train.py:9 step: y = w @ x" in status_text(timeline)
    assert "allocated by event 20 in 'forward', freed by event 80 in 'backward'" in status_text(
        timeline
    )
    timeline.mouse.click(x, y + 30)
    timeline.mouse.move(0, 0)
    assert "pinned" in status_text(timeline)


def test_blocks_are_asked_with_the_keyboard(timeline: Page) -> None:
    keyboard = timeline.keyboard
    keyboard.press("Home")  # the largest at the peak, 60 MiB
    assert "30 MiB" in status_text(timeline)
    keyboard.press("ArrowRight")
    assert status_text(timeline).startswith("temporaries, 20 MiB")
    keyboard.press("ArrowDown")
    assert status_text(timeline).startswith("activations")
    keyboard.press("ArrowDown")
    assert status_text(timeline).startswith("weight (parameters), 10 MiB")
    assert "there before the recording, still there at the end" in status_text(timeline)
    keyboard.press("Enter")
    assert "pinned" in status_text(timeline)
    keyboard.press("Escape")
    assert "Hover a block" in status_text(timeline)


def test_zooming_shows_a_part_and_everything_again(timeline: Page) -> None:
    image = "canvas => canvas.toDataURL()"
    canvas = timeline.locator("canvas")
    timeline.keyboard.press("Home")
    whole = canvas.evaluate(image)
    timeline.keyboard.press("+")
    part = canvas.evaluate(image)
    assert part != whole
    timeline.get_by_role("button", name="All: show everything").click()
    assert canvas.evaluate(image) == whole


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(timeline: Page, axe: str, scheme: str) -> None:
    timeline.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    timeline.keyboard.press("Home")
    assert violations(timeline, axe, ("main",)) == []


RECORDED = """\
import torch
from torch import nn
import vramlab
from vramlab.measure import record_timeline
from vramlab_course.widgets import show_timeline

vramlab.attach("T4", quiet=True)
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(3))).cuda()
with record_timeline() as recording:
    recording.watch(model=model)
    recording.stage("forward")
    loss = model(torch.ones(1024, 1024, device="cuda")).sum()
    recording.stage("backward")
    loss.backward()
show_timeline(recording.timeline, "Three layers")
"""


def test_a_notebook_shows_it_and_its_page_has_it_too(lab: RunningLab, page: Page) -> None:
    lesson = NotebookPage(page, lab, "lessons/05_one_training_step.ipynb")
    _colab, cell_id, *_ = [cell.id for cell in lesson.cells if cell.cell_type == "code"]
    lesson.fill_in(cell_id, RECORDED)
    page.keyboard.press("Control+Enter")
    cell = lesson.cell(cell_id)
    canvas = cell.get_by_role("application", name="Three layers")
    canvas.wait_for(timeout=ANSWER_MS)
    canvas.focus()
    page.keyboard.press("Home")  # cuBLAS's workspace; all others have 4 MiB
    cell.get_by_role("status").filter(has_text="8.125 MiB (8,519,680 B)").wait_for()
    assert cell.locator("img").count() == 0  # the picture for pages without scripts
    (output,) = next(each for each in lesson.save().cells if each.id == cell_id).outputs
    page.set_content(output.data["text/html"])
    page.get_by_role("application", name="Three layers").wait_for()
    lesson.close()


def test_it_fits_a_phone(phone: Page) -> None:
    phone.set_content(
        PAGE.replace("<title>", '<meta name="viewport" content="width=device-width"><title>')
    )
    phone.locator("canvas").wait_for()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_axe_finds_nothing_in_the_report_of_a_run(page: Page, axe: str, tmp_path: Path) -> None:
    script, report = tmp_path / "train.py", tmp_path / "report.html"
    script.write_text("import torch\nx = torch.zeros(2**20, device='cuda')\n")
    assert main(["run", "--html", str(report), str(script)]) == 0
    page.goto(report.as_uri())
    page.get_by_role("application").wait_for()
    assert violations(page, axe, ("body",)) == []
