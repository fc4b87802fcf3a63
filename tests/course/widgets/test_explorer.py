"""The base of the explorers, driven by setting the traits of its controls."""

from __future__ import annotations

import inspect
import threading
from typing import Annotated

import ipywidgets
import pytest

from vramlab.measure import Table
from vramlab_course.plots.picture import new_picture
from vramlab_course.widgets import Explorer, View
from vramlab_course.widgets import explorer as parts
from vramlab_course.widgets.controls import choice, paragraph, powers, slider


def view(batch: int, optimizer: str) -> View:
    if batch > 64:
        raise ValueError(f"batch {batch} <is> too large: take at most 64")
    picture = new_picture(1.0)
    picture.alt = f"a picture of {batch}"
    table = Table("numbers", ("what", "size"), (("batch", str(batch)),))
    return View(f"Batch {batch} with {optimizer}.", picture, (table,))


@parts.explorer("Things & sizes")
def things_explorer(
    batch: Annotated[int, powers("Batch", 1, 128), "samples"] = 32,
    optimizer: Annotated[str, choice("Optimizer", ("SGD", "Adam"))] = "SGD",
    gpu: Annotated[str, "a GPU of the catalogue"] = "T4",
) -> View:
    """Show things.

    And sizes.
    """
    return view(batch, f"{optimizer} on {gpu}")


@pytest.fixture(name="explorer")
def _explorer() -> Explorer:
    return things_explorer()


def test_the_first_state_is_shown_at_once(explorer: Explorer) -> None:
    html = explorer.output.value
    assert '<p role="status" aria-live="polite">Batch 32 with SGD on T4.</p>' in html
    assert 'alt="a picture of 32"' in html
    assert ">numbers</caption>" in html


def test_a_change_of_a_control_changes_the_view(explorer: Explorer) -> None:
    explorer.controls["batch"].value = 64
    explorer.controls["optimizer"].value = "Adam"
    assert explorer.settings() == {"batch": 64, "optimizer": "Adam"}
    assert "Batch 64 with Adam on T4." in explorer.output.value


def test_an_error_is_shown_in_place_and_the_next_setting_works(explorer: Explorer) -> None:
    explorer.controls["batch"].value = 128
    html = explorer.output.value
    assert '<div role="alert"' in html
    assert "<strong>ValueError</strong>" in html
    assert "batch 128 &lt;is&gt; too large: take at most 64" in html
    assert "Change a setting above to go on." in html
    explorer.controls["batch"].value = 16
    assert "Batch 16 with SGD on T4." in explorer.output.value


def test_what_takes_long_says_so_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SECONDS_BEFORE", 0.0)
    said = threading.Event()
    is_slow = False

    def wait_and_view(batch: int) -> View:
        if is_slow:
            assert said.wait(timeout=60)
        return view(batch, "SGD")

    slider = ipywidgets.IntSlider(value=32, description="Batch")
    explorer = Explorer("Slow", {"batch": slider}, wait_and_view)
    explorer.status.observe(lambda change: change["new"] and said.set(), names="value")
    is_slow = True
    explorer.controls["batch"].value = 64
    assert said.is_set()
    assert explorer.status.value == ""
    assert "Batch 64 with SGD." in explorer.output.value


def test_the_saved_page_shows_the_first_state_without_a_kernel(explorer: Explorer) -> None:
    explorer.controls["batch"].value = 64
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    html = bundle["text/html"]
    assert html.startswith("<h3>Things &amp; sizes</h3><p>With Batch: 32, Optimizer: SGD.")
    assert 'alt="a picture of 32"' in html
    assert bundle["text/plain"] == "Things & sizes: Batch: 32, Optimizer: SGD"


# ---- What is derived of the function that shows ----


def test_it_is_called_with_what_its_controls_begin_at() -> None:
    explorer = things_explorer(64, optimizer="Adam", gpu="A10")
    assert explorer.settings() == {"batch": 64, "optimizer": "Adam"}
    assert "Batch 64 with Adam on A10." in explorer.output.value
    explorer.controls["batch"].value = 8
    assert "Batch 8 with Adam on A10." in explorer.output.value


def test_what_no_control_can_have_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^batch is 48, and has to be a power of two from 1 to 1"):
        things_explorer(batch=48)
    with pytest.raises(TypeError, match=r"^things_explorer\(\) got an unexpected .* 'rows'"):
        things_explorer(rows=1)  # type: ignore[call-arg]


def test_the_view_is_to_be_had_alone() -> None:
    # No control is in the way of a batch that is none of its powers of two.
    assert things_explorer.view(48, "Adam").summary == "Batch 48 with Adam on T4."


def test_signature_and_docstring_tell_values() -> None:
    assert str(inspect.signature(things_explorer, eval_str=True)) == (
        "(batch: int = 32, optimizer: str = 'SGD', gpu: str = 'T4') -> "
        "vramlab_course.widgets.explorer.Explorer"
    )
    assert things_explorer.__doc__ is not None
    assert things_explorer.__doc__.startswith("Show things.\n\nAnd sizes.\n\nMeasurements run on ")
    assert (
        "\n\nArgs:\n"
        "    batch: samples (a power of two from 1 to 128).\n"
        "    optimizer: Optimizer (one of 'SGD', 'Adam').\n"
        "    gpu: a GPU of the catalogue.\n\nRaises:\n    ValueError: "
    ) in things_explorer.__doc__


def _lines(program: str) -> int:
    if "?" in program:
        raise ValueError("what is that?")
    return len(program.splitlines())


finished: list[Explorer] = []


@parts.explorer("Programs", height_px=99, first=("done",), finish=finished.append)
def program_explorer(
    program: Annotated[str, paragraph("Program", rows=2)] = "a\nb\nc",
    done: Annotated[int | None, slider("Lines done", 0, _lines)] = None,
) -> View:
    """Show so many lines."""
    _lines(program)
    return view(len(program.splitlines()[:done]), "SGD")


def test_some_controls_come_first_and_all_are_there_when_an_explorer_is_finished() -> None:
    explorer = program_explorer()
    assert list(explorer.controls) == ["done", "program"]
    assert explorer.output.layout.height == "99px"
    assert finished[-1] is explorer


def test_a_slider_ends_where_another_control_says() -> None:
    explorer = program_explorer()
    done = explorer.controls["done"]
    assert (done.value, done.max) == (3, 3)
    explorer.controls["program"].value = "a\nb"
    assert (done.value, done.max) == (2, 2)
    explorer.controls["program"].value = "a\nb\n?\nd"
    assert 'role="alert"' in explorer.output.value
    assert (done.value, done.max) == (2, 2)
    explorer.controls["program"].value = "a\nb\nc\nd"
    assert (done.value, done.max) == (2, 4)
    assert "Batch 2 with SGD." in explorer.output.value


def test_a_slider_begins_no_later_than_it_ends() -> None:
    assert program_explorer("a\nb", 1).controls["done"].value == 1
    with pytest.raises(ValueError, match=r"^done is 3, and has to be a whole number from 0 to 2$"):
        program_explorer("a\nb", 3)
    with pytest.raises(ValueError, match=r"^done is 'all', and has to be a whole number from 0 to"):
        program_explorer("a\nb", "all")  # type: ignore[arg-type]
