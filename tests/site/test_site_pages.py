"""The reader of finished pages finds each kind of fault, and none in good pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.builder import reference
from docs.builder.__main__ import ROOT
from docs.builder.pages import faults

SOUND = (
    '<html lang="en"><head><title>A page</title></head><body><main><h1>One</h1>'
    '<h2 id="two">Two</h2><h3>Three</h3><h2>Four</h2>{}<img src="picture.png" alt="a bar of 2 MiB">'
    '<a href="#two">up</a><a href="https://example.org/x">out</a></main></body></html>'
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "other.html").write_text(SOUND.format(""))
    return tmp_path


def test_a_sound_site_has_no_faults(site: Path) -> None:
    links = '<a href="other.html">x</a><a href="other.html#two">y</a>'
    (site / "page.html").write_text(SOUND.format(links))
    assert faults(site) == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("{}", '<a href="none.html">x</a>', "none.html is not there"),
        ("{}", '<a href="../out.html">x</a>', "../out.html is not there"),
        ("{}", '<a href="other.html#no">x</a>', "other.html#no is there, but has no #no"),
        ("{}", '<a href="#no">x</a>', "#no is there, but has no #no"),
        ("picture.png", "none.png", "none.png is not there"),
        ("a bar of 2 MiB", " ", "picture picture.png has no words (alt)"),
        (' alt="a bar of 2 MiB"', "", "picture picture.png has no words (alt)"),
        ("A page", "", "has no title"),
        (' lang="en"', "", "does not say its language"),
        ("<main>", "<div>", "has 0 main parts"),
        ("{}", "<main></main>", "has 2 main parts"),
        ("<h1>One</h1>", "", "starts with heading [2], not 1"),
        ("{}", "<h4>Too deep</h4>", "heading 4 follows heading 2"),
    ],
)
def test_each_fault_is_told_with_its_page(site: Path, before: str, after: str, fault: str) -> None:
    (site / "page.html").write_text(SOUND.replace(before, after).replace("{}", ""))
    assert faults(site) == [f"page.html: {fault}"]


def test_each_module_is_described_once() -> None:
    described = [
        name
        for text in reference.pages(ROOT).values()
        for name in re.findall(r"automodule:: (\S+)", text)
    ]
    assert len(described) > 300
    assert sorted(set(described)) == sorted(described)
