"""Parameters that a layer fetches from the host are not counted among other temporaries."""

from __future__ import annotations

import torch
from torch import nn

import vramlab
from vramlab.measure import record_timeline
from vramlab.programs.offloading import StreamedLayers
from vramlab_course.lessons.l17_offloading.fetched import FETCHED, fetched_parameters


def test_names_each_fetch_of_each_layer() -> None:
    with vramlab.VirtualGPU("T4"):
        layers = [nn.Linear(1024, 1024, bias=False) for _ in range(3)]
        x = torch.zeros(8, 1024, device="cuda")
        with record_timeline() as recording:
            StreamedLayers(layers, prefetch=False)(x).sum().backward()
    names = fetched_parameters(recording.timeline)
    # Three layers, for forward and for backward.
    sizes = [recording.timeline.blocks[number].size_bytes for number in names]
    assert sizes == 6 * [4 * 1024 * 1024]
    assert set(names.values()) == {FETCHED}
