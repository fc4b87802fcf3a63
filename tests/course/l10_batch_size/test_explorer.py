"""The batch explorer: the line, where it meets the GPU's memory, and what really fits."""

from __future__ import annotations

import re

from vramlab.units import GIB, MIB
from vramlab_course.lessons.l10_batch_size.explorer import (
    PRECISIONS,
    WORKLOADS,
    PeakLine,
    batch_explorer,
)
from vramlab_course.widgets.training_step_explorer import OPTIMIZERS


def numbers(text: str) -> tuple[int, int]:
    match = re.search(r"allows a batch of (\d+); (\d+) is the largest that fits", text)
    assert match is not None, text
    return int(match[1]), int(match[2])


def test_a_line_and_its_largest_batch() -> None:
    line = PeakLine(fixed_bytes=GIB, per_sample_bytes=100 * MIB, probes=())
    assert line.at(3) == GIB + 300 * MIB
    assert line.largest(2 * GIB) == 10  # 1024 / 100
    assert line.largest(GIB // 2) == 0


def test_the_line_is_never_far_from_what_fits() -> None:
    explorer = batch_explorer("VGG16, 224 x 224 pixels", optimizer="SGD", gpu="T4")
    predicted, found = numbers(explorer.output.value)
    # A tenth: cuDNN takes another workspace for each batch, and the line knows two of them. Above
    # the line, a convolution whose workspace does not fit takes cuDNN's next plan, which has less.
    assert 0 < 0.9 * predicted < found < 2 * predicted
    assert explorer.controls["model"].options == tuple(WORKLOADS)
    assert explorer.controls["precision"].options == PRECISIONS
    assert explorer.controls["optimizer"].options == tuple(OPTIMIZERS)
    explorer.controls["precision"].value = "autocast to bfloat16"
    assert numbers(explorer.output.value)[1] > found
