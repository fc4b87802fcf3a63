"""New gradebooks without a process each: nbgrader asks alembic for its newest revision."""

from __future__ import annotations

from functools import cache

from nbgrader import api

get_alembic_version = cache(api.get_alembic_version)


def ask_alembic_once() -> None:
    """Let nbgrader ask alembic for the first gradebook of this process only: the answer stays."""
    api.get_alembic_version = get_alembic_version
