"""A cell that runs for long says what it is at; programs that run notebooks see nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from jupyter_client.manager import start_new_kernel

import vramlab
from vramlab.measure import stages
from vramlab_course import experiments
from vramlab_course.widgets import running_cell
from vramlab_course.widgets.running_cell import RunningCell


class Shown(list[str]):
    """Notes what is shown, and when something has been."""

    def __init__(self) -> None:
        super().__init__()
        self.something = threading.Event()

    def __call__(self, html: str) -> None:
        self.append(html)
        self.something.set()


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_cell, "time", SimpleNamespace(monotonic=lambda: 0.0))


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_cell, "SECONDS_BEFORE", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_the_line_comes_and_goes() -> None:
    shown = Shown()
    cell = RunningCell(shown)
    assert shown.something.wait(timeout=60)
    cell.ends()
    assert shown[0] == "<em>running for 0 s</em>"
    assert shown[-1] == ""


def test_a_cell_that_ends_soon_shows_nothing() -> None:
    shown = Shown()
    RunningCell(shown).ends()
    assert shown == []


def test_the_stage_of_an_experiment_is_named_while_it_runs() -> None:
    cell = RunningCell(Shown())
    lines = []

    class Reader:
        def stage_begins(self, name: str) -> None:
            lines.append(cell.line())

        def stage_ended(self, measurement: object) -> None:
            lines.append(cell.line())

    with vramlab.VirtualGPU("T4"), stages.observed_by(Reader()):
        experiments.run("three-linear")
    cell.ends()
    assert lines[:2] == ["running for 0 s, at: parameters", "running for 0 s"]
    assert not stages._observers


WAITING = """
from types import SimpleNamespace
from vramlab_course.widgets import running_cell
running_cell.SECONDS_BEFORE = 0.2
running_cell.time = SimpleNamespace(monotonic=lambda: 0.0)
"""


@pytest.fixture(scope="module")
def outputs() -> Iterator[dict[bool, list[tuple[str, str]]]]:
    """What a kernel displays for a cell that takes a second, by whether a person runs it."""
    manager, client = start_new_kernel(kernel_name="python3")
    found: dict[bool, list[tuple[str, str]]] = {}

    def run(code: str, person: bool) -> list[tuple[str, str]]:
        displayed = []

        def note(message: dict) -> None:  # type: ignore[type-arg]
            if message["msg_type"] in ("display_data", "update_display_data"):
                displayed.append((message["msg_type"], message["content"]["data"]["text/html"]))

        client.execute_interactive(code, timeout=120, allow_stdin=person, output_hook=note)
        return displayed

    try:
        run(WAITING, person=False)
        for person in (True, False):
            found[person] = run("import time; time.sleep(1)", person)
        yield found
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_person_sees_one_line_that_is_empty_in_the_end(
    outputs: dict[bool, list[tuple[str, str]]],
) -> None:
    first, *_, last = outputs[True]
    assert first == ("display_data", "<em>running for 0 s</em>")
    assert last == ("update_display_data", "")


def test_a_program_sees_nothing(outputs: dict[bool, list[tuple[str, str]]]) -> None:
    assert outputs[False] == []
