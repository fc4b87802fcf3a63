"""The report on a terminal: it is as wide as that is, and says what a log says."""

from __future__ import annotations

import io
import re

import pytest
import torch

import vramlab
from vramlab.report.showing.terminal import as_terminal_text
from vramlab.report.showing.text import memory_rows
from vramlab.report.summary import Summary
from vramlab.units import MIB
from vramlab.viz.colors import CATEGORY_COLORS, Category

_CODES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def summary() -> Summary:
    """A program that holds a parameter of 4 GiB, and beside it 3 MiB of data."""
    with vramlab.track("T4", stream=io.StringIO()) as tracked, vramlab.stage("loading"):
        layer = torch.nn.Linear(2**15, 2**15, bias=False, device="cuda")
        data = torch.ones(3 * MIB, dtype=torch.uint8, device="cuda")
    assert tracked.summary is not None
    assert layer.weight.nbytes > data.nbytes  # both live until here
    return tracked.summary


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown(summary: Summary, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    return as_terminal_text(summary, Terminal())


@pytest.mark.usefixtures("colours")
@pytest.mark.parametrize("width", [60, 100])
def test_no_line_of_the_tables_is_wider_than_the_terminal(
    width: int, summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = _CODES.sub("", shown(summary, width, monkeypatch)).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("fits: cuda:0 needs 4.1") for line in lines)


@pytest.mark.usefixtures("colours")
def test_the_bar_has_every_part_in_its_colour_and_to_scale(
    summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = 100
    text = shown(summary, width, monkeypatch)
    (bar,) = (line for line in text.splitlines() if ";48;2;0;114;178m" in line)
    parts = re.findall(r"\x1b\[[0-9;]*;48;2;(\d+;\d+;\d+)m( *[^\x1b]*)", bar)
    assert sum(len(words) for _, words in parts) == width
    (device,) = summary.devices
    rows = [row for row in memory_rows(device) if not row.is_total and row.size_bytes]
    assert len(parts) == len(rows) + 1  # and what is free
    color, words = parts[0]
    assert _hex(color) == CATEGORY_COLORS[Category.PARAMETERS]
    assert len(words) == round(width * 4 * 2**30 / device.total_bytes)
    assert words.strip() == "parameters"
    assert _hex(parts[1][0]) == CATEGORY_COLORS[Category.INPUTS]
    assert len(parts[1][1]) == 1  # it is there, however small


def _hex(color: str) -> str:
    return "#{:02X}{:02X}{:02X}".format(*map(int, color.split(";")))
