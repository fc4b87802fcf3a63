"""What the journal remembers, and what it survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.journal import Journal, JournalError

MARKED = Marked("ada", "02", "ab", (Verdict("f", 2, Grade.PASSED, ""),), notebook={"cells": []})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_what_was_marked_is_there_when_it_is_opened_again(path: Path) -> None:
    with Journal(path) as journal:
        assert journal.latest("ada", "02") is None
        number = journal.record(MARKED, "judge 1")
    with Journal(path) as journal:
        entry = journal.latest("ada", "02")
        assert entry is not None
        assert (entry.number, entry.sha256, entry.fingerprint) == (number, "ab", "judge 1")
        assert (entry.retry, entry.entered, entry.returned) == (False, None, False)
        assert journal.marked(number) == MARKED
        journal.note_entered(number, "a book")
        journal.note_returned(number)
        entry = journal.latest("ada", "02")
        assert entry is not None
        assert (entry.entered, entry.returned) == ("a book", True)


def test_the_last_marking_counts_and_all_are_counted(path: Path) -> None:
    with Journal(path) as journal:
        numbers = [journal.record(MARKED, f"judge {count}", retry=count == 2) for count in (1, 2)]
        journal.record(Marked("bob", "02", "cd"), "judge 1")
        entry = journal.latest("ada", "02")
        assert entry is not None
        assert (entry.number, entry.fingerprint, entry.retry) == (numbers[1], "judge 2", True)
        assert [each.student for each in journal.entries()] == ["ada", "ada", "bob"]


def test_entering_anew_takes_the_feedback_back(path: Path) -> None:
    with Journal(path) as journal:
        number = journal.record(MARKED, "judge 1")
        journal.note_returned(number)
        journal.note_entered(number, "another book")
        entry = journal.latest("ada", "02")
        assert entry is not None
        assert not entry.returned


def test_a_second_run_at_the_same_time_is_refused(path: Path) -> None:
    with Journal(path), pytest.raises(JournalError, match="another `vramlab grade` is at work in"):
        Journal(path)
    with Journal(path):
        pass


def test_it_survives_a_process_that_is_killed(path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from vramlab_classroom.run.journal import Journal\n"
        "from vramlab_classroom.run.graded_submission import Marked\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for count in range(3):\n"
        "    journal.record(Marked(f's{count}', '02', 'ab'), 'judge')\n"
        "journal._database.execute('BEGIN IMMEDIATE')\n"
        "journal._database.execute('DELETE FROM markings')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, f"{path}"], check=False)
    assert ended.returncode == -signal.SIGKILL
    with Journal(path) as journal:
        assert [entry.student for entry in journal.entries()] == ["s0", "s1", "s2"]


def test_what_keeps_it_from_being_written_is_told(path: Path) -> None:
    with Journal(path) as journal:
        number = journal.record(MARKED, "judge 1")
        (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
        journal._database.execute(f"PRAGMA max_page_count = {pages}")  # as if the disk were full
        big = Marked("bob", "02", "cd", problem=os.urandom(100_000).hex())
        with pytest.raises(JournalError, match=r"journal\.db cannot be used: database or disk is"):
            journal.record(big, "judge 1")
        assert journal.marked(number) == MARKED
