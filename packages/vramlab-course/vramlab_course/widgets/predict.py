"""Commit to a number, or a range, before it is shown.

    prediction = predict("05.forward")
    prediction                       # a field and buttons; or, without widgets:
    prediction.commit(160)           # or commit("150 to 170"), or skip()
    ...                              # measure
    prediction.reveal(result["forward"].growth_bytes)

The question, its hints and its known mistakes are in the lesson's folder (`questions`), so that
the notebook's source does not give them away. `reveal` waits until the learner has committed or
skipped, and then shows the answer in place: "Run all" reveals nothing, and does not block.
Pages without a kernel have the answer folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from html import escape
from typing import Any

import ipywidgets
import torch

from vramlab.measure import Table
from vramlab_course.translations.speech import say
from vramlab_course.widgets import person
from vramlab_course.widgets.accessible import COMMITS, MENDS_ITS_BOX, status_html
from vramlab_course.widgets.guesses import (
    COUNTS,
    MOST_POINTS,
    NEAR,
    UNITS,
    Counters,
    Guess,
    Mistakes,
    amount,
    likely_mistake,
)
from vramlab_course.widgets.prediction_record import (
    PredictionOutcome,
    PredictionRecord,
    own_record,
    this_lesson,
    today,
)
from vramlab_course.widgets.questions import ALLOCATED, Question, find

NO_PREDICTION = "no prediction made"
SKIPPED = "skipped"

_HOW = (
    "A number, or a range such as 150 to 170. Points: {most} within {near}, 2 for a range that "
    "holds the answer, 1 for any other. To skip costs that point."
)
_WAITING = "The answer appears here once you have committed to a prediction, or skipped it."
_LINES = "line-height: 1.5;"
"""Because ipywidgets would stretch them."""


class Prediction:
    """A question, and what the learner commits to. Made by `predict`.

    Args:
        asked: the question, with its hints and mistakes.
        values: those that the question's mistakes are computed from, by their names.
        record: where points are written down; None for nowhere.

    Attributes:
        question: what will be measured.
        unit: of the answer.
        field: the ipywidgets text field.
        commit_button: the ipywidgets button that commits what is in it.
        hint_button: the one that shows the next hint.
        skip_button: the one that goes without a prediction.
        message: the ipywidgets element that shows the result.
        guess: what the learner committed to, or None.
        is_skipped: whether the learner chose to go without.
    """

    def __init__(
        self, asked: Question, values: Mapping[str, Any], record: PredictionRecord | None = None
    ) -> None:
        self.question = asked.text
        self.unit = asked.unit
        self.guess: Guess | None = None
        self.is_skipped = False
        self._hints = asked.hints
        self._hints_shown = 0
        self._allocated_before_bytes = _allocated_bytes()
        self._mistakes = asked.mistakes_with({**values, ALLOCATED: self._allocated_before_bytes})
        self._record = record
        self._answer: Answer | None = None
        self._score: str | None = None
        self._make_widgets()

    def _make_widgets(self) -> None:
        self.field = ipywidgets.Text(
            description=say("Your prediction in {unit}", unit=self.unit),
            placeholder=say("a number or a range"),
            # Sent as a whole when the field is left: ipywidgets holds back what is typed while the
            # kernel is busy, and the button would commit to the first digits.
            continuous_update=False,
            style={"description_width": "initial"},
            layout={
                "width": "350px",  # for the longest unit and the words in the empty field
                "max_width": "calc(100% - 4px)",  # no wider than a phone, with its margins
            },
        )
        self.commit_button = _button(say("Commit"), say("Commit to this before it is measured"))
        self.commit_button.add_class(COMMITS)  # Enter in the field presses it
        self.hint_button = _button(say("Hint"), say("Show a hint; it costs nothing"))
        self.skip_button = _button(
            say("Skip"), say("See the answer without a prediction; costs a point")
        )
        self.commit_button.on_click(self._commit_field)
        self.hint_button.on_click(self._show_hint)
        self.skip_button.on_click(self._skip)
        self._shown_hints = ipywidgets.HTML()
        self.message = ipywidgets.HTML()
        self._say(say(_HOW, most=MOST_POINTS, near=f"{NEAR:.0%}"))
        buttons = [self.commit_button, *[self.hint_button][: len(self._hints)], self.skip_button]
        question = f'<p style="{_LINES}">{escape(say(self.question))}</p>{MENDS_ITS_BOX}'
        row = ipywidgets.Layout(flex_flow="row wrap")
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HTML(question),
                ipywidgets.HBox([self.field, *buttons], layout=row),
                self._shown_hints,
                self.message,
            ]
        )

    def commit(self, guess: float | str | tuple[float, float]) -> Prediction:
        """Commit to a number or a range; it can be changed until something is revealed.

        Args:
            guess: 160, "150 to 170", "0.5 GiB", or (150, 170); in the prediction's unit unless it
                says another.

        Raises:
            ValueError: that is no number and no range.
            RuntimeError: the measured value has been revealed to this prediction already.
        """
        self._still_open()
        self.guess, self.is_skipped = Guess.read(guess, self.unit), False
        self.field.value = str(self.guess).removesuffix(f" {self.unit}")
        self._say(say("Committed: {guess}.", guess=self.guess))
        self._show_answer()
        return self

    def skip(self) -> Prediction:
        """Go without a prediction: the answer is shown, and the point for a prediction forgone.

        Raises:
            RuntimeError: the measured value has been revealed to this prediction already.
        """
        self._still_open()
        self.guess, self.is_skipped = None, True
        self._say(say("Skipped: no points."))
        self._show_answer()
        return self

    def reveal(self, measured_bytes: float) -> Answer:
        """Show the prediction beside what was measured, now or once it has been made.

        Args:
            measured_bytes: such as `result["forward"].growth_bytes`; of a count, the number.
        """
        counters = _counters(self._allocated_before_bytes)
        self._answer = Answer(self, measured_bytes, self._mistakes, counters)
        self._show_answer()
        return self._answer

    @property
    def leading_question(self) -> str:
        """The first hint that the learner has not seen, or else the last; '' without hints."""
        unseen = self._hints[self._hints_shown :] or self._hints[-1:]
        return unseen[0] if unseen else ""

    @property
    def is_decided(self) -> bool:
        """Whether the learner has committed or skipped."""
        return self.guess is not None or self.is_skipped

    def _show_answer(self) -> None:
        """Show what has been measured, if anything has, to who has decided."""
        if self._answer is None or not self.is_decided:
            return
        controls = (self.field, self.commit_button, self.hint_button, self.skip_button)
        for control in controls:
            control.disabled = True
        if self._score is None:
            self._score = self._write_down(self._answer)
        self._answer.show(self._score)

    def _write_down(self, answer: Answer) -> str:
        if self._record is None:
            return ""
        return self._record.add(
            PredictionOutcome(
                lesson=this_lesson(),
                question=self.question,
                predicted=None if self.guess is None else str(self.guess),
                measured=amount(answer.measured, self.unit),
                points=answer.points,
                on=today(),
            )
        )

    @property
    def _is_revealed(self) -> bool:
        return self._answer is not None and self.is_decided

    def _still_open(self) -> None:
        if self._is_revealed:
            raise RuntimeError(
                f"the answer to {self.question!r} has been revealed; a prediction counts only "
                "before. Run the cell with predict(...) again to start afresh"
            )

    def _commit_field(self, _source: object) -> None:
        if self._is_revealed:  # of two clicks, the second
            return
        try:
            self.commit(self.field.value)
        except ValueError as error:
            self._show_message(f'<p role="alert">{escape(str(error))}</p>')

    def _skip(self, _source: object) -> None:
        if not self._is_revealed:
            self.skip()

    def _show_hint(self, _source: object) -> None:
        self._hints_shown += 1
        shown = self._hints[: self._hints_shown]
        paragraphs = "".join(f"<li>{escape(say(hint))}</li>" for hint in shown)
        self._shown_hints.value = (
            f'<ul role="status" aria-label="{say("Hints")}" style="{_LINES}">{paragraphs}</ul>'
        )
        self.hint_button.disabled = len(shown) == len(self._hints)

    def _say(self, words: str) -> None:
        self._show_message(status_html(words))

    def _show_message(self, html: str) -> None:
        self.message.value = f'<div style="{_LINES}">{html}</div>'

    def __repr__(self) -> str:
        if self.guess is not None:
            return f"{self.question} (committed: {self.guess})"
        if self.is_skipped:
            return f"{self.question} ({SKIPPED})"
        return (
            f"{self.question} ({NO_PREDICTION}; prediction.commit(number) makes one, "
            "prediction.skip() goes without)"
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        hints = "".join(
            f"<details><summary>{say('Hint')}</summary><p>{escape(say(hint))}</p></details>"
            for hint in self._hints
        )
        opening = say("<strong>Predict</strong>, in {unit}:", unit=escape(self.unit))
        html = f"<p>{opening} {escape(say(self.question))}</p>{hints}"
        return person.display_bundle(self.box, html, repr(self), **options)


class Answer:
    """What was measured, beside what was predicted; shown once the learner has decided.

    Attributes:
        box: the ipywidgets element that shows it.
        measured: in the prediction's unit.
    """

    def __init__(
        self,
        prediction: Prediction,
        measured_bytes: float,
        mistakes: Mistakes,
        counters: Counters | None,
    ) -> None:
        self._prediction = prediction
        self._measured_bytes = measured_bytes
        self._mistakes = mistakes
        self._counters = counters
        self._score = ""
        self.measured = Decimal(str(measured_bytes)) / UNITS[prediction.unit]
        self.box = ipywidgets.HTML(status_html(say(_WAITING)))

    @property
    def points(self) -> int:
        """0 to `MOST_POINTS`."""
        guess = self._prediction.guess
        return 0 if guess is None else guess.points(self.measured)

    def show(self, score: str) -> None:
        """Show it where the answer is waited for.

        Args:
            score: how the learner stands in the course; may be empty.
        """
        self._score = score
        self.box.value = self._html()

    def feedback(self) -> str:
        """Describe how good the prediction is, and name its likely mistake, or else give a hint."""
        guess = self._prediction.guess
        one, many = say("1 point."), say("{points} points.", points=self.points)
        words = [one if self.points == 1 else many]
        if guess is not None:
            mistake = likely_mistake(guess, self._measured_bytes, self._mistakes, self._counters)
            leading = self._prediction.leading_question if self.points == 1 else ""
            words += [say(each) for each in [mistake or leading] if each]
        return " ".join([*words, *([self._score] if self._score else [])])

    def table(self) -> Table:
        """Show the prediction beside what was measured, whether one was made or not."""
        prediction, unit = self._prediction, self._prediction.unit
        predicted = say(SKIPPED) if prediction.is_skipped else say(NO_PREDICTION)
        difference = "-"
        if prediction.guess is not None:
            predicted = str(prediction.guess)
            difference = _difference(prediction.guess, self.measured)
        measured = amount(self.measured, unit)
        in_bytes = f"{self._measured_bytes:,} B"
        if unit not in COUNTS and measured != in_bytes:
            measured = f"{measured}\n{in_bytes}"
        kind = say("number") if unit in COUNTS else say("size")
        return Table(
            caption=say(prediction.question),
            header=("", say("your prediction"), say("measured"), say("difference")),
            rows=((kind, predicted, measured, difference),),
            notes=(self.feedback(),) if prediction.is_decided else (),
        )

    def _html(self) -> str:
        return f'<div role="status">{self.table()._repr_html_()}</div>'

    def __str__(self) -> str:
        return str(self.table()) if self._prediction.is_decided else say(_WAITING)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        html = self._html()
        if not self._prediction.is_decided:
            measured = ", ".join(self.table().rows[0][2].split("\n"))
            question = say("The answer to: {question}", question=say(self._prediction.question))
            html = (
                f"<details><summary>{escape(question)}</summary><p>{escape(measured)}</p></details>"
            )
        return person.display_bundle(self.box, html, str(self), **options)


def predict(key: str, **values: Any) -> Prediction:
    """Ask for the prediction that a lesson has under a key.

    In a notebook that a person runs, the result is written to that person's own file: see
    `prediction_score`.

    Args:
        key: the lesson's number and the question's name, such as '05.forward'.
        values: what the notebook knows and the question's known mistakes are computed from.

    Raises:
        ValueError: no lesson has this key.
        TypeError: a value is missing, or is not one that the question needs.
    """
    asked = find(key)
    if values.keys() != asked.needs:
        call = ", ".join([repr(key), *(f"{name}={name}" for name in sorted(asked.needs))])
        got = ", ".join(sorted(values)) or "none"
        raise TypeError(f"the prediction {key!r} got the wrong values ({got}): predict({call})")
    return Prediction(asked, values, own_record() if person.is_here() else None)


def _button(description: str, tooltip: str) -> Any:
    return ipywidgets.Button(
        description=description, tooltip=tooltip, layout=ipywidgets.Layout(width="auto")
    )


def _difference(guess: Guess, measured: Decimal) -> str:
    """Return by how much the prediction is too high or too low."""
    missed = guess.distance(measured)
    if not missed:
        return say("equal") if guess.low == guess.high else say("in the range")
    missed_by = amount(abs(missed), guess.unit)
    if missed > 0:
        return say("{missed_by} too low", missed_by=missed_by)
    return say("{missed_by} too high", missed_by=missed_by)


def _has_gpu() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _allocated_bytes() -> int:
    return torch.cuda.memory_allocated() if _has_gpu() else 0


def _counters(allocated_before_bytes: int) -> Counters | None:
    if not _has_gpu():
        return None
    return Counters(
        allocated_before_bytes=allocated_before_bytes,
        allocated_bytes=torch.cuda.memory_allocated(),
        peak_bytes=torch.cuda.max_memory_allocated(),
        reserved_bytes=torch.cuda.memory_reserved(),
    )
