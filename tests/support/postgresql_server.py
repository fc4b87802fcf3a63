"""A PostgreSQL server of the tests' own, in a temporary folder, reached through a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

USER = "teacher"
OPTIONS = "-c listen_addresses='' -c fsync=off"
_UNPRIVILEGED = ("postgres", "nobody")  # plain-english: ok, a user's name


def programs() -> Path | None:
    """Find the folder with PostgreSQL's programs; None if it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


class Server:
    """A server that can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = _unprivileged_user()
        if self._user is not None:  # PostgreSQL refuses to run as root
            shutil.chown(folder, self._user)
        self._run("initdb", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self._folder}"

    def start(self) -> None:
        options = f"{OPTIONS} -k {self._folder}"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *words: str) -> None:
        folder = programs()
        assert folder is not None
        command: Sequence[str] = [f"{folder / program}", "-D", f"{self._folder / 'data'}", *words]
        subprocess.run(
            command,
            check=True,
            cwd=self._folder,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def server() -> Iterator[Server]:
    """Run a server; its folder has a short name, since a socket's path has little room."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        started = Server(Path(folder))
        started.start()
        try:
            yield started
        finally:
            started.stop()


def _unprivileged_user() -> str | None:
    if os.geteuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in names)
