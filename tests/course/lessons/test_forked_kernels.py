"""A forked kernel that dies says of what; `nbclient` knows no more than that it died."""

from __future__ import annotations

import asyncio

import nbformat
import pytest
from forked_kernels import ForkedKernelManager, how_it_ended
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError


def run(code: str, **options: object) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = NotebookClient(notebook, kernel_manager_class=ForkedKernelManager, **options)
    asyncio.run(client.async_execute())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, which the system"),
        ("import os; os._exit(3)", "status 3"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
    ids=["killed", "left", "crashed"],
)
def test_a_kernel_that_dies_says_of_what(
    code: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DeadKernelError):
        run(code)
    assert f"The kernel ended by itself: {said}" in caplog.text


def test_a_kernel_that_is_told_to_end_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CellTimeoutError):
        run("while True: pass", timeout=1)
    assert "ended by itself" not in caplog.text


def test_a_status_that_nobody_knows() -> None:
    # What `multiprocessing.popen_forkserver` gives where the server is gone.
    assert how_it_ended(255) == "status 255, or the process of which it was forked ended before it"
