"""What lies beside a notebook is copied without being trusted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vramlab_classroom.run import attachments
from vramlab_classroom.run.attachments import find_attachments

IGNORED = ["__pycache__", "*.pyc"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "submitted"
    (folder / "data").mkdir(parents=True)
    (folder / "02_pages.ipynb").write_text("{}")
    (folder / "timestamp.txt").write_text("2026-01-01 10:00:00 UTC")
    (folder / "data" / "sizes.csv").write_text("1,2")
    (folder / "notes.md").write_text("see data")
    return folder


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    copied = tmp_path / "copied"
    copied.mkdir()
    return copied


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def reasons(folder: Path, copied: Path) -> dict[str, str]:
    left = find_attachments(folder, IGNORED).copy(copied)
    return {stray.path.name: stray.reason for stray in left}


def test_all_but_the_notebook_and_its_time_is_copied(folder: Path, copied: Path) -> None:
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.txt").touch()
    (folder / "a.pyc").touch()
    assert reasons(folder, copied) == {}
    assert files_in(copied) == {"data/sizes.csv": "1,2", "notes.md": "see data"}


def test_links_and_what_is_no_file_are_left(folder: Path, copied: Path, tmp_path: Path) -> None:
    (tmp_path / "gradebook.db").write_text("private")
    (folder / "file").symlink_to(tmp_path / "gradebook.db")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "nowhere").symlink_to("/nowhere")
    os.mkfifo(folder / "pipe")
    link = "it is a link to somewhere else"
    assert reasons(folder, copied) == {
        "file": link,
        "folder": link,
        "nowhere": link,
        "pipe": "it is not a file",
    }
    assert "private" not in files_in(copied).values()


def test_together_they_have_a_size(
    folder: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "MAX_BYTES", 10)
    (folder / "a.bin").write_bytes(b"x" * 3)
    os.truncate(folder / "a.bin", 2**40)  # takes no room on the disk
    # notes.md has 8 bytes, which leaves 2 for the 3 of sizes.csv.
    assert reasons(folder, copied) == {
        "a.bin": "a.bin has 1099511627776 bytes; up to 10 are read.",
        "sizes.csv": "sizes.csv has 3 bytes; up to 2 are read.",
    }


def test_folders_end_somewhere(folder: Path, copied: Path) -> None:
    # 2,000 folders in folders: too long a path for any program.
    here = os.open(folder, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deeper", dir_fd=here)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        assert reasons(folder, copied) == {"deeper": "it lies in more than 8 folders"}
    finally:  # too deep for Python to remove, and so for pytest
        subprocess.run(["rm", "-rf", folder / "deeper"], check=True)


def test_a_changed_file_is_another_state(folder: Path) -> None:
    before = find_attachments(folder, IGNORED).state
    assert before == find_attachments(folder, IGNORED).state != ""
    (folder / "notes.md").write_text("see elsewhere")
    assert find_attachments(folder, IGNORED).state != before
