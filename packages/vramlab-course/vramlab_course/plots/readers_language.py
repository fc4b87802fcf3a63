"""A picture's words in the reader's language, in a font of the reader's own.

The font that comes with matplotlib has no Chinese letters, and the course brings none. Systems that
are used in Chinese have one. Without such a font, pictures keep their English, and their titles
stand above them in Chinese. No picture shows empty boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from matplotlib import font_manager
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text

from vramlab_course.translations.language import language_here
from vramlab_course.translations.speech import say_name

_LETTERS = {"zh": "显存块"}
"""By language, what a font has to have; only languages whose letters DejaVu Sans lacks."""
_FAMILIES = {
    "zh": (
        "Noto Sans CJK SC",  # Linux
        "Noto Sans SC",
        "Source Han Sans SC",
        "Source Han Sans CN",
        "PingFang SC",  # macOS
        "Hiragino Sans GB",
        "STHeiti",
        "Heiti TC",
        "Microsoft YaHei",  # Windows
        "DengXian",
        "SimHei",
        "WenQuanYi Micro Hei",
        "WenQuanYi Zen Hei",
        "Droid Sans Fallback",
        "Noto Sans CJK JP",  # the same letters, some in a Japanese form
        "Noto Sans CJK TC",
        "Noto Sans CJK HK",
        "Noto Sans CJK KR",
        "Arial Unicode MS",
        "SimSun",
    )
}
"""By language, fonts that have them, the best first."""


@contextmanager
def in_readers_language(figure: Figure) -> Iterator[None]:
    """Let a figure's words be the reader's for as long as this lasts: while it is rendered."""
    family = font_family(language_here())
    if family is None:
        yield
        return
    ticks = [(axis, _ticks(axis)) for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    for axis, words in ticks:
        _rename(axis, [say_name(each) for each in words])
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    before = [(text, text.get_text(), text.get_fontfamily()) for text in texts]
    for text, said, families in before:
        text.set_fontfamily([*families, family])  # for letters that the first has not
        text.set_text(say_name(said))
    try:
        yield
    finally:
        for text, said, families in before:
            text.set_fontfamily(families)
            text.set_text(said)
        for axis, words in ticks:
            _rename(axis, words)


def _ticks(axis: Axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def _rename(axis: Axis, names: list[str]) -> None:
    """Give ticks other names; those that are written by themselves, as numbers are, have none."""
    if names != _ticks(axis):
        axis.set_ticklabels(names)


def is_told(language: str) -> bool:
    """Return whether pictures can speak this language here: there is a font for it."""
    return font_family(language) is not None


@cache
def font_family(language: str) -> str | None:
    """Find the family of a font for a language; None for English, and if none is installed."""
    letters = _LETTERS.get(language)
    if letters is None:
        return None
    for family in _FAMILIES[language]:
        path = _path_of(family) or _path_installed_since(family)
        if path is not None and _has(path, letters):
            return family
    return None


def _path_of(family: str) -> str | None:
    """Return the file of a family, of those that matplotlib has listed."""
    listed = (font for font in font_manager.fontManager.ttflist if font.name == family)
    return next((font.fname for font in listed), None)


def _path_installed_since(family: str) -> str | None:
    """Return the same, of those that the system has and matplotlib's list, made once, has not."""
    for path in _files():
        if Path(path).stem.split("-")[0].lower() in family.replace(" ", "").lower():
            with suppress(RuntimeError, OSError, ValueError):
                font_manager.fontManager.addfont(path)
    return _path_of(family)


@cache
def _files() -> tuple[str, ...]:
    listed = {font.fname for font in font_manager.fontManager.ttflist}
    return tuple(path for path in font_manager.findSystemFonts() if path not in listed)


def _has(path: str, letters: str) -> bool:
    try:
        font = font_manager.get_font(path)
    except (RuntimeError, OSError):
        return False
    return all(font.get_char_index(ord(letter)) for letter in letters)
