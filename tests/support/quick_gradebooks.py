"""Gradebooks that are quick to make and to write, in the processes of tests."""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import Any

from nbgrader import api
from sqlalchemy import event
from sqlalchemy.engine import Engine

get_alembic_version = cache(api.get_alembic_version)


def make_gradebooks_quick() -> None:
    """Let nbgrader ask alembic, a process, for the first gradebook only, and wait for no disk.

    SQLite waits at every commit until the disk has it: the machine may lose its power. A process
    may end at any moment without it.
    """
    api.get_alembic_version = get_alembic_version
    if not event.contains(Engine, "connect", _wait_for_no_disk):
        event.listen(Engine, "connect", _wait_for_no_disk)


def _wait_for_no_disk(connection: Any, record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
