"""The site on a desktop and on a phone: for all readers, without scrolling sideways, searchable."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from accessibility import violations

from vramlab_course.course_map import PARTS

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from vramlab_course.course_map import Part

PAGES = (
    "index.html",
    "lessons/index.html",
    "lessons/02_pages_and_blocks.html",
    "lessons/05_one_training_step.html",
    "lessons/09_bert_in_training.html",
    "lessons/27_serving.html",
    "reference/index.html",
    "reference/vramlab.allocator.html",
    "docs/accuracy.html",
    "docs/grading.html",
    "docs/teaching.html",
    "CONTRIBUTING.html",
)
SCHEMES = ("light", "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(site: str, page: Page, axe: str, path: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{site}{path}")
    assert violations(page, axe) == []


def test_what_cells_show_stands_on_the_page_itself_in_the_dark(site: str, page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{site}lessons/05_one_training_step.html")
    shown = page.locator(".cell_output .text_html")
    assert shown.locator(".vramlab-timeline canvas").count() == 1
    assert shown.get_by_text("The answer to: What was the peak").count() == 1
    behind = shown.evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert set(behind) == {"rgba(0, 0, 0, 0)"}


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_wider_than_a_phone(site: str, phone: Page, path: str) -> None:
    phone.goto(f"{site}{path}")
    width = phone.evaluate("document.documentElement.scrollWidth")
    wide = phone.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(one =>
            one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)"""
    )
    assert width <= 390, [html[:200] for html in wide[:20]]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part.number))
def test_a_cheat_sheet_is_one_sheet_of_paper(site: str, page: Page, part: Part) -> None:
    page.goto(f"{site}docs/cheat_sheet_{part.number}.html")
    paper = page.pdf(prefer_css_page_size=True)
    width, height = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", paper)[0]
    assert (round(float(width)), round(float(height))) == (595, 842)  # A4 in points
    assert re.findall(rb"/Count (\d+)", paper) == [b"1"]


def test_search_on_a_phone_finds_a_lesson_and_leads_to_it(site: str, phone: Page) -> None:
    phone.goto(f"{site}index.html")
    phone.get_by_role("button", name="Search").first.click()
    field = phone.get_by_role("searchbox").first
    field.fill("expandable segments")
    field.press("Enter")
    found = phone.locator("#search-results").get_by_role("link", name="03 ·").first
    found.click()
    phone.get_by_role("heading", level=1, name="03 ·").wait_for()
