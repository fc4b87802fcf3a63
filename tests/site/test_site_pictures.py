"""Pictures move out of pages, with their words and their size."""

from __future__ import annotations

import re
from pathlib import Path

from docs.builder.pictures import move_out
from vramlab_course.plots.picture import new_picture


def test_a_picture_becomes_a_file_that_keeps_its_words_and_has_a_height(tmp_path: Path) -> None:
    picture = new_picture(height_in=2.0)
    picture.alt = 'a "bar" of 2 MiB'
    (tmp_path / "lessons").mkdir()
    for name in ("index.html", "lessons/01.html"):
        (tmp_path / name).write_text(f"<p>{picture.to_html()}</p>")

    move_out(tmp_path)

    (file,) = (tmp_path / "_pictures").iterdir()
    assert file.read_bytes().startswith(b"\x89PNG")
    for name, link in (("index.html", "_pictures/"), ("lessons/01.html", "../_pictures/")):
        page = (tmp_path / name).read_text()
        # 9 in x 2 in at 100 pixels per inch
        assert (
            f'<img src="{link}{file.name}" loading="lazy" alt="a &quot;bar&quot; of 2 MiB" ' in page
        )
        assert re.search(r'width="900" height="200" style="[^"]*height: auto;">', page)
