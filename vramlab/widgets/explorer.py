"""The base of all explorers: controls on top, and below them what they lead to.

What a reader can count on:

- Sliders are not redrawn while they are dragged, and the output keeps its height, so that nothing
  jumps. Every control has a name and is reached and changed with the keyboard.
- A setting that leads to an error shows the error in place, with what to do; the next setting works
  again.
- A saved page makes sense without a kernel: beside the live widget, an explorer displays what its
  first state looks like as plain HTML. (When nbconvert runs the notebook, leave widget state out:
  `store_widget_state=False`.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

import ipywidgets

from vramlab.measure import Table
from vramlab.plots import Picture
from vramlab.widgets.accessible import MENDS_ITS_BOX

Option = TypeVar("Option", str, int)

SECONDS_BEFORE = 0.5
"""What is shown sooner needs no sign that it is being worked on."""

HEIGHT_PX = 640
"""Usual height of an explorer's output; what does not fit is scrolled to."""

# ipywidgets would stretch the lines; and above a picture that is wider than a phone, the sentence
# would be as wide as that.
_SUMMARY_STYLE = "line-height: 1.5; max-width: 85vw;"


@dataclass(frozen=True)
class View:
    """What an explorer shows for one setting of its controls."""

    summary: str
    """The outcome in a sentence; read out by screen readers at every change."""
    picture: Picture
    tables: tuple[Table, ...] = ()

    def to_html(self) -> str:
        """Summary, picture and tables as HTML."""
        tables = "".join(table._repr_html_() for table in self.tables)
        return (
            f'<div style="{_SUMMARY_STYLE}">'
            f'<p role="status" aria-live="polite">{escape(self.summary)}</p></div>'
            f"{self.picture.to_html()}{tables}"
        )


class Explorer:
    """Controls, and a view that follows them; leave it as a cell's last line to show it.

    Attributes:
        controls: the ipywidgets controls, by the name of the setting they change.
        output: the ipywidgets HTML element that holds the view.
        status: the ipywidgets HTML element that says when a view takes its time.

    Args:
        title: what can be explored.
        controls: ipywidgets controls; their `value`s are passed to `render` by these names.
        render: makes the view for a setting. What it raises is shown in place.
        height_px: height of the output.
    """

    def __init__(
        self,
        title: str,
        controls: Mapping[str, Any],
        render: Callable[..., View],
        height_px: int = HEIGHT_PX,
    ) -> None:
        self.title = title
        self.controls = dict(controls)
        self._render = render
        self.output = ipywidgets.HTML(
            layout=ipywidgets.Layout(height=f"{height_px}px", overflow="auto")
        )
        self.status = ipywidgets.HTML()
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HTML(f"<h3>{escape(title)}</h3>{MENDS_ITS_BOX}"),
                ipywidgets.HBox(
                    [*self.controls.values(), self.status],
                    layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="0 16px"),
                ),
                self.output,
            ]
        )
        for control in self.controls.values():
            control.observe(self._update, names="value")
        self._update()
        self._first_html = self.output.value
        self._first_words = self._describe_settings()

    def settings(self) -> dict[str, Any]:
        """The values of all controls, by name."""
        return {name: control.value for name, control in self.controls.items()}

    def _update(self, _change: object = None) -> None:
        with self._said_to_be_at_work():
            try:
                self.output.value = self._render(**self.settings()).to_html()
            except Exception as error:  # whatever it is, the reader wants to see it here
                self.output.value = error_html(error)

    @contextmanager
    def _said_to_be_at_work(self) -> Iterator[None]:
        """Say that the view is coming, where it does not come at once."""

        def say() -> None:
            self.status.value = '<em role="status">working ...</em>'

        timer = threading.Timer(SECONDS_BEFORE, say)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self.status.value = ""

    def _describe_settings(self) -> str:
        """The settings in words, such as 'batch: 32, optimizer: Adam'."""
        return ", ".join(
            f"{control.description or name}: {control.value}"
            for name, control in self.controls.items()
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(self.box._repr_mimebundle_(**options))
        bundle["text/html"] = (
            f"<h3>{escape(self.title)}</h3><p>With {escape(self._first_words)}. "
            f"(Run this notebook to change it.)</p>{self._first_html}"
        )
        bundle["text/plain"] = f"{self.title}: {self._first_words}"
        return bundle


def error_html(error: Exception) -> str:
    """An error as an alert: what happened, and that another setting can be tried."""
    kind = type(error).__name__
    return (
        f'<div role="alert" style="border: 2px solid; padding: 0.5em 1em;">'
        f'<p><strong>{escape(kind)}</strong></p><p style="white-space: pre-wrap;">'
        f"{escape(str(error))}</p><p>Change a setting above to go on.</p></div>"
    )


def slider(description: str, value: int, smallest: int, largest: int, step: int = 1) -> Any:
    """An integer slider that reports its value when it is let go; its number can be typed too."""
    return ipywidgets.IntSlider(
        value=value,
        min=smallest,
        max=largest,
        step=step,
        description=description,
        continuous_update=False,
        **_LOOK,
    )


def power_slider(description: str, value: int, smallest: int, largest: int) -> Any:
    """A slider over the powers of two from `smallest` to `largest`."""
    options = [2**power for power in range(smallest.bit_length() - 1, largest.bit_length())]
    return ipywidgets.SelectionSlider(
        options=options, value=value, description=description, continuous_update=False, **_LOOK
    )


def choice(description: str, options: Sequence[Option], value: Option) -> Any:
    """A drop-down list."""
    return ipywidgets.Dropdown(options=options, value=value, description=description, **_LOOK)


def checkbox(description: str, value: bool) -> Any:
    """A box to tick."""
    return ipywidgets.Checkbox(
        value=value, description=description, indent=False, layout=_LOOK["layout"]
    )


def run_button(description: str, value: bool, tooltip: str) -> Any:
    """A button that stays pressed, for what takes longer than to compute a formula."""
    return ipywidgets.ToggleButton(
        value=value, description=description, tooltip=tooltip, icon="play"
    )


def text(description: str, value: str, placeholder: str = "") -> Any:
    """A line of text that is reported when Enter is pressed or the line is left."""
    return ipywidgets.Text(
        value=value,
        placeholder=placeholder,
        description=description,
        continuous_update=False,
        **_LOOK,
    )


def paragraph(description: str, value: str, rows: int) -> Any:
    """Several lines of text that are reported when they are left."""
    return ipywidgets.Textarea(
        value=value, rows=rows, description=description, continuous_update=False, **_LOOK
    )


_LOOK: dict[str, Any] = {
    "style": {"description_width": "initial"},  # descriptions are never cut off
    # Two beside each other; on a phone its whole width, without ipywidgets' margins.
    "layout": {"width": "395px", "max_width": "calc(100% - 4px)"},
}
