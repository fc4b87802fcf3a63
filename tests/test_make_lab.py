"""`make lab`, as README.md has it: it shows the start page, and lesson 01 runs in its kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from running_lab import ROOT, RunningLab, copy_course, running_lab

LESSON = "lessons/01_cuda_context.ipynb"
CELL_S = 60


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Run `make lab` in this checkout, where it is its environment that runs these tests."""
    folder = tmp_path_factory.mktemp("lab")
    is_here = Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()
    course = ROOT if is_here else copy_course(folder / "course")
    with running_lab(course, folder / "settings") as lab:
        yield lab


def ask(lab: RunningLab, path: str, content: dict[str, Any] | None = None) -> str:
    """Read a page; with `content`, post it."""
    data = None if content is None else json.dumps(content).encode()
    with urlopen(Request(lab.address(path), data), timeout=CELL_S) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture
def kernel(lab: RunningLab) -> Iterator[BlockingKernelClient]:
    """Open the lesson as JupyterLab does, and return a client of the kernel that it gets."""
    session = {"path": LESSON, "name": "", "type": "notebook", "kernel": {"name": "python3"}}
    identity = json.loads(ask(lab, "api/sessions", session))["kernel"]["id"]
    client = BlockingKernelClient()
    client.load_connection_file(f"{lab.runtime / f'kernel-{identity}.json'}")
    # Within the second that is usual, a kernel does not answer where other tests keep it waiting.
    client.hb_channel.time_to_dead = CELL_S
    client.start_channels()
    client.wait_for_ready(timeout=CELL_S)
    yield client
    client.stop_channels()


def test_it_shows_the_start_page_and_has_the_first_lesson(lab: RunningLab) -> None:
    assert "<title>JupyterLab</title>" in ask(lab, "")
    assert json.loads(ask(lab, "api/contents/start.ipynb?content=0"))["type"] == "notebook"
    assert json.loads(ask(lab, f"api/contents/{LESSON}?content=0"))["type"] == "notebook"


def test_the_first_lesson_runs_from_top_to_bottom(kernel: BlockingKernelClient) -> None:
    lesson = nbformat.read(ROOT / LESSON, as_version=nbformat.NO_CONVERT)
    said: list[dict[str, Any]] = []
    for cell in lesson.cells:
        if cell.cell_type == "code":
            reply = kernel.execute_interactive(
                cell.source, timeout=CELL_S, output_hook=lambda message: said.append(message)
            )
            assert reply["content"]["status"] == "ok", (cell.id, reply["content"])
    streams = [message["content"] for message in said if message["msg_type"] == "stream"]
    assert [stream["text"] for stream in streams if stream["name"] == "stderr"] == []
    assert any(stream["text"].startswith("Virtual GPU: ") for stream in streams)
