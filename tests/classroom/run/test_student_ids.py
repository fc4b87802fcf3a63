"""Ids of students: folders that nbgrader can use, the same for the same name."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramlab_classroom.lms.student_ids import MAX_CHARACTERS, is_safe_id, student_id


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Ada  Lovelace", "ada.lovelace"),
        ("ada@example.org", "ada@example.org"),
        ("O'Neill, Tatum-Jane", "o.neill.tatum-jane"),
        ("Weiß", "weiss"),
        ("山田 太郎", "山田.太郎"),
        ("हिन्दी", "हिन्दी"),  # vowels written as marks stay
        ("../../etc/passwd", "etc.passwd"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("a+b*[c]?", "a.b.c"),
        ("evil\u202egnp", "evil.gnp"),  # no character that turns the direction of writing
        ("\x00\n", ""),
        ("...", ""),
    ],
)
def test_ids_of_names(name: str, expected: str) -> None:
    assert student_id(name) == expected


def test_an_accent_is_the_same_however_it_is_encoded() -> None:
    composed, decomposed = (unicodedata.normalize(form, "José Ñandú") for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert student_id(composed) == student_id(decomposed) == "josé.ñandú"


@given(st.text())
def test_any_name_gives_a_safe_id_or_none(name: str) -> None:
    made = student_id(name)
    assert made == "" or is_safe_id(made)
    assert len(made) <= MAX_CHARACTERS
    assert len(made.encode()) <= 255
    assert not set(made) & set("/\\+*?[]{}:, \0")
