"""What stages of a pipeline hold, by hand; test_experiment.py measures it."""

from __future__ import annotations

import pytest

from vramlab.programs.pipeline_schedules import Name
from vramlab.units import MIB
from vramlab_course.lessons.l22_pipeline_parallel.formulas import (
    ModelParallel,
    Pipeline,
    cut,
    even_stages,
    sent_bytes,
)

ROWS = 512
A = 2 * MIB
"""512 rows of 1024 numbers of 4 B: an activation of a micro-batch."""
W = 4 * MIB
"""1024 * 1024 * 4 B: a weight, or its gradient."""


def pipeline(schedule: Name, micro_batches: int = 8, checkpointed: bool = False) -> Pipeline:
    """16 layers on four ranks: four on each."""
    return Pipeline(schedule, ROWS, micro_batches, even_stages(16, 1024, 4), checkpointed)


def test_what_stays() -> None:
    stage = pipeline("1F1B").stage(1)
    assert stage.parameters_bytes == 4 * W
    assert stage.buffers_bytes == 16 * A  # 8 inputs, 8 gradients of outputs
    assert stage.held_after_bytes == 8 * W + 16 * A
    first, last = pipeline("1F1B").stage(0), pipeline("1F1B").stage(3)
    assert (first.buffers_bytes, first.input_bytes) == (8 * A, 8 * A)
    assert (last.buffers_bytes, last.input_bytes) == (8 * A, 0)


def test_in_flight() -> None:
    assert pipeline("1F1B").stage(1).in_flight_bytes == 4 * A
    assert pipeline("1F1B", checkpointed=True).stage(1).in_flight_bytes == A
    assert pipeline("1F1B").stage(3).in_flight_bytes == 4 * A + 512  # the loss
    assert [pipeline("1F1B").stage(rank).in_flight for rank in range(4)] == [4, 3, 2, 1]


def test_peak_of_gpipe() -> None:
    """In the second micro-batch's backward: seven in flight, all gradients, and one more.

    Its own: output, three saved, the gradient of the last layer's input, and that weight's once
    more; in the first backward there are eight in flight, but at the last layer one gradient only.
    """
    stage = pipeline("GPipe").stage(1)
    second = 8 * W + 16 * A + 6 * 4 * A + (4 * A + A + W)
    first = 4 * W + 16 * A + 7 * 4 * A + (A + A + A + 4 * W)  # at the first layer
    assert (second, first) == (126 * MIB, 126 * MIB)
    assert stage.peak_bytes == 126 * MIB


def test_peak_of_1f1b() -> None:
    """Three in flight, and the gradient that was sent last is still there."""
    stage = pipeline("1F1B").stage(1)
    assert stage.peak_bytes == 8 * W + 16 * A + 2 * 4 * A + (4 * A + A + W) + A
    assert stage.peak() == (
        "backward 1, layer 4",
        {
            "parameters": 4 * W,
            "input": 0,
            "buffers to receive into": 16 * A,
            "gradients": 4 * W + W,  # of all layers, and the new one
            "gradient that was sent last": A,
            "outputs and losses that are kept": 0,
            "other micro-batches in flight": 8 * A,
            "this micro-batch, and its gradients": 5 * A,
        },
    )


def test_peak_with_checkpointing() -> None:
    """Of the others in flight there are outputs only; its own is computed again."""
    stage = pipeline("1F1B", checkpointed=True).stage(1)
    assert stage.peak_bytes == 8 * W + 16 * A + 2 * A + (4 * A + A + W) + A


def test_kept_outputs() -> None:
    kept = Pipeline("1F1B", ROWS, 8, even_stages(16, 1024, 4), returns_outputs=True).stage(3)
    assert kept.held_after_bytes == pipeline("1F1B").stage(3).held_after_bytes + 8 * A
    merging = dict(kept.moments())["merge"]
    assert sum(merging.values()) == kept.held_after_bytes + 8 * A


def test_sent() -> None:
    batch_bytes = 8 * A
    assert [sent_bytes(pipeline("GPipe"), rank) for rank in range(4)] == [
        batch_bytes,
        2 * batch_bytes,
        2 * batch_bytes,
        batch_bytes,
    ]


def test_model_parallel() -> None:
    """The whole batch is 8 A. At the last layer: four inputs, two gradients of activations."""
    in_turn = ModelParallel(8 * ROWS, even_stages(16, 1024, 4))
    at_last_layer = 4 * W + (4 + 2) * 8 * A + W
    at_first_layer = 4 * W + (1 + 2) * 8 * A + 4 * W
    assert (at_last_layer, at_first_layer) == (116 * MIB, 80 * MIB)
    assert in_turn.peak_bytes(1) == 116 * MIB
    assert in_turn.peak_bytes(3) == 116 * MIB + 2 * 512  # loss, and its gradient
    # a single layer on the first GPU, whose input needs no gradient
    assert ModelParallel(8 * ROWS, even_stages(2, 1024, 2)).peak_bytes(0) == W + 2 * 8 * A + W


def test_cuts() -> None:
    assert even_stages(4, 8, 2) == ((8, 8, 8), (8, 8, 8))
    assert cut((8, 8, 8, 64), (2, 1)) == ((8, 8, 8), (8, 64))
    with pytest.raises(ValueError, match="5 layers cannot be cut into 2 equal stages"):
        even_stages(5, 8, 2)
    with pytest.raises(ValueError, match=r"stages of \[2, 2\] layers do not make up a chain of 3"):
        cut((8, 8, 8, 64), (2, 2))
    with pytest.raises(ValueError, match=r"stages of \[3, 0\] layers"):
        cut((8, 8, 8, 64), (3, 0))
