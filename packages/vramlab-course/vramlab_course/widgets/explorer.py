"""Build explorers: ipywidgets controls on top, and below them the `View` that they lead to.

    @explorer("How a number is stored")
    def float_explorer(number: Annotated[str, text("Number"), "to begin with"] = "0.1") -> View:
        '''Show the bits of a number in six formats.'''
        ...

    float_explorer("1e-8")          the Explorer, with a text field for the number
    float_explorer.view("1e-8")     the View alone

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
from functools import wraps
from html import escape
from inspect import Signature, cleandoc, signature
from textwrap import fill
from typing import Any, ParamSpec, Protocol, cast, get_type_hints

import ipywidgets

from vramlab.measure import Table
from vramlab_course.plots import Picture
from vramlab_course.translations.speech import say
from vramlab_course.widgets.accessible import MENDS_ITS_BOX, status_html
from vramlab_course.widgets.controls import Control

P = ParamSpec("P")

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
        """Write summary, picture and tables as HTML."""
        tables = "".join(table._repr_html_() for table in self.tables)
        return (
            f'<div style="{_SUMMARY_STYLE}">{status_html(say(self.summary))}</div>'
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
                ipywidgets.HTML(f"<h3>{escape(say(title))}</h3>{MENDS_ITS_BOX}"),
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
        """Return the values of all controls, by name."""
        return {name: control.value for name, control in self.controls.items()}

    def _update(self, _change: object = None) -> None:
        with self._said_to_be_at_work():
            try:
                self.output.value = self._render(**self.settings()).to_html()
            except Exception as error:  # whatever it is, the reader wants to see it here
                self.output.value = error_html(error)

    @contextmanager
    def _said_to_be_at_work(self) -> Iterator[None]:
        """Report that the view is coming, where it does not come at once."""
        working = f'<em role="status">{say("working ...")}</em>'

        def tell() -> None:
            self.status.value = working

        timer = threading.Timer(SECONDS_BEFORE, tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self.status.value = ""

    def _describe_settings(self) -> str:
        """Put the settings in words, such as 'batch: 32, optimizer: Adam'."""
        return ", ".join(
            f"{control.description or name}: {control.value}"
            for name, control in self.controls.items()
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(self.box._repr_mimebundle_(**options))
        settings = escape(say("With {settings}.", settings=self._first_words))
        how = say("(Run this notebook to change it.)")
        bundle["text/html"] = (
            f"<h3>{escape(say(self.title))}</h3><p>{settings} {how}</p>{self._first_html}"
        )
        bundle["text/plain"] = f"{self.title}: {self._first_words}"
        return bundle


def error_html(error: Exception) -> str:
    """Show an error as an alert: what happened, and that another setting can be tried."""
    kind = type(error).__name__
    return (
        f'<div role="alert" style="border: 2px solid; padding: 0.5em 1em;">'
        f'<p><strong>{escape(kind)}</strong></p><p style="white-space: pre-wrap;">'
        f"{escape(str(error))}</p><p>{say('Change a setting above to go on.')}</p></div>"
    )


class ExplorerFunction(Protocol[P]):
    """Builds an `Explorer`; made by `explorer` of a function that shows a `View`."""

    view: Callable[P, View]
    """The function that shows, as it was written."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Explorer:
        """Build the explorer; its controls begin at these values."""


def explorer(
    title: str,
    *,
    height_px: int = HEIGHT_PX,
    first: Sequence[str] = (),
    finish: Callable[[Explorer], object] | None = None,
) -> Callable[[Callable[P, View]], ExplorerFunction[P]]:
    """Make a function that builds an `Explorer` of one that shows a `View`.

    A parameter is annotated with its type, the `Control` that changes it, and what it is where the
    control's description does not say so. One without a control stays what the caller gives.

    Args:
        title: what can be explored.
        height_px: height of the output.
        first: parameters whose controls come first; the others follow as they are written.
        finish: called with each explorer that has been built.
    """

    def declare(view: Callable[P, View]) -> ExplorerFunction[P]:
        written = signature(view)
        hints = get_type_hints(view, include_extras=True)
        declared = {name: getattr(hints[name], "__metadata__", ()) for name in written.parameters}
        controls = {
            name: each
            for name in dict.fromkeys((*first, *declared))
            for each in declared[name]
            if isinstance(each, Control)
        }

        @wraps(view)
        def build(*args: P.args, **kwargs: P.kwargs) -> Explorer:
            try:
                given = written.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{view.__name__}() {error}") from None
            given.apply_defaults()
            built = _build(title, view, controls, given.arguments, height_px)
            if finish is not None:
                finish(built)
            return built

        types = {**get_type_hints(view), "return": Explorer}
        shown = [each.replace(annotation=types[each.name]) for each in written.parameters.values()]
        build.__doc__ = _docstring(view, declared)
        build.__annotations__ = types
        made = cast(ExplorerFunction[P], build)
        made.view = view
        vars(made)["__signature__"] = Signature(shown, return_annotation=Explorer)
        return made

    return declare


def _build(
    title: str,
    view: Callable[..., View],
    controls: Mapping[str, Control],
    given: Mapping[str, Any],
    height_px: int,
) -> Explorer:
    widgets: dict[str, Any] = {}
    for name, control in controls.items():
        widgets |= control.widgets(name, given)
    for name, control in controls.items():
        control.follow(name, widgets)

    def render(**settings: Any) -> View:
        chosen = {name: control.value(name, settings) for name, control in controls.items()}
        return view(**{**given, **chosen})

    return Explorer(title, widgets, render, height_px)


def _docstring(view: Callable[..., View], declared: Mapping[str, Sequence[Any]]) -> str:
    """Describe what builds an explorer as the function that shows is described and declared."""
    lines = []
    for name, metadata in declared.items():
        controls = [each for each in metadata if isinstance(each, Control)]
        words = [each for each in metadata if isinstance(each, str)]
        words = words or [each.description for each in controls]
        words += [f"({each.wants})" for each in controls]
        line = f"{name}: {' '.join(words)}."
        lines.append(fill(line, 92, initial_indent=" " * 4, subsequent_indent=" " * 8))
    return _DOCSTRING.format(shown=cleandoc(view.__doc__ or ""), lines="\n".join(lines))


_DOCSTRING = """\
{shown}

Measurements run on fresh virtual GPUs; whatever is attached in the notebook is left alone.

Args:
{lines}

Raises:
    ValueError: a control cannot have the value. All else that goes wrong is shown in place.
"""
