"""Moves pictures out of pages into files.

Outputs have their pictures in them, as data. As files of their own they are loaded when they come
into view, and a page comes quickly on a phone, too.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import struct
from pathlib import Path

_PICTURE = re.compile(
    r'<img src="data:image/png;base64,(?P<data>[A-Za-z0-9+/=]+)" (?P<words>alt="[^"]*") '
    r'width="(?P<width>\d+)"'
)
"""A picture as vramlab_course.plots writes it."""


def move_out(site: Path) -> None:
    """Write each page's pictures to `_pictures/`, named after what is in them, and link them."""
    folder = site / "_pictures"
    for path in (site / "index.html", *site.glob("**/lessons/*.html")):
        page = path.read_text(encoding="utf-8")
        moved = _PICTURE.sub(functools.partial(_as_file, folder=folder, page=path), page)
        if moved != page:
            path.write_text(moved, encoding="utf-8")


def _as_file(picture: re.Match[str], folder: Path, page: Path) -> str:
    png = base64.b64decode(picture["data"])
    name = f"{hashlib.sha256(png).hexdigest()[:16]}.png"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(png)
    # Bytes 16 to 24 of a PNG file are its size. With a height, nothing jumps when it comes.
    pixels_across, pixels_down = struct.unpack(">II", png[16:24])
    link = Path(os.path.relpath(folder / name, page.parent)).as_posix()
    shown = int(picture["width"])
    return (
        f'<img src="{link}" loading="lazy" {picture["words"]} '
        f'width="{shown}" height="{round(shown * pixels_down / pixels_across)}"'
    )
