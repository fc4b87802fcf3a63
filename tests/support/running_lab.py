"""JupyterLab as `make lab` starts it, on a copy of the course that tests may write to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

START_S = 120
"""Until JupyterLab listens. It takes seconds on an idle machine."""

_FOLDERS = ("lessons", "exercises", "solutions", "autograder", ".ci")
_FILES = (
    "Makefile",
    "nbgrader_config.py",
    "pyproject.toml",
    "requirements.txt",
    "start.ipynb",
)
_OF_A_CLASS = ("submitted", "autograded", "feedback", "*.db*", "hidden_seed.txt")


@dataclass(frozen=True)
class RunningLab:
    """A JupyterLab that listens."""

    course: Path
    """The folder that it shows."""
    url: str
    """Its address, up to a slash."""
    token: str
    runtime: Path
    """Where Jupyter keeps the connection files of its kernels."""

    def address(self, path: str) -> str:
        """The address of a page; an empty path is what `make lab` shows first."""
        return f"{self.url}{path}{'&' if '?' in path else '?'}token={self.token}"


def copy_course(folder: Path) -> Path:
    """Copy what learners and teachers work with, without anything of a class that is here."""
    for name in _FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", *_OF_A_CLASS)
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in _FILES:
        shutil.copy(ROOT / name, folder / name)
    # An environment that `make` takes for up to date: the one that runs these tests.
    (folder / ".venv" / "installed").mkdir(parents=True)
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / ".venv" / "installed")
    (folder / ".venv" / "bin").symlink_to(BIN)
    return folder


@contextmanager
def running_lab(course: Path, settings: Path) -> Iterator[RunningLab]:
    """Run `make lab` in a course, with its own settings, not the developer's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [
        "--no-browser",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        # Nothing is asked of other machines.
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    if os.geteuid() == 0:  # continuous integration often is
        arguments.append("--allow-root")
    log = settings / "jupyter.log"
    settings.mkdir()
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["make", "lab", "LAB_ARGS=" + " ".join(arguments)],
            cwd=course,
            env=_environment(settings),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _wait_until_it_listens(server, course, settings, log)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _environment(settings: Path) -> dict[str, str]:
    # VRAMLAB_*: the developer's choice of a GPU or a gradebook. MAKE*: these run under `make`.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "MAKE", "MFLAGS", "VENV", "VRAMLAB_", "PYTORCH_"))
    }
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "lab-settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "XDG_DATA_HOME": "own-data",  # predictions are written down there
    }
    return {
        **kept,
        **{name: str(settings / folder) for name, folder in folders.items()},
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT),
    }


def _wait_until_it_listens(
    server: subprocess.Popen[bytes], course: Path, settings: Path, log: Path
) -> RunningLab:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        for path in (settings / "runtime").glob("jpserver-*.json"):
            try:
                told = json.loads(path.read_text())
                # It is written before the server listens.
                socket.create_connection(("localhost", told["port"])).close()
            except (json.JSONDecodeError, ConnectionRefusedError):
                continue
            return RunningLab(course, told["url"], told["token"], settings / "runtime")
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start within {START_S} s:\n{log.read_text()}")
