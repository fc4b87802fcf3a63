"""Progress is shown on a terminal, after a while, and leaves nothing behind."""

from __future__ import annotations

import io
import threading

import pytest

from vramlab import progress
from vramlab.progress import working
from vramlab_classroom.commands.grade import StartAndProgress


class Terminal(io.StringIO):
    """Notes what is written, and when something has been."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.written.set()


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BEFORE", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_a_terminal_shows_what_is_done_and_is_cleared_afterwards() -> None:
    terminal = Terminal()
    with working("simulating", terminal) as step:
        step.tell("2 of 8")
        assert terminal.written.wait(timeout=60)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[0] == ""
    assert lines[1].startswith("simulating")
    assert lines[1].endswith(" ... 0 s")
    assert lines[-1] == ""


@pytest.mark.usefixtures("_at_once")
def test_a_file_gets_nothing() -> None:
    log = io.StringIO()
    before = threading.active_count()
    with working("simulating", log):
        assert threading.active_count() == before
    assert log.getvalue() == ""


@pytest.mark.usefixtures("_at_once")
def test_lines_that_stay_are_printed_on_a_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal()
    with working("checking", terminal) as step:
        assert terminal.written.wait(timeout=60)
        step.say("the first is right")
        assert terminal.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().out == "the first is right\n"
    with working("checking", io.StringIO()) as step:
        step.say("the second, too")
    assert capsys.readouterr().out == "the second, too\n"


@pytest.mark.usefixtures("_at_once")
def test_an_error_passes_and_the_line_is_cleared() -> None:
    terminal = Terminal()

    def fail() -> None:
        with working("simulating", terminal):
            assert terminal.written.wait(timeout=60)
            raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        fail()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("how", ["add", "say", "end"])
def test_grading_shows_that_it_starts_until_it_has_something_to_tell(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    before = threading.active_count()
    shown = StartAndProgress(total=2)
    assert terminal.written.wait(timeout=60)
    assert "starting to grade ... " in terminal.getvalue()
    {"add": lambda: shown.add(graded=True), "say": lambda: shown.say("x"), "end": shown.end}[how]()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert threading.active_count() == before
    assert capsys.readouterr().out == ("x\n" if how == "say" else "")
