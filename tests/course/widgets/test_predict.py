"""Predictions: nothing is shown before the learner commits or skips, and nothing waits for that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from jupyter_client.manager import start_new_kernel

import vramlab
from vramlab.units import MIB
from vramlab_course.widgets import Answer, Prediction, predict
from vramlab_course.widgets.prediction_record import PredictionRecord
from vramlab_course.widgets.questions import Question

QUESTION = "How much does the first forward pass add?"
MEASURED_BYTES = 176_291_840  # 168.125 MiB
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def prediction() -> Prediction:
    asked = Question(
        QUESTION,
        hint=("Who holds the outputs?", "And the input of ReLU?"),
        mistakes={"You counted the input as well.": MEASURED_BYTES + 40 * MIB},
    )
    return Prediction(asked, {})


def cells(answer: Answer) -> tuple[str, ...]:
    """What was predicted, measured, and the difference."""
    (row,) = answer.table().rows
    return row[1:]


def test_a_range_is_committed_with_the_button(prediction: Prediction) -> None:
    prediction.field.value = " 150 - 170 "
    prediction.commit_button.click()
    assert prediction.field.value == "150 to 170"
    assert "Committed: 150 to 170 MiB." in prediction.message.value


def test_what_is_no_number_is_refused_in_place(prediction: Prediction) -> None:
    prediction.field.value = "<many>"
    prediction.commit_button.click()
    assert not prediction.is_decided
    assert (
        '<p role="alert">&#x27;&lt;many&gt;&#x27; is not a number of MiB: enter one such as 160 '
        "or 8.125, or a range such as 150 to 170</p>"
    ) in prediction.message.value


def test_revealing_shows_the_difference(prediction: Prediction) -> None:
    prediction.commit(160)
    # 168.125 - 160 = 8.125
    answer = prediction.reveal(MEASURED_BYTES)
    assert cells(answer) == (
        "160 MiB",
        "168.125 MiB\n176,291,840 B",
        "8.125 MiB too low",
    )
    assert answer.feedback() == "3 points."
    assert "168.125 MiB" in answer.box.value


def test_too_much_is_said_too_with_the_mistake(prediction: Prediction) -> None:
    answer = prediction.commit("208.125").reveal(MEASURED_BYTES)
    assert cells(answer)[2] == "40 MiB too high"
    assert answer.feedback() == "1 point. You counted the input as well."
    assert answer.table().notes == (answer.feedback(),)


@pytest.mark.parametrize(
    ("typed", "difference", "feedback"),
    [
        ("168.125", "equal", "3 points."),
        ("150 to 200", "in the range", "2 points."),
        ("100 to 150", "18.125 MiB too low", "1 point. Who holds the outputs?"),
    ],
)
def test_a_range_is_held_against_its_nearer_end(
    prediction: Prediction, typed: str, difference: str, feedback: str
) -> None:
    answer = prediction.commit(typed).reveal(MEASURED_BYTES)
    assert (cells(answer)[2], answer.feedback()) == (difference, feedback)


def test_an_unknown_mistake_gets_a_hint_that_was_not_shown_yet(prediction: Prediction) -> None:
    prediction.hint_button.click()
    answer = prediction.commit(100).reveal(MEASURED_BYTES)
    assert answer.feedback() == "1 point. And the input of ReLU?"
    prediction.hint_button.click()
    assert answer.feedback() == "1 point. And the input of ReLU?"


# ---- Nothing is given away ----


def shown(answer: Answer) -> tuple[str, str]:
    return answer.box.value, str(answer)


def test_nothing_is_shown_before_a_commitment(prediction: Prediction) -> None:
    answer = prediction.reveal(MEASURED_BYTES)
    for text in shown(answer):
        assert "168" not in text
        assert "once you have committed to a prediction, or skipped it" in text
    prediction.field.value = "150 to 170"
    prediction.commit_button.click()
    for text in shown(answer):
        assert "168.125 MiB" in text
        assert "150 to 170 MiB" in text


def test_a_revealed_prediction_is_final(prediction: Prediction) -> None:
    prediction.commit(160).reveal(MEASURED_BYTES)
    assert prediction.field.disabled
    assert prediction.commit_button.disabled
    assert prediction.skip_button.disabled
    for change in (lambda: prediction.commit(168.125), prediction.skip):
        with pytest.raises(RuntimeError, match="has been revealed; a prediction counts only befor"):
            change()
    assert str(prediction.guess) == "160 MiB"


def test_a_changed_mind_before_revealing_counts(prediction: Prediction) -> None:
    prediction.skip().commit(160).commit(170)
    assert cells(prediction.reveal(MEASURED_BYTES))[0] == "170 MiB"


# ---- Hints ----


def test_hints_come_one_by_one(prediction: Prediction) -> None:
    hints = prediction.box.children[2]
    assert hints.value == ""
    prediction.hint_button.click()
    assert "Who holds the outputs?" in hints.value
    assert "ReLU" not in hints.value
    assert not prediction.hint_button.disabled
    prediction.hint_button.click()
    assert "ReLU" in hints.value
    assert prediction.hint_button.disabled


# ---- Beside torch.cuda ----


def test_the_peak_is_recognised_as_the_peak() -> None:
    with vramlab.VirtualGPU("T4"):
        prediction = Prediction(Question("What is kept?"), {}).commit(4)
        kept = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        kept = torch.cat([kept, kept])[:MIB].clone()  # 1 + 2 + 1 MiB, of which 1 is kept
        answer = prediction.reveal(torch.cuda.memory_allocated())
    assert "that was the peak" in answer.feedback()


# ---- Counts ----


# ---- Values that the notebook passes ----


def test_mistakes_are_computed_from_what_the_notebook_knows() -> None:
    # 05.peak: "You added all gradients of the parameters", 0 + 16 MiB; nothing was allocated.
    with vramlab.VirtualGPU("T4"):
        answer = predict("05.peak", parameters=16 * MIB).commit(16).reveal(360 * MIB)
    assert "You added all gradients of the parameters." in answer.feedback()


def test_a_missing_or_unknown_value_is_refused_with_the_call() -> None:
    with pytest.raises(TypeError, match=r"wrong values \(none\): predict\('05.peak', parameters="):
        predict("05.peak")
    with pytest.raises(TypeError, match=r"wrong values \(size\): predict\('05.forward'\)"):
        predict("05.forward", size=1)


# ---- Pages without a kernel ----


def test_a_page_without_a_kernel_asks_and_has_the_answer_folded(prediction: Prediction) -> None:
    question = prediction._repr_mimebundle_()
    assert WIDGET in question
    assert f"<p><strong>Predict</strong>, in MiB: {QUESTION}</p>" in question["text/html"]
    assert question["text/html"].count("<details><summary>Hint</summary>") == 2
    answer = prediction.reveal(MEASURED_BYTES)._repr_mimebundle_()
    assert WIDGET in answer
    assert answer["text/html"] == (
        f"<details><summary>The answer to: {QUESTION}</summary>"
        "<p>168.125 MiB, 176,291,840 B</p></details>"
    )
    assert "168" not in answer["text/plain"]


def test_a_page_shows_what_was_answered(prediction: Prediction) -> None:
    page = prediction.commit(160).reveal(MEASURED_BYTES)._repr_mimebundle_()
    assert "160 MiB" in page["text/html"]
    assert "<details>" not in page["text/html"]


# ---- The record ----


def test_an_answer_is_written_down_once(tmp_path: Path) -> None:
    record = PredictionRecord(tmp_path / "predictions.json")
    prediction = Prediction(Question(QUESTION), {}, record)
    answer = prediction.reveal(MEASURED_BYTES)
    assert not record.path.exists()
    prediction.commit("150 to 200")
    told = "2 points. In the course so far: 2 of 3 points, 1 prediction."
    assert answer.feedback() == told
    assert told in answer.box.value
    assert prediction.reveal(MEASURED_BYTES).feedback() == told  # the cell is run again
    (entry,) = json.loads(record.path.read_text())["predictions"]
    assert (entry["question"], entry["predicted"], entry["measured"], entry["points"]) == (
        QUESTION,
        "150 to 200 MiB",
        "168.125 MiB",
        2,
    )


ANSWERED = f"""
from vramlab_course.widgets import predict
prediction = predict("05.forward")
answer = prediction.commit(160).reveal({MEASURED_BYTES})
answer
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    home = tmp_path_factory.mktemp("home")
    manager, client = start_new_kernel(
        kernel_name="python3",
        env={**os.environ, "XDG_DATA_HOME": str(home), "HOME": str(home)},
    )
    yield client, home
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def _displayed(client: Any, person: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def note(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            found.update(message["content"]["data"])
        assert message["msg_type"] != "error", message["content"]

    client.execute_interactive(ANSWERED, timeout=120, allow_stdin=person, output_hook=note)
    return found


def test_a_program_that_runs_a_notebook_leaves_no_record_and_gets_no_widget(
    kernel: tuple[Any, Path],
) -> None:
    client, home = kernel
    displayed = _displayed(client, person=False)
    assert WIDGET not in displayed
    assert "160 MiB" in displayed["text/html"]
    assert list(home.rglob("predictions*")) == []
    assert WIDGET in _displayed(client, person=True)
    assert [path.name for path in home.rglob("predictions*")] == ["predictions.json"]
