"""What the tests of grading share: a pool, the toy exercise, and classes that nbgrader grades."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_exercise
from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

from vramlab_classroom.judge.job_pool import JobPool
from vramlab_classroom.judge.task import Exercise

SUPPORT = Path(toy_exercise.__file__).parent


@pytest.fixture(scope="session")
def pool() -> Iterator[JobPool]:
    with JobPool(search_path=[SUPPORT]) as pool:
        yield pool


@pytest.fixture(scope="session")
def toy() -> Exercise:
    return toy_exercise.EXERCISE


@event.listens_for(Engine, "connect")
def _write_at_leisure(connection: DBAPIConnection, _: object) -> None:
    """Let SQLite leave it to the system when gradebooks of tests reach the disk."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
