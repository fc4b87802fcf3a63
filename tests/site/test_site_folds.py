"""What can be folded has a name that a screen reader can say."""

from __future__ import annotations

from pathlib import Path

from docs.builder.folds import name_switches

SWITCH = '<span class="toctree-toggle"><i></i></span></summary><ul>'


def test_a_switch_is_named_after_its_page(tmp_path: Path) -> None:
    page = tmp_path / "lessons" / "index.html"
    page.parent.mkdir()
    link = '<a class="reference internal" href="zh.html">中文</a>'
    page.write_text(f"{link}<details><summary>{SWITCH}", encoding="utf-8")

    name_switches(tmp_path)

    expected = f'{link}<details><summary aria-label="Pages below 中文">{SWITCH}'
    assert page.read_text(encoding="utf-8") == expected


def test_folds_with_words_stay_as_they_are(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("<details><summary>A hint</summary>Count twice.</details>")

    name_switches(tmp_path)

    assert page.read_text() == "<details><summary>A hint</summary>Count twice.</details>"
