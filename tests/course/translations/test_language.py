"""A folder has a language, and what is asked there is asked in it."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest

from vramlab import words
from vramlab.table import Table
from vramlab_classroom.judge.verdict import Grade, Verdict, WrongAnswer
from vramlab_course.lessons.l15_mixed_precision.float_explorer import float_explorer
from vramlab_course.plots import picture as picture_module
from vramlab_course.plots.picture import Picture
from vramlab_course.translations.language import (
    ENGLISH,
    choose_language,
    language_here,
    language_of,
)
from vramlab_course.translations.speech import say, say_name, spoken, title_of
from vramlab_course.widgets import Prediction, spoken_frames
from vramlab_course.widgets.guesses import Guess
from vramlab_course.widgets.questions import Question

QUESTION = "By how much does 'used' grow with the first tensor?"  # of lesson 01
MISTAKE = "That is the tensor alone. What does a process need before it can have one?"


@pytest.fixture
def chinese_lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """We are where the kernel of a lesson is, in a folder that was put there in Chinese."""
    choose_language(tmp_path, "zh")
    (tmp_path / "lessons").mkdir()
    monkeypatch.chdir(tmp_path / "lessons")


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
    assert say("This is untranslated: {this}.", this="that") == "This is untranslated: that."
    assert say("{no value} for these braces") == "{no value} for these braces"


def test_elsewhere_english_is_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert say("{points} points.", points=3) == "3 points."


@pytest.mark.usefixtures("chinese_lessons")
def test_a_prediction_is_asked_for_in_chinese_and_kept_in_english() -> None:
    asked = Question(QUESTION, hint="Who knows?", mistakes={MISTAKE: 4})
    prediction = Prediction(asked, {})
    page = prediction._repr_mimebundle_()["text/html"]
    assert escape(spoken(QUESTION, "zh")) in page
    assert "以 MiB 计" in page
    assert escape(QUESTION) not in page
    assert "Who knows?" in page
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
    assert table.rows[0][3] == "偏低 256 MiB"  # to three decimals


@pytest.mark.usefixtures("chinese_lessons")
def test_what_cannot_be_read_is_refused_in_chinese() -> None:
    with pytest.raises(ValueError, match="'viel' 不是以 MiB 计的数"):
        Guess.read("viel", "MiB")


@pytest.mark.usefixtures("chinese_lessons")
def test_an_explorer_has_its_controls_named_in_chinese() -> None:
    shown = float_explorer("1e-8")
    assert shown.controls["number"].description == spoken("Number", "zh") == "数"
    html = shown._repr_mimebundle_()["text/html"]
    assert html.startswith("<h3>一个数怎样存储</h3>")
    assert "数: 1e-8" in html


@pytest.mark.usefixtures("chinese_lessons")
def test_a_picture_has_its_title_above_it_in_letters_that_its_font_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(picture_module, "is_told", lambda language: False)  # no Chinese font here
    picture = Picture(figsize=(1, 1))
    picture.alt = "1,000 MiB are free, in two pieces. Segment 1: 550 MiB."
    html = picture._repr_mimebundle_()["text/html"]
    title = spoken("1,000 MiB are free, in two pieces", "zh")
    assert html.startswith(f"<p><strong>{title}</strong></p><img ")
    picture.alt = "This is untranslated. Segment 1: 550 MiB."
    assert picture._repr_mimebundle_()["text/html"].startswith("<img ")


@pytest.mark.usefixtures("chinese_lessons")
def test_values_in_a_title_stay() -> None:
    lesson_01 = "Lazy loading makes a small process 57% smaller"
    assert title_of(f"{lesson_01}. From 636 MiB to 274 MiB.") == "延迟加载让一个小进程缩小了 57%"
    assert say(lesson_01) == "延迟加载让一个小进程缩小了 57%"
    assert say(f"{lesson_01}. And more") == f"{lesson_01}. And more"


@pytest.mark.usefixtures("chinese_lessons")
def test_tables_speak_where_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "in_readers_language", str)  # put back afterwards
    monkeypatch.setattr(words, "names_in_readers_language", str)
    shown = Table("One forward pass, in MiB", ("mode", "GiB"), (("mode", "1"),))
    in_english = shown._repr_html_()
    spoken_frames.speak_to_the_reader()
    assert shown._repr_html_() == in_english
    monkeypatch.setattr(spoken_frames, "in_a_kernel", object)
    spoken_frames.speak_to_the_reader()
    in_chinese = in_english.replace(">mode<", ">模式<", 1)  # the heading, not the row's name
    assert shown._repr_html_() == in_chinese.replace(shown.caption, spoken(shown.caption, "zh"))


@pytest.mark.usefixtures("chinese_lessons")
def test_a_likely_mistake_is_named_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "in_readers_language", say)
    verdict = Verdict("process_bytes", 2, Grade.FAILED, "You left out the gradients.")
    assert str(WrongAnswer(verdict)) == "process_bytes: 未通过，得 0 分，共 2 分\n你漏了梯度。"  # noqa: RUF001


@pytest.mark.usefixtures("chinese_lessons")
def test_a_name_that_may_be_one_in_code_stays() -> None:
    # 'kept' is a heading of lesson 08, and a tensor of lesson 02.
    assert say("kept") == "保存的"
    assert say_name("kept 4.000 MiB") == "kept 4.000 MiB"
    assert say_name("activations 24 MiB") == "激活值 24 MiB"
    assert say_name("large pool: 2 segments") == "大池：2 个段"  # noqa: RUF001
    assert say_name("peak 2 GiB\nparameters: 3 GiB") == "峰值 2 GiB\n参数: 3 GiB"
    assert say_name("parameters: 0.weight") == "参数: 0.weight"
    assert say_name("0.weight: parameters") == "0.weight: 参数"
    whole = say_name("80 layers, 8 key-value heads: 70B")
    assert whole != "80 layers, 8 key-value heads: 70B"
    assert say_name("80 layers, 8 key-value\nheads: 70B") == whole
