"""The picture of the two engines: docs/_static/engines.svg, for light and for dark pages.

Its names and counts are those of the code. A browser chooses the colors by what the reader prefers.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from benchmarks.estimates.results import ROOT
from vramlab import catalogue
from vramlab.kernels import TABLE
from vramlab.native.libraries import LIBRARIES

PICTURE = ROOT / "docs" / "_static" / "engines.svg"
TITLE = "One program, two engines"

_WIDTH, _BOX, _GAP, _MARGIN = 860, 62, 26, 20
_PORTABLE_X, _NATIVE_X, _COLUMN = 20, 440, 400
_PORTABLE_END, _NATIVE_END = 320, 540
"""Where the columns meet the boxes that are both engines'."""
# Lines have colours that no kind of memory has in any picture.
_STYLE = """
text { font-family: system-ui, -apple-system, Helvetica, Arial, sans-serif; fill: #1a1a1a }
.page { fill: #fafafa } .box { fill: #ffffff; stroke-width: 2 } .more { fill: #444444 }
.both { stroke: #555555 } .portable { stroke: #332288 } .native { stroke: #6b3f1d }
path { fill: none; stroke-width: 2 } .title { font-weight: 700 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f0f0 } .page { fill: #14181e } .box { fill: #222832 } .more { fill: #c0c4cc }
  .both { stroke: #a8adb5 } .portable { stroke: #a99ff0 } .native { stroke: #d9a877 }
}"""


@dataclass(frozen=True)
class Box:
    """A box: what it is, and more about it."""

    name: str
    more: str


def columns() -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Return what runs in each engine, from the program down: the portable one, the native one."""
    gpus = f"one of the {len(catalogue.models())} in the catalogue"
    stems = ", ".join(library.stem for library in LIBRARIES[:4])
    portable = (
        Box("any PyTorch, even the CPU build", "ops on meta tensors, under a dispatch mode"),
        Box("memory of CUDA kernels", f"{len(TABLE.rules)} rules, read from PyTorch's source"),
        Box("vramlab's caching allocator", "PyTorch's, reimplemented"),
        Box("a described GPU", gpus),
    )
    native = (
        Box("PyTorch's released CUDA build", "Linux on x86-64"),
        Box("PyTorch's host code", "decides workspaces, attention kernels, temporaries"),
        Box("PyTorch's caching allocator", "segments, blocks, out of memory"),
        Box(
            f"{len(LIBRARIES)} stub libraries",
            f"{stems} ...: only count bytes",
        ),
    )
    return portable, native


def draw() -> str:
    """Return the picture, as SVG."""
    portable, native = columns()
    step = _BOX + _GAP
    report_y = 40 + (1 + len(portable)) * step
    middle = (_WIDTH - _COLUMN) // 2
    parts = [
        _box(Box("your program", 'device="cuda", unchanged'), middle, 40, "both"),
        _arrow(_PORTABLE_END, 40 + _BOX, 40 + step, "portable"),
        _arrow(_NATIVE_END, 40 + _BOX, 40 + step, "native"),
    ]
    for x, boxes, kind in ((_PORTABLE_X, portable, "portable"), (_NATIVE_X, native, "native")):
        for number, box in enumerate(boxes):
            y = 40 + (1 + number) * step
            parts.append(_box(box, x, y, kind))
            if number:
                parts.append(_arrow(x + _COLUMN // 2, y - _GAP, y, kind))
    end = report_y - _GAP
    parts += [
        _arrow(_PORTABLE_END, end, report_y, "portable"),
        _arrow(_NATIVE_END, end, report_y, "native"),
        _box(Box("one report", "peak, reserved, out of memory, lines"), middle, report_y, "both"),
        _text(_PORTABLE_X, 66, "portable", "title", anchor="start"),
        _text(_NATIVE_X + _COLUMN, 66, "native", "title", anchor="end"),
    ]
    height = report_y + _BOX + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{TITLE}</title>',
            f'<desc id="desc">{escape(in_words())}</desc>',
            f"<style>{_STYLE}\n</style>",
            f'<rect class="page" width="{_WIDTH}" height="{height}" rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )


def in_words() -> str:
    """Describe the picture in words, for screen readers."""
    ways = (
        f"{name}: {', '.join(f'{box.name} ({box.more})' for box in boxes)}"
        for name, boxes in zip(("The portable engine", "The native engine"), columns(), strict=True)
    )
    return f"A program goes through one of two engines to the same report. {'. '.join(ways)}."


def markdown() -> str:
    """Return the picture as a page of docs/ shows it."""
    return f"![{in_words()}](_static/{PICTURE.name})"


def write() -> None:
    """Draw it again."""
    PICTURE.write_text(draw(), encoding="utf-8")


def is_current() -> bool:
    """Return whether the picture is what would be drawn now."""
    return PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == draw()


def _box(box: Box, x: int, y: int, kind: str) -> str:
    middle = x + _COLUMN // 2
    return "\n".join(
        (
            f'<rect class="box {kind}" x="{x}" y="{y}" width="{_COLUMN}" height="{_BOX}" rx="8"/>',
            _text(middle, y + 27, box.name, "title"),
            _text(middle, y + 47, box.more, "more"),
        )
    )


def _text(x: int, y: int, text: str, kind: str, anchor: str = "middle") -> str:
    size = 15 if kind == "title" else 12.5
    return (
        f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _arrow(x: int, y: int, to_y: int, kind: str) -> str:
    """Return a line down with a head, so that its color needs no marker of its own."""
    head = f"M{x - 5} {to_y - 9} L{x} {to_y - 2} L{x + 5} {to_y - 9}"
    return f'<path class="{kind}" d="M{x} {y} V{to_y - 2} {head}"/>'
