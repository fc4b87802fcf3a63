"""The gradebook in PostgreSQL: the same as in SQLite, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import inline_workers
import postgresql_server
import pytest
from course_folder import gradebook_of, make_course, notebook, submit
from postgresql_server import Server

from vramlab_classroom.nbgrader.course import find_course
from vramlab_classroom.run.gradebook_writer import GradebookError
from vramlab_classroom.run.run import Options, grade

pytestmark = pytest.mark.skipif(
    postgresql_server.programs() is None, reason="PostgreSQL is not installed"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql_server.server() as running:
        yield running


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    inline_workers.install(monkeypatch)
    monkeypatch.delenv("VRAMLAB_GRADEBOOK", raising=False)


def test_it_holds_what_sqlite_holds_and_nothing_is_lost_when_it_stops(
    server: Server, tmp_path: Path
) -> None:
    folder = make_course(tmp_path)
    options = Options(sandbox="limits")
    for student in ("ada", "Zoë", "open"):
        submit(folder, student, notebook())
    submit(folder, "broken", b"{")
    course = find_course(folder, db_url=server.url)
    assert grade(course, options).graded == 4
    in_postgresql = gradebook_of(course)
    assert len(in_postgresql) == 4

    server.stop()
    submit(folder, "late", notebook())
    with pytest.raises(
        GradebookError, match=r"the gradebook postgresql://teacher@/postgres\?host="
    ):
        grade(course, options)
    server.start()
    outcome = grade(course, options)
    assert (outcome.graded, outcome.kept) == (2, 3)  # "open" is tried again
    assert gradebook_of(course) == {**gradebook_of(course), **in_postgresql}

    # Another gradebook for the same course is filled from the journal.
    inline_workers.MARKED.clear()
    in_sqlite = find_course(folder)
    assert grade(in_sqlite, options).graded == 5
    assert set(inline_workers.MARKED) <= {"open"}
    assert gradebook_of(in_sqlite) == gradebook_of(course)


def test_its_url_can_be_in_the_environment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMLAB_GRADEBOOK", server.url)
    assert find_course(make_course(tmp_path)).db_url == server.url
