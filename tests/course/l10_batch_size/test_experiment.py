"""BERT against the batch: what counts as a line, and where a step peaks."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.cuda_rules.sizes import tensor_bytes
from vramlab.measure.environment import gpu_environment
from vramlab_course import experiments
from vramlab_course.formulas.bert import FIRST_LINEAR, SECOND_LINEAR, WEIGHTS, Bert
from vramlab_course.lessons.l10_batch_size.experiment import STEP, bert_batch, shape, step_peak


def test_a_line_is_a_line_to_the_byte() -> None:
    assert shape([1, 2, 4], [10, 13, 19]) == "linear"  # 7 + 3 x
    assert shape([1, 2, 4], [10, 13, 20]) == "not linear"
    assert shape([1, 2, 3], [1, 4, 9]) == "not linear"


def test_train_mode_on_another_gpu_is_predicted_to_the_byte_too() -> None:
    with VirtualGPU("RTX-4090", alloc_conf=""):
        outcome = bert_batch((1, 2, 8), train=True)
    expected = [
        (stage.name, stage.measured_bytes(each.quantity), each.predicted_bytes)
        for stage in outcome.result.stages
        for each in stage.expectations
    ]
    # parameters, states, and for three batches the forward pass and the step
    assert len(expected) == 2 + 3 * 2
    assert [each for each in expected if each[1] != each[2]] == []
    assert outcome.finding("bert-batch-linear", "after the forward pass").measured == "linear"


@pytest.mark.parametrize(
    ("gpu", "batch", "train", "moment"),
    [
        ("A100-40GB", 1, False, STEP),
        # The gradient of the softmax needs three tensors of its size.
        ("A100-40GB", 16, False, WEIGHTS),
        # Dropout keeps more: what it kept of attention is gone when that is reached.
        ("A100-40GB", 16, True, SECOND_LINEAR),
        ("T4", 2, True, FIRST_LINEAR),
    ],
)
def test_where_a_step_peaks(gpu: str, batch: int, train: bool, moment: str) -> None:
    trained = [tensor_bytes(shape) for shape in Bert().parameter_shapes(pooler=False)]
    with VirtualGPU(gpu):
        here = gpu_environment()
    assert step_peak(Bert(), here, batch, trained, train=train).moment == moment


def test_the_modes_are_told_apart() -> None:
    outcome = experiments.run_as_published("bert-modes")
    modes = {finding.part: finding for finding in outcome.findings}
    # dropped softmax and masks: 5 B x (32, 12, 512, 512) in 12 layers; 25 masks of (32, 512, 768)
    more = 12 * 5 * 32 * 12 * 512 * 512 + 25 * 32 * 512 * 768
    evaluated, trained = modes["in eval mode"].measured, modes["in train mode"].measured
    assert isinstance(evaluated, int)
    assert isinstance(trained, int)
    assert trained - evaluated == more
