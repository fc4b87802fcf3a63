"""The life of a training step: what its picture says of each stage."""

from __future__ import annotations

import torch

from vramlab.gpu import VirtualGPU
from vramlab.measure import record_timeline
from vramlab_course.lessons.l06_optimizer_states.life_picture import draw_life


def test_says_the_most_of_each_kind_in_each_stage() -> None:
    with VirtualGPU("T4"):
        layer = torch.nn.Linear(1024, 1024, bias=False).to("cuda")
        x = torch.zeros(1024, 1024, device="cuda")
        layer(x).sum().backward()
        layer.zero_grad()
        with record_timeline() as recording:
            recording.watch(model=layer, inputs=x)
            recording.stage("forward")
            loss = layer(x).sum()
            recording.stage("backward")
            loss.backward()
            recording.stage(None)
    picture = draw_life(recording.timeline, title="A step")
    # 1024 x 1024 x 4 B are 4 MiB: the weight, its gradient, and the layer's output.
    assert "parameters: forward 4 MiB, backward 4 MiB" in picture.alt
    assert "gradients: backward 4 MiB" in picture.alt
    labels = [label.get_text() for label in picture.axes[0].get_xticklabels()]
    assert labels == ["forward", "backward"]
