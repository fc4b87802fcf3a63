"""Predictions: committed by widget or by code, revealed once, never in the way of 'Run all'."""

from __future__ import annotations

import pytest

from vramlab.units import MIB
from vramlab_course.widgets import Prediction, predict

QUESTION = "How much does the first forward pass add?"
MEASURED_BYTES = 176_291_840  # 168.125 MiB


@pytest.fixture
def prediction() -> Prediction:
    return predict(QUESTION, unit="MiB")


def test_a_number_is_committed_by_code(prediction: Prediction) -> None:
    assert prediction.commit(160) is prediction
    assert prediction.value == 160
    assert prediction.predicted_bytes == 160 * MIB
    assert repr(prediction) == f"{QUESTION} (committed: 160 MiB)"


def test_a_number_is_committed_with_the_button(prediction: Prediction) -> None:
    prediction.field.value = " 8.125 "
    prediction.button.click()
    assert prediction.predicted_bytes == 8_519_680  # 8.125 * 2**20
    assert "Committed: 8.125 MiB." in prediction.message.value


def test_what_is_no_number_is_refused_in_place(prediction: Prediction) -> None:
    prediction.field.value = "many"
    prediction.button.click()
    assert prediction.value is None
    assert prediction.message.value == (
        '<p role="alert">&#x27;many&#x27; is not a number: enter one such as 160 or 8.125</p>'
    )


@pytest.mark.parametrize("number", ["", "nan", "inf", "12 MiB", float("nan")])
def test_what_is_no_number_is_refused_by_code(prediction: Prediction, number: str | float) -> None:
    with pytest.raises(ValueError, match=r"is not a number: enter one such as 160 or 8\.125"):
        prediction.commit(number)


def test_revealing_shows_the_difference(prediction: Prediction) -> None:
    prediction.commit(160)
    (row,) = prediction.reveal(MEASURED_BYTES).rows
    # 168.125 - 160 = 8.125; 8.125 / 168.125 = 4.8 %
    assert row == (
        "size",
        "160 MiB",
        "168.125 MiB\n176,291,840 B",
        "+8.125 MiB\n4.8% too low",
    )


def test_too_much_is_said_too(prediction: Prediction) -> None:
    prediction.commit("336.25")
    assert prediction.reveal(MEASURED_BYTES).rows[0][3] == "-168.125 MiB\n100.0% too high"


def test_an_exact_prediction_is_equal(prediction: Prediction) -> None:
    prediction.commit(168.125)
    assert prediction.reveal(MEASURED_BYTES).rows[0][3] == "equal"


def test_nothing_measured_has_no_share(prediction: Prediction) -> None:
    prediction.commit(2)
    assert prediction.reveal(0).rows[0][3] == "-2 MiB"


def test_run_all_reveals_without_a_prediction(prediction: Prediction) -> None:
    table = prediction.reveal(MEASURED_BYTES)
    assert table.rows[0][1:] == (
        "no prediction made",
        "168.125 MiB\n176,291,840 B",
        "-",
    )
    assert table.notes == ("Commit to a number above and run this cell again.",)
    # and one can still be made
    prediction.commit(160)
    assert prediction.reveal(MEASURED_BYTES).rows[0][1] == "160 MiB"


def test_a_revealed_prediction_is_final(prediction: Prediction) -> None:
    prediction.commit(160)
    prediction.reveal(MEASURED_BYTES)
    assert prediction.field.disabled
    assert prediction.button.disabled
    with pytest.raises(RuntimeError, match="has been revealed; a prediction counts only before"):
        prediction.commit(168.125)
    assert prediction.value == 160


def test_a_changed_mind_before_revealing_counts(prediction: Prediction) -> None:
    prediction.commit(160).commit(170)
    assert prediction.value == 170


def test_without_a_kernel_the_question_is_text(prediction: Prediction) -> None:
    bundle = prediction._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    words = f"{QUESTION} (no prediction made; prediction.commit(number) makes one)"
    assert bundle["text/plain"] == words
    assert bundle["text/html"] == f"<p>{words}</p>"


def test_numbers_of_something_are_no_bytes() -> None:
    prediction = predict("How many fit?", unit="samples").commit(20)
    assert prediction.reveal(21).rows == (
        ("number", "20 samples", "21 samples", "+1 samples\n4.8% too low"),
    )


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown unit 'Mb'; known: B, KiB, MiB"):
        predict(QUESTION, unit="Mb")
