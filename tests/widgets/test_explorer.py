"""The base of the explorers, driven by setting the traits of its controls."""

from __future__ import annotations

import re
import threading

import pytest

from vramlab.measure import Table
from vramlab.plots.picture import new_picture
from vramlab.widgets import Explorer, View
from vramlab.widgets import explorer as parts


def view(batch: int, optimizer: str) -> View:
    if batch > 64:
        raise ValueError(f"batch {batch} <is> too large: take at most 64")
    picture = new_picture(1.0)
    picture.alt = f"a picture of {batch}"
    table = Table("numbers", ("what", "size"), (("batch", str(batch)),))
    return View(f"Batch {batch} with {optimizer}.", picture, (table,))


@pytest.fixture
def explorer() -> Explorer:
    controls = {
        "batch": parts.power_slider("Batch", 32, 1, 128),
        "optimizer": parts.choice("Optimizer", ["SGD", "Adam"], "SGD"),
    }
    return Explorer("Things & sizes", controls, view)


def test_the_first_state_is_shown_at_once(explorer: Explorer) -> None:
    html = explorer.output.value
    assert '<p role="status" aria-live="polite">Batch 32 with SGD.</p>' in html
    assert 'alt="a picture of 32"' in html
    assert ">numbers</caption>" in html


def test_a_change_of_a_control_changes_the_view(explorer: Explorer) -> None:
    explorer.controls["batch"].value = 64
    explorer.controls["optimizer"].value = "Adam"
    assert explorer.settings() == {"batch": 64, "optimizer": "Adam"}
    assert "Batch 64 with Adam." in explorer.output.value


def test_an_error_is_shown_in_place_and_the_next_setting_works(explorer: Explorer) -> None:
    explorer.controls["batch"].value = 128
    html = explorer.output.value
    assert '<div role="alert"' in html
    assert "<strong>ValueError</strong>" in html
    assert "batch 128 &lt;is&gt; too large: take at most 64" in html
    assert "Change a setting above to go on." in html
    explorer.controls["batch"].value = 16
    assert "Batch 16 with SGD." in explorer.output.value


def test_what_takes_long_says_so_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SECONDS_BEFORE", 0.0)
    said = threading.Event()
    is_slow = False

    def wait_and_view(batch: int) -> View:
        if is_slow:
            assert said.wait(timeout=60)
        return view(batch, "SGD")

    explorer = Explorer("Slow", {"batch": parts.power_slider("Batch", 32, 1, 64)}, wait_and_view)
    explorer.status.observe(lambda change: change["new"] and said.set(), names="value")
    is_slow = True
    explorer.controls["batch"].value = 64
    assert said.is_set()
    assert explorer.status.value == ""
    assert "Batch 64 with SGD." in explorer.output.value


def test_what_is_there_at_once_does_not(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SECONDS_BEFORE", 60.0)  # drawing takes a while on a busy machine
    said = []
    explorer.status.observe(said.append, names="value")
    explorer.controls["batch"].value = 64
    assert said == []


def test_the_saved_page_shows_the_first_state_without_a_kernel(explorer: Explorer) -> None:
    explorer.controls["batch"].value = 64
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    html = bundle["text/html"]
    assert html.startswith("<h3>Things &amp; sizes</h3><p>With Batch: 32, Optimizer: SGD.")
    assert 'alt="a picture of 32"' in html
    assert bundle["text/plain"] == "Things & sizes: Batch: 32, Optimizer: SGD"


def test_the_output_keeps_its_height(explorer: Explorer) -> None:
    assert explorer.output.layout.height == "640px"
    assert explorer.output.layout.overflow == "auto"


@pytest.mark.parametrize(
    "control",
    [
        parts.slider("Layers", 2, 1, 4),
        parts.power_slider("Batch", 8, 1, 16),
        parts.text("Options", "", "none"),
        parts.paragraph("Program", "a 1 MiB", rows=3),
    ],
    ids=lambda control: str(control.description),
)
def test_controls_report_only_what_they_end_at_and_are_named(control: object) -> None:
    assert control.continuous_update is False  # type: ignore[attr-defined]
    assert control.description  # type: ignore[attr-defined]
    assert control.style.description_width == "initial"  # type: ignore[attr-defined]


def test_a_power_slider_holds_the_powers_of_two() -> None:
    assert list(parts.power_slider("Batch", 4, 2, 16).options) == [2, 4, 8, 16]


def test_every_picture_in_an_explorer_has_alternative_text(explorer: Explorer) -> None:
    images = re.findall(r"<img [^>]*>", explorer.output.value)
    assert len(images) == 1
    assert all('alt="a' in image for image in images)
