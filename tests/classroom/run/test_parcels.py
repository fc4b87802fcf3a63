"""What is in a folder or zip is listed and read without trusting it."""

from __future__ import annotations

import os
import stat
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

from vramlab_classroom.lms.archives import opened
from vramlab_classroom.run.submissions import MAX_NOTEBOOK_BYTES, Refused


def _zip(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def _first(source: Path) -> bytes:
    with opened(source) as found:
        return found[0].read()


def test_a_zip_and_a_folder_list_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    names = ("ada/02.ipynb", "ada/timestamp.txt", "bob/02.IPYNB", "bob/work.zip", "notes.txt")
    junk = ("__MACOSX/ada/02.ipynb", "ada/.ipynb_checkpoints/02-checkpoint.ipynb")
    for name in (*names, *junk):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    packed = _zip(tmp_path / "in.zip", *((name, b"{}") for name in (*junk, *names)))
    for source in (folder, packed):
        with opened(source) as found:
            assert [str(parcel.path) for parcel in found] == list(names)
            assert [parcel.read() for parcel in found] == [b"{}"] * 5
            assert [parcel.is_notebook for parcel in found] == [True, False, True, False, False]
            assert [parcel.is_of_no_use for parcel in found] == [False] * 4 + [True]


def test_the_time_of_a_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "in" / "02.ipynb"
    file.parent.mkdir()
    file.write_bytes(b"{}")
    os.utime(file, (0, 86400))
    with opened(file.parent) as (parcel,):
        assert parcel.modified == datetime(1970, 1, 2)
    entry = zipfile.ZipInfo("02.ipynb", (2026, 3, 1, 10, 30, 2))
    with opened(_zip(tmp_path / "in.zip", (entry, b"{}"))) as (parcel,):
        assert parcel.modified == datetime(2026, 3, 1, 10, 30, 2)


def test_a_zip_bomb_is_read_up_to_the_limit_only(tmp_path: Path) -> None:
    packed = _zip(tmp_path / "in.zip", ("02.ipynb", b"0" * (MAX_NOTEBOOK_BYTES + 1)))
    assert packed.stat().st_size < 100_000
    with pytest.raises(Refused, match="larger than"):
        _first(packed)


def test_a_file_that_claims_to_be_small_is_damaged(tmp_path: Path) -> None:
    packed = _zip(tmp_path / "in.zip", ("02.ipynb", b"0" * 1000))
    # The size after unpacking, in the local header and in the directory at the end.
    packed.write_bytes(packed.read_bytes().replace((1000).to_bytes(4, "little"), b"\5\0\0\0"))
    try:
        assert _first(packed) == b"0" * 5
    except Refused as refused:
        assert "damaged" in str(refused)  # noqa: PT017


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "gradebook.db"
    secret.write_bytes(b"secret")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "02.ipynb").symlink_to(secret)
    (folder / "elsewhere").symlink_to(tmp_path)
    with opened(folder) as (parcel,), pytest.raises(Refused, match="link"):
        parcel.read()
    entry = zipfile.ZipInfo("02.ipynb")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(Refused, match="link"):
        _first(_zip(tmp_path / "in.zip", (entry, b"../../gradebook.db")))


def test_a_locked_file_and_a_damaged_one_say_so(tmp_path: Path) -> None:
    packed = _zip(tmp_path / "in.zip", ("02.ipynb", b"some text to be damaged"))
    whole = packed.read_bytes()
    locked = bytearray(whole)
    locked[whole.index(b"PK\1\2") + 8] |= 1  # the flag in the directory
    packed.write_bytes(locked)
    with pytest.raises(Refused, match="password"):
        _first(packed)
    damaged = bytearray(whole)
    damaged[len("02.ipynb") + 30 + 5] ^= 0xFF  # after the local header of 30 bytes and the name
    packed.write_bytes(damaged)
    with pytest.raises(Refused, match="damaged"):
        _first(packed)
