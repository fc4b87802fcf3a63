"""A timeline in a notebook: it answers without a kernel, and has a picture without a script."""

from __future__ import annotations

import torch

import vramlab
from vramlab.measure import record_timeline
from vramlab.units import MIB
from vramlab.viz import CATEGORY_COLORS
from vramlab_course.plots.style import CATEGORY_LOOKS
from vramlab_course.widgets import show_timeline


def test_it_shows_the_blocks_with_the_picture_in_reserve() -> None:
    with vramlab.VirtualGPU("T4"), record_timeline() as recording:
        recording.watch(inputs={"x": torch.zeros(MIB, dtype=torch.uint8, device="cuda")})
    shown = show_timeline(recording.timeline, "One tensor of 1 MiB")
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"].startswith("One tensor of 1 MiB, over ")
    assert f'alt="{shown.picture.alt}"' in bundle["text/html"]
    assert '"input.x"' in bundle["text/html"]


def test_colours_mean_the_same_in_pictures_and_in_timelines() -> None:
    assert {name: look.color for name, look in CATEGORY_LOOKS.items()} == CATEGORY_COLORS
