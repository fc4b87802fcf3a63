"""A folder has a language, and what is asked there is asked in it."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest

from vramlab_course.translations.language import (
    ENGLISH,
    choose_language,
    language_here,
    language_of,
    languages,
)
from vramlab_course.translations.speech import say, spoken
from vramlab_course.widgets import predict
from vramlab_course.widgets.guesses import Guess

QUESTION = "By how much does 'used' grow with the first tensor?"  # of lesson 01
MISTAKE = "That is the tensor. What does the process need before it can have one?"


@pytest.fixture
def chinese_lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """We are where the kernel of a lesson is, in a folder that was put there in Chinese."""
    choose_language(tmp_path, "zh")
    (tmp_path / "lessons").mkdir()
    monkeypatch.chdir(tmp_path / "lessons")


def test_there_are_two() -> None:
    assert languages() == [ENGLISH, "zh"]


@pytest.mark.parametrize("written", [None, "", "tlh\n", "en\n"])
def test_a_folder_is_in_english_unless_it_says_otherwise(
    tmp_path: Path, written: str | None
) -> None:
    if written is not None:
        (tmp_path / ".vramlab").mkdir()
        (tmp_path / ".vramlab" / "language").write_text(written)
    assert language_of(tmp_path) == ENGLISH


@pytest.mark.usefixtures("chinese_lessons")
def test_a_lesson_is_in_the_language_of_its_folder() -> None:
    assert language_here() == "zh"
    assert say("{points} points.", points=3) == "3 分。"
    assert say("Nobody has translated {this}.", this="that") == "Nobody has translated that."
    assert say("{no value} for these braces") == "{no value} for these braces"


def test_elsewhere_english_is_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert say("{points} points.", points=3) == "3 points."


@pytest.mark.usefixtures("chinese_lessons")
def test_a_prediction_is_asked_for_in_chinese_and_kept_in_english() -> None:
    prediction = predict(QUESTION, unit="MiB", hint="Nobody knows.", mistakes={MISTAKE: 4})
    page = prediction._repr_mimebundle_()["text/html"]
    assert escape(spoken(QUESTION, "zh")) in page
    assert "以 MiB 计" in page
    assert escape(QUESTION) not in page
    assert "Nobody knows." in page
    assert prediction.commit_button.description == "提交"
    # It is known by its English, whatever the language is that it was asked in.
    assert prediction.question == QUESTION

    answer = prediction.commit("4 B").reveal(256 * 2**20)
    assert answer.feedback() == f"1 分。 {spoken(MISTAKE, 'zh')}"
    table = answer.table()
    assert table.caption == spoken(QUESTION, "zh")
    # 4 B of 256 MiB, which is 268,435,456 B
    assert table.header == ("", "你的预测", "测得", "差")
    assert table.rows[0][2] == "256 MiB\n268,435,456 B"
    assert table.rows[0][3].endswith("100.0% 偏低")


@pytest.mark.usefixtures("chinese_lessons")
def test_what_cannot_be_read_is_refused_in_chinese() -> None:
    with pytest.raises(ValueError, match="'viel' 不是以 MiB 计的数"):
        Guess.read("viel", "MiB")
