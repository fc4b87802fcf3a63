"""Messages reach their reader, whatever replaces stdout and stderr."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from typing import Any

import pytest

from vramlab import progress, streams
from vramlab.cli import main
from vramlab.progress import working


class Logger:
    """What training scripts replace stderr with: no isatty(), flush() or encoding."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


class Raising:
    """Fails whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Ascii(io.StringIO):
    """Takes ASCII only."""

    def write(self, text: str) -> int:
        text.encode("ascii")
        return super().write(text)


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


USELESS = {"none": None, "closed": closed(), "raising": Raising()}
STRANGE = {**USELESS, "logger": Logger()}


@pytest.fixture(params=STRANGE)
def strange(request: pytest.FixtureRequest) -> Any:
    return STRANGE[request.param]


@pytest.mark.parametrize("useless", USELESS.values(), ids=USELESS)
def test_the_first_stream_that_takes_it_gets_it(useless: Any) -> None:
    logger = Logger()
    streams.write("words", useless, logger, Raising())
    assert logger.text == "words"
    streams.write("lost", useless)


def test_characters_that_an_encoding_lacks_are_escaped() -> None:
    stream = Ascii()
    streams.write("2 µs\n", stream)
    assert stream.getvalue() == "2 \\xb5s\n"


def test_a_reader_who_has_gone_is_told_of() -> None:
    class Broken(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        streams.flush(Broken())
    with pytest.raises(BrokenPipeError):
        streams.write("words", Broken(), Logger())


def test_progress_is_left_out_where_nobody_would_see_it(
    strange: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BEFORE", 0.0)
    monkeypatch.setattr(sys, "stderr", strange)
    before = threading.active_count()
    with working("simulating") as step:
        assert threading.active_count() == before
        step.tell("2 of 3")


def test_progress_ends_in_peace_on_a_terminal_that_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = threading.Event()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            asked.set()
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(progress, "SECONDS_BEFORE", 0.0)
    with working("simulating", Terminal()):
        assert asked.wait(timeout=60)


@pytest.mark.parametrize("name", ["none", "logger"])
def test_commands_end_as_they_should(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", STRANGE[name])
    monkeypatch.setattr(sys, "stderr", STRANGE[name])
    assert main(["gpus", "T4"]) == 0
    assert main(["gpus", "T5"]) == 2


@pytest.mark.parametrize(("closing", "name", "status"), [(">&-", "T4", 0), ("2>&-", "T5", 2)])
def test_a_process_may_be_started_without_stdout_or_stderr(
    closing: str, name: str, status: int
) -> None:
    command = f'"{sys.executable}" -m vramlab gpus {name} {closing}'
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", "")
