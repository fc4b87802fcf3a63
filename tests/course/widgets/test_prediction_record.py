"""The learner's own file of predictions: the first answer counts, and nothing is ever lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vramlab_course.widgets import prediction_record
from vramlab_course.widgets.prediction_record import (
    BrokenRecord,
    PredictionOutcome,
    PredictionRecord,
    prediction_score,
)


def outcome(question: str = "What?", points: int = 2, lesson: str = "05_step") -> PredictionOutcome:
    predicted = "160 MiB" if points else None
    return PredictionOutcome(lesson, question, predicted, "168.125 MiB", points, "2026-11-22")


@pytest.fixture
def record(tmp_path: Path) -> PredictionRecord:
    return PredictionRecord(tmp_path / "own" / "predictions.json")


def test_nothing_is_there_before_the_first_answer(record: PredictionRecord) -> None:
    assert record.outcomes() == []
    assert not record.path.parent.exists()


def test_answers_add_up_over_the_course(record: PredictionRecord) -> None:
    assert record.add(outcome()) == "In the course so far: 2 of 3 points, 1 prediction."
    assert record.add(outcome("Peak?", 0)) == "In the course so far: 2 of 6 points, 2 predictions."
    record.add(outcome("Peak?", 3, lesson="06_states"))
    assert record.table().rows == (
        ("05_step", "1", "1", "2", "6"),
        ("06_states", "1", "0", "3", "3"),
        ("all", "2", "1", "5", "9"),
    )
    assert str(record.path) in record.table().notes[0]


def test_the_first_answer_counts(record: PredictionRecord) -> None:
    record.add(outcome(points=1))
    assert record.add(outcome(points=3)) == (
        "You had answered this before; your first answer counts. "
        "In the course so far: 1 of 3 points, 1 prediction."
    )
    assert record.outcomes() == [outcome(points=1)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "predictions": []}',
        '{"format": 1, "predictions": [{"lesson": "05"}]}',
        '{"format": 1, "predictions": 3}',
        json.dumps({"format": 1, "predictions": [{**vars(outcome()), "points": 100}]}),
        json.dumps({"format": 1, "predictions": [{**vars(outcome()), "lesson": None}]}),
        "\ud800",
    ],
)
def test_a_broken_file_is_told_and_kept_aside(record: PredictionRecord, text: str) -> None:
    record.path.parent.mkdir()
    broken = text.encode("utf-8", "surrogatepass")
    record.path.write_bytes(broken)
    with pytest.raises(BrokenRecord, match="is no record of predictions"):
        record.table()
    aside = record.path.with_name("predictions.broken-1.json")
    assert record.add(outcome()) == (
        "In the course so far: 2 of 3 points, 1 prediction. "
        f"Your record was broken: it is kept as {aside}, a new one begun."
    )
    assert aside.read_bytes() == broken
    assert record.outcomes() == [outcome()]


def test_what_cannot_be_written_is_told_and_leaves_the_old_file(
    record: PredictionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.add(outcome())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert record.add(outcome("Peak?")) == (
        "Your points could not be written down: [Errno 28] No space left on device."
    )
    assert [path.name for path in record.path.parent.iterdir()] == ["predictions.json"]
    assert record.outcomes() == [outcome()]


def test_the_score_is_that_of_the_file_in_ones_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "of a learner"
    monkeypatch.setattr(prediction_record.platformdirs, "user_data_path", lambda *_, **__: folder)
    prediction_record.own_record().add(outcome())
    assert (folder / "predictions.json").is_file()
    assert prediction_score().rows[-1] == ("all", "1", "0", "2", "3")


@pytest.mark.parametrize(
    ("session", "lesson"),
    [("/home/me/lessons/05_one_training_step.ipynb", "05_one_training_step"), (None, "elsewhere")],
)
def test_the_lesson_is_that_of_jupyters_session(
    monkeypatch: pytest.MonkeyPatch, session: str | None, lesson: str
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    assert prediction_record.this_lesson() == lesson
