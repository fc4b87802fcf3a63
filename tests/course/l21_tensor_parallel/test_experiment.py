"""Every prediction of lesson 21 is met to the byte, and collectives are those predicted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.distributed.tensor.debug import CommDebugMode

from vramlab import VirtualGPU
from vramlab.measure.collectives import Collectives
from vramlab_course import experiments
from vramlab_course.lessons.l21_tensor_parallel import experiment as tensor_parallel
from vramlab_course.lessons.l21_tensor_parallel import formulas as formulas
from vramlab_course.lessons.l21_tensor_parallel.experiment import read_layer, read_order
from vramlab_course.lessons.l21_tensor_parallel.formulas import Division, Order

pytestmark = pytest.mark.long

LAYER = {"batch": 2, "sequence": 128, "width": 256, "heads": 8}


@pytest.fixture
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("A100-40GB") as gpu:
        yield gpu


def calls(collectives: Collectives) -> list[formulas.Call]:
    return [(call.kind, call.whole_bytes) for call in collectives.calls]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tensor-parallel-activations", {}),
        (
            "tensor-parallel-activations",
            {"ranks": 4, "batch": 3, "sequence": 512, "width": 512},
        ),  # unsplit remainders
        ("tensor-parallel-weights", {"width": 1024, "heads": 8}),
        ("vocabulary-parallel", {}),
        ("vocabulary-parallel", {"ranks": 2, "rows": 512, "vocabulary": 4096}),
    ],
    ids=str,
)
def test_predictions(gpu: VirtualGPU, name: str, parameters: dict[str, int]) -> None:
    outcome = experiments.run(name, **parameters)
    for stage in outcome.result.stages:
        (expectation,) = stage.expectations
        measured_bytes = stage.measured_bytes(expectation.quantity)
        assert measured_bytes == expectation.predicted_bytes, stage.name
    assert len(outcome.result.stages) >= 2


@pytest.mark.parametrize("division", formulas.DIVISIONS)
@pytest.mark.parametrize("dropout", [0.1, 0.0])
def test_a_layer(gpu: VirtualGPU, division: Division, dropout: float) -> None:
    reading = read_layer(4, division, **LAYER, dropout=dropout)
    ranks = 1 if division == "whole" else 4
    kept_bytes = formulas.kept_bytes(**LAYER, ranks=ranks, division=division, dropout=dropout > 0)
    assert reading.kept_bytes == kept_bytes
    assert reading.parameters_bytes == formulas.parameters_bytes(256, ranks)
    for backward, collectives in ((False, reading.forward), (True, reading.backward)):
        expected = formulas.layer_calls(2, 128, 256, division, backward=backward)
        assert calls(collectives) == expected


def test_gradients_of_three_inputs_are_reduced_three_times(gpu: VirtualGPU) -> None:
    reading = read_layer(4, "tensor", **LAYER, shared_input=False)
    expected = formulas.layer_calls(2, 128, 256, "tensor", backward=True, shared_input=False)
    assert calls(reading.backward) == expected
    assert len(expected) == 4


OUTER, INNER = 2 * 256 * 256, 2 * 256 * 1024
"""Bytes of a feed-forward layer's input and output, and of what is between its matrices."""


@pytest.mark.parametrize(
    ("order", "forward", "backward"),
    [
        (("column", "row"), [("all-reduce", OUTER)], [("all-reduce", OUTER)]),
        # A cut by rows leaves sums to be completed, in forward; a cut by columns gathers. In
        # backward columns reduce the gradient of their input, and rows gather it.
        (
            ("row", "column"),
            [("all-reduce", INNER), ("all-gather", OUTER)],
            [("all-reduce", INNER), ("all-gather", OUTER)],
        ),
        (
            ("column", "column"),
            [("all-gather", INNER), ("all-gather", OUTER)],
            [("all-reduce", INNER), ("all-reduce", OUTER)],
        ),
        (
            ("row", "row"),
            [("all-reduce", INNER), ("all-reduce", OUTER)],
            [("all-gather", INNER), ("all-gather", OUTER)],
        ),
    ],
    ids=str,
)
def test_orders(
    gpu: VirtualGPU,
    order: Order,
    forward: list[tuple[str, int]],
    backward: list[tuple[str, int]],
) -> None:
    reading = read_order(order, 4, rows=256, width=256)
    assert calls(reading.forward) == forward
    assert calls(reading.backward) == backward


def test_torchs_own_count_of_collectives_agrees(gpu: VirtualGPU) -> None:
    """record_collectives sees no collective that DTensor starts within an op; none is there."""
    with tensor_parallel.ranks_alone(4) as mesh:
        layer = tensor_parallel._layer(mesh, "sequence", 256, 8)
        x = tensor_parallel._layer_input(mesh, "sequence", 2, 128, 256)
        with CommDebugMode() as counted:
            layer(x).sum().backward()
        assert counted.get_total_counts() == 4 + 4
        del layer, x


def test_a_batch_of_one_whose_sequence_is_cut(gpu: VirtualGPU) -> None:
    sizes = {"batch": 1, "sequence": 128, "width": 256, "heads": 8}
    reading = read_layer(4, "sequence", **sizes)
    assert reading.kept_bytes == formulas.kept_bytes(**sizes, ranks=4, division="sequence")
    assert calls(reading.backward) == formulas.layer_calls(1, 128, 256, "sequence", backward=True)
