"""Declare the ipywidgets control that changes a parameter of an explorer.

    length: Annotated[int, powers("Length", 256, 65536)] = 2048

Sliders and fields report the value that a reader ends at, not those on the way. Every control has
its description beside it, and is reached and changed with the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

import ipywidgets
from traitlets import TraitError

from vramlab_course.translations.speech import say

_LOOK: dict[str, Any] = {
    "style": {"description_width": "initial"},  # descriptions are never cut off
    # Two beside each other; on a phone its whole width, without ipywidgets' margins.
    "layout": {"width": "395px", "max_width": "calc(100% - 4px)"},
}
_LATE: dict[str, Any] = {**_LOOK, "continuous_update": False}
"""For what would report every value on the way."""


@dataclass(frozen=True)
class Control:
    """What changes a parameter."""

    description: str
    """What stands beside it."""
    make: Callable[..., Any] = field(repr=False)
    """Makes the ipywidgets control, from its `value` and `description`."""
    wants: str
    """Its values in words, such as 'a power of two from 1 to 256'."""
    read: Callable[[Any], Any] = field(repr=False, default=lambda value: value)
    """Makes a value of what a caller gives, where it can be spelt in several ways."""

    def widgets(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Make the ipywidgets controls of a parameter, by name; mostly it is one.

        Args:
            name: the parameter's.
            given: what a caller gives for each parameter, by name.

        Raises:
            ValueError: no such value can be chosen; the message says which can.
        """
        try:
            value = self.read(given[name])
            widget = self.make(value=value, description=say(self.description))
        except (TraitError, TypeError, KeyError):
            raise self.refusal(name, given) from None
        if widget.value != value:  # a slider goes to the nearest value that it has
            raise self.refusal(name, given)
        return {name: widget}

    def follow(self, name: str, widgets: Mapping[str, Any]) -> None:
        """Let it depend on other controls; called when all have been made."""

    def value(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Read the parameter's value off the values of all ipywidgets controls."""
        return settings[name]

    def refusal(self, name: str, given: Mapping[str, Any]) -> ValueError:
        """Report that the parameter cannot have this value, and which it can."""
        return ValueError(f"{name} is {given[name]!r}, and has to be {self.wants}")


@dataclass(frozen=True, kw_only=True)
class _Following(Control):
    """A slider that ends where other parameters say."""

    ending: Callable[[int], Control]
    largest: Callable[..., int]

    def widgets(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            largest = self._largest(given)
        except TypeError:
            raise self.refusal(name, given) from None
        wanted = largest if given[name] is None else given[name]
        return self.ending(largest).widgets(name, {name: wanted})

    def follow(self, name: str, widgets: Mapping[str, Any]) -> None:
        def fit(_change: object) -> None:
            with suppress(ValueError):  # the view says what is wrong with the others
                widgets[name].max = self._largest({each: w.value for each, w in widgets.items()})

        for other in signature(self.largest).parameters:
            if other != name:
                widgets[other].observe(fit, names="value")

    def _largest(self, values: Mapping[str, Any]) -> int:
        return self.largest(**{name: values[name] for name in signature(self.largest).parameters})


@dataclass(frozen=True, kw_only=True)
class _Group(Control):
    """Boxes to tick, each a control of its own; the value is the names of those that are ticked."""

    boxes: Mapping[str, Control]

    def widgets(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        chosen = (given[name],) if isinstance(given[name], str) else given[name]
        known = tuple(self.boxes)
        if not isinstance(chosen, Collection) or any(each not in known for each in chosen):
            raise self.refusal(name, given)
        ticked = {each: each in chosen for each in self.boxes}
        return {each: box.widgets(each, ticked)[each] for each, box in self.boxes.items()}

    def value(self, name: str, settings: Mapping[str, Any]) -> Any:
        return tuple(each for each in self.boxes if settings[each])


def slider(
    description: str, smallest: int, largest: int | Callable[..., int], step: int = 1
) -> Control:
    """Declare an integer slider; its number can be typed too.

    Args:
        description: what stands beside it.
        smallest: value at its left end.
        largest: value at its right end; or a function that computes it of other parameters, which
            it names as its own. The slider follows them, and a caller's None is the largest.
        step: what it moves by when it is dragged.
    """
    make = partial(ipywidgets.IntSlider, min=smallest, step=step, **_LATE)
    if callable(largest):
        wants = f"a whole number from {smallest:,} on"
        ending = partial(slider, description, smallest, step=step)
        return _Following(description, make, wants, ending=ending, largest=largest)
    wants = f"a whole number from {smallest:,} to {largest:,}"
    return Control(description, partial(make, max=largest), wants)


def powers(description: str, smallest: int, largest: int) -> Control:
    """Declare a slider over the powers of two from `smallest` to `largest`."""
    options = [2**power for power in range(smallest.bit_length() - 1, largest.bit_length())]
    make = partial(ipywidgets.SelectionSlider, options=options, **_LATE)
    wants = f"a power of two from {smallest:,} to {largest:,}"
    return Control(description, make, wants, _itself(options))


def choice(description: str, options: Iterable[str] | Iterable[int]) -> Control:
    """Declare a drop-down list."""
    listed = tuple(options)
    make = partial(ipywidgets.Dropdown, options=listed, **_LOOK)
    wants = f"one of {', '.join(map(repr, listed))}"
    return Control(description, make, wants, _itself(listed))


def checkbox(description: str) -> Control:
    """Declare a box to tick."""
    make = partial(ipywidgets.Checkbox, indent=False, layout=_LOOK["layout"])
    return Control(description, make, "True or False")


def checkboxes(descriptions: Mapping[str, str]) -> Control:
    """Declare a box to tick for each name; the parameter's value is the names of those ticked."""
    boxes = {name: checkbox(description) for name, description in descriptions.items()}
    wants = f"some of {', '.join(map(repr, boxes))}"
    return _Group("", ipywidgets.Checkbox, wants, boxes=boxes)


def run_button(description: str, tooltip: str) -> Control:
    """Declare a button that stays pressed, for what takes longer than to compute a formula."""
    make = partial(ipywidgets.ToggleButton, tooltip=tooltip, icon="play")
    return Control(description, make, "True or False")


def text(description: str, placeholder: str = "") -> Control:
    """Declare a line of text that is reported when Enter is pressed or the line is left."""
    make = partial(ipywidgets.Text, placeholder=placeholder, **_LATE)
    return Control(description, make, "text")


def paragraph(description: str, rows: int) -> Control:
    """Declare several lines of text that are reported when they are left."""
    return Control(description, partial(ipywidgets.Textarea, rows=rows, **_LATE), "text")


def _itself(options: Collection[Any]) -> Callable[[Any], Any]:
    """Make a function that finds the option which equals a value, such as 2 for 2.0."""
    return {option: option for option in options}.__getitem__
