"""Formulas of DataParallel and DDP, by hand; experiments compare them with measurements."""

from __future__ import annotations

from vramlab.units import KIB, MIB
from vramlab_course.lessons.l19_dp_and_ddp import formulas as dp
from vramlab_course.lessons.l19_dp_and_ddp.formulas import (
    Classifier,
    DataParallelStep,
    DistributedStep,
    buckets,
    pieces,
    rows_of,
)

MODEL = Classifier(width=1024, layers=4, classes=8192)
"""Weights of 4 x 4 MiB and 32 MiB: 48 MiB."""
STEP = DataParallelStep(MODEL, gpus=4, batch=1024)


def test_the_model() -> None:
    assert MODEL.weights_bytes == [4 * MIB] * 4 + [32 * MIB]
    assert MODEL.parameters_bytes == 48 * MIB


def test_rows_are_dealt_out_as_chunk_does() -> None:
    assert [rows_of(gpu, 1024, 4) for gpu in range(4)] == [256] * 4
    assert [rows_of(gpu, 10, 4) for gpu in range(4)] == [3, 3, 3, 1]
    assert [rows_of(gpu, 3, 4) for gpu in range(4)] == [1, 1, 1, 0]
    assert [rows_of(gpu, 9, 4) for gpu in range(4)] == [3, 3, 3, 0]


def test_after_forward_gpu_0_has_the_whole_batchs_outputs_and_the_states() -> None:
    assert STEP.after_forward(0) == {
        dp.PARAMETERS: 48 * MIB,
        dp.STATES: 96 * MIB,
        # input of 1024 rows, 8 KiB of labels, four activations of 256 rows
        dp.ACTIVATIONS: 4 * MIB + 8 * KIB + 4 * MIB,
        dp.OUTPUTS: 32 * MIB,  # 1024 x 8192 x 4 B
    }
    # a replica; input and four activations of 256 rows
    assert STEP.after_forward(1) == {dp.PARAMETERS: 48 * MIB, dp.ACTIVATIONS: 5 * MIB}


def test_a_gpu_without_rows_holds_nothing() -> None:
    few = DataParallelStep(MODEL, gpus=4, batch=3)
    assert few.after_forward(3) == {}
    assert few.backward_moments(3) == {}


def test_the_peak_of_gpu_0_is_the_loss_of_all_rows() -> None:
    moment, parts = STEP.peak(0)
    assert moment == dp.AT_LOSS
    # softmax, its gradient and that of the outputs, 32 MiB each; loss and 1
    assert parts[dp.LOSS] == 3 * 32 * MIB + 2 * 512


def test_with_the_loss_inside_it_is_the_gradients() -> None:
    moment, parts = DataParallelStep(MODEL, gpus=4, batch=1024, loss_inside=True).peak(0)
    assert moment == dp.AT_SUMS
    assert (parts[dp.GRADIENTS], parts[dp.SUMS]) == (48 * MIB, 48 * MIB)


def test_after_backward_only_gpu_0_holds_anything() -> None:
    assert STEP.after_backward(1) == {}
    assert STEP.after_backward(0)[dp.GRADIENTS] == 48 * MIB


def test_a_replica_travels_in_pieces_that_close_at_10_mib() -> None:
    assert pieces(MODEL.weights_bytes) == [[0, 1, 2], [3, 4]]


def test_buckets_close_when_they_are_full() -> None:
    gradients_bytes = [32 * MIB] + [4 * MIB] * 8  # the head's comes first
    # 1 MiB is reached at once; 25 MiB with seven of 4 MiB; the rest
    assert buckets(gradients_bytes) == [[0], [1, 2, 3, 4, 5, 6, 7], [8]]
    assert buckets([4 * MIB] * 3, 8 * MIB, 8 * MIB) == [[0, 1], [2]]
    assert buckets([]) == []


def test_ddp_adds_buckets_as_large_as_the_gradients() -> None:
    alone, ddp, views = (
        sum(DistributedStep(MODEL, 256, has_buckets, as_view).after_backward().values())
        for has_buckets, as_view in ((False, False), (True, False), (True, True))
    )
    assert ddp - alone == 48 * MIB
    assert views == alone
