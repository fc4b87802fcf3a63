"""Commit to a number before it is shown.

    prediction = predict("How much does the first forward pass add?", unit="MiB")
    prediction                       # a field and a button; or, without widgets:
    prediction.commit(160)
    ...                              # measure
    prediction.reveal(result["forward"].growth_bytes)

'Run all' never waits: where no number was committed, `reveal` says so and shows what was measured.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from html import escape
from typing import Any

import ipywidgets

from vramlab.measure import Table
from vramlab.measure.figures import UNIT_BYTES
from vramlab_course.widgets.accessible import MENDS_ITS_BOX, status_html

NO_PREDICTION = "no prediction made"

COUNTS = ("samples", "tokens", "layers", "times")
"""What can be predicted besides memory: a number of these."""

_UNITS = {**UNIT_BYTES, **dict.fromkeys(COUNTS, 1)}


class Prediction:
    """A question, and the number that the learner commits to. Made by `predict`.

    Attributes:
        field: the ipywidgets text field for the number.
        button: the ipywidgets button that commits it.
        message: the ipywidgets element that tells what became of it.
    """

    def __init__(self, question: str, unit: str) -> None:
        self.question = question
        self.unit = unit
        self._committed: Decimal | None = None
        self._revealed = False
        self.field = ipywidgets.Text(
            description=f"Your prediction in {unit}",
            placeholder="a number",
            # Sent as a whole when the field is left: ipywidgets holds back what is typed while the
            # kernel is busy, and the button would commit to the first digits.
            continuous_update=False,
            style={"description_width": "initial"},
        )
        self.button = ipywidgets.Button(
            description="Commit", tooltip="Commit to this number before it is measured"
        )
        self.message = ipywidgets.HTML(status_html("Enter a number, then commit to it."))
        self.box = ipywidgets.VBox(
            [
                # ipywidgets would stretch the lines.
                ipywidgets.HTML(
                    f'<p style="line-height: 1.5;">{escape(question)}</p>{MENDS_ITS_BOX}'
                ),
                ipywidgets.HBox(
                    [self.field, self.button], layout=ipywidgets.Layout(flex_flow="row wrap")
                ),
                self.message,
            ]
        )
        self.button.on_click(self._commit_field)

    @property
    def value(self) -> float | None:
        """The committed number in `unit`, or None."""
        return None if self._committed is None else float(self._committed)

    @property
    def predicted_bytes(self) -> int | None:
        """The committed number in bytes, to the nearest whole byte, or None; a count as it is."""
        if self._committed is None:
            return None
        return round(self._committed * _UNITS[self.unit])

    def commit(self, number: float | str) -> Prediction:
        """Commit to a number in `unit`; it can be changed until something is revealed.

        Raises:
            ValueError: that is no number.
            RuntimeError: the measured value has been revealed to this prediction already.
        """
        if self._revealed:
            raise RuntimeError(
                f"the answer to {self.question!r} has been revealed; a prediction counts only "
                "before. Run the cell with predict(...) again to start afresh"
            )
        self._committed = _parse(number)
        self.field.value = f"{self._committed:f}"
        self.message.value = status_html(f"Committed: {self._committed:,f} {self.unit}.")
        return self

    def reveal(self, measured_bytes: int) -> Table:
        """Show the prediction beside what was measured.

        A prediction that was made is final from here on. One that was not may still be made, and
        this called again.

        Args:
            measured_bytes: such as `result["forward"].growth_bytes`; of a count, the number.
        """
        unit_bytes = _UNITS[self.unit]
        measured = Decimal(measured_bytes) / unit_bytes
        if self._committed is None:
            predicted, difference = NO_PREDICTION, "-"
            notes: tuple[str, ...] = ("Commit to a number above and run this cell again.",)
        else:
            self._revealed = True
            self.field.disabled = self.button.disabled = True
            predicted = _number(self._committed, self.unit)
            difference = _verdict(self._committed, measured, self.unit)
            notes = ()
        return Table(
            caption=self.question,
            header=("", "your prediction", "measured", "difference"),
            rows=(
                (
                    "number" if self.unit in COUNTS else "size",
                    predicted,
                    self._with_bytes(_number(measured, self.unit), measured_bytes),
                    difference,
                ),
            ),
            notes=notes,
        )

    def _with_bytes(self, amount: str, size_bytes: int) -> str:
        """Add to an amount the bytes behind it, where it is not in bytes itself."""
        in_bytes = f"{size_bytes:,} B"
        return amount if self.unit in COUNTS or amount == in_bytes else f"{amount}\n{in_bytes}"

    def _commit_field(self, _source: object) -> None:
        try:
            self.commit(self.field.value)
        except (ValueError, RuntimeError) as error:
            self.message.value = f'<p role="alert">{escape(str(error))}</p>'

    def _in_words(self) -> str:
        if self._committed is None:
            return f"{self.question} ({NO_PREDICTION}; prediction.commit(number) makes one)"
        return f"{self.question} (committed: {_number(self._committed, self.unit)})"

    def __repr__(self) -> str:
        return self._in_words()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(self.box._repr_mimebundle_(**options))
        bundle["text/html"] = f"<p>{escape(self._in_words())}</p>"
        bundle["text/plain"] = self._in_words()
        return bundle


def predict(question: str, unit: str = "MiB") -> Prediction:
    """Ask for a prediction.

    Args:
        question: what will be measured.
        unit: the unit of the answer: B, KiB, MiB, GiB (powers of two), KB, MB or GB; or what is
            counted, one of `COUNTS`.
    """
    if unit not in _UNITS:
        raise ValueError(f"unknown unit {unit!r}; known: {', '.join(_UNITS)}")
    return Prediction(question, unit)


def _parse(number: float | str) -> Decimal:
    try:
        parsed = Decimal(str(number).strip().replace(",", ""))
    except InvalidOperation:
        parsed = Decimal("nan")
    if not parsed.is_finite():
        raise ValueError(f"{number!r} is not a number: enter one such as 160 or 8.125")
    return parsed


def _number(number: Decimal, unit: str) -> str:
    """Write a number for a cell: at most six decimals, no idle zeros."""
    text = f"{number:,.6f}".rstrip("0").rstrip(".")
    return f"{text} {unit}"


def _verdict(predicted: Decimal, measured: Decimal, unit: str) -> str:
    """Say measured minus predicted, and what share of the measured value was missed."""
    difference = measured - predicted
    if not difference:
        return "equal"
    sign = "+" if difference > 0 else "-"
    text = f"{sign}{_number(abs(difference), unit)}"
    if not measured:
        return text
    direction = "too low" if difference > 0 else "too high"
    return f"{text}\n{abs(difference / measured):.1%} {direction}"
