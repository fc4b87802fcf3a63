"""Whose kernels compute a convolution, in which format, and what cuDNN is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_events import A100, T4, V100, Model, Recorder, flat, meta

from vramlab.cudnn.problems import Convolution
from vramlab.kernels import TABLE, KernelContext, replay
from vramlab.kernels.convolution import Backend, backend, memory_format

aten = torch.ops.aten
F16, BF16 = torch.float16, torch.bfloat16
ONE_BY_ONE = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
PADDED = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)

Asked = list[Convolution]


@pytest.fixture
def asked() -> tuple[Asked, Callable[..., list[tuple[str, Any]]]]:
    """What cuDNN computes in a rule, and what else the rule does."""
    questions: Asked = []

    def run(func: Any, *args: Any, gpu: Model = A100) -> list[tuple[str, Any]]:
        rule = TABLE.find(func)
        assert rule is not None
        outputs = flat(func(*args))
        recorder = Recorder(outputs)
        context = KernelContext(gpu, (2, 13))
        replay(rule.steps(context, func, args, {}, outputs), len(outputs), recorder)
        questions.extend(value for name, value in recorder.events if name == "convolve")
        return [
            (name, value.operation if name == "convolve" else value)
            for name, value in recorder.events
        ]

    return questions, run


def test_cudnn_computes_after_the_output_is_allocated(asked: Any) -> None:
    questions, run = asked
    image, weight = meta(2, 3, 8, 8), meta(4, 3, 3, 3)
    assert run(aten.convolution.default, image, weight, None, *PADDED) == [
        ("output", 0),
        ("convolve", "forward"),
    ]
    assert questions == [
        Convolution(
            "forward", "f32", (2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 8, 8), (1, 1), (1, 1), (1, 1)
        )
    ]


def test_the_backward_pass_has_a_workspace_for_each_gradient(asked: Any) -> None:
    questions, run = asked
    gradient, image, weight = meta(2, 4, 8, 8), meta(2, 3, 8, 8), meta(4, 3, 3, 3)
    arguments = (gradient, image, weight, None, *PADDED)
    assert run(aten.convolution_backward.default, *arguments, [True, True, False]) == [
        ("output", 0),
        ("convolve", "input"),
        ("output", 1),
        ("convolve", "weight"),
    ]
    assert {(each.input, each.output) for each in questions} == {((2, 3, 8, 8), (2, 4, 8, 8))}


def test_a_transposed_convolution_is_the_gradient_of_an_input(asked: Any) -> None:
    """(2, 4, 8, 8) to (2, 3, 16, 16): 7 x 2 + 2 = 16. To cuDNN the larger one is the input."""
    questions, run = asked
    how = ([2, 2], [0, 0], [1, 1], True, [0, 0], 1)
    small, weight, large = meta(2, 4, 8, 8), meta(4, 3, 2, 2), meta(2, 3, 16, 16)
    run(aten.convolution.default, small, weight, None, *how)
    run(aten.convolution_backward.default, large, small, weight, None, *how, [True, True, False])
    assert [each.operation for each in questions] == ["input", "forward", "weight"]
    assert {(each.input, each.output) for each in questions} == {((2, 3, 16, 16), (2, 4, 8, 8))}


def test_one_spatial_dimension_is_an_image_of_height_1(asked: Any) -> None:
    questions, run = asked
    how = ([2], [1], [1], False, [0], 1)
    run(aten.convolution.default, meta(2, 80, 100), meta(64, 80, 3), None, *how)
    (asked_for,) = questions
    assert (asked_for.input, asked_for.weight) == ((2, 80, 1, 100), (64, 80, 1, 3))
    assert asked_for.output == (2, 64, 1, 50)  # (100 + 2 - 3) // 2 + 1
    assert (asked_for.padding, asked_for.stride) == ((0, 1), (1, 2))


def test_rows_of_channels_are_copied(asked: Any) -> None:
    """A transposed (N, length, C) is copied to be contiguous, until the convolution has ended."""
    questions, run = asked
    rows = meta(2, 100, 80).transpose(1, 2)
    weight = meta(64, 80, 3)
    how = ([1], [1], [1], False, [0], 1)
    assert memory_format(rows, weight) is torch.contiguous_format
    copy = 2 * 100 * 80 * 4
    assert run(aten.convolution.default, rows, weight, None, *how) == [
        ("take", copy),
        ("output", 0),
        ("convolve", "forward"),
        ("give", copy),
    ]
    gradients = run(
        aten.convolution_backward.default,
        *(meta(2, 64, 100), rows, weight, None, *how, [True, True, False]),
    )
    assert gradients == [
        ("take", copy),
        *(("output", 0), ("convolve", "input"), ("output", 1), ("convolve", "weight")),
        ("give", copy),
    ]
    assert not any(each.channels_last for each in questions)


def test_a_gradient_in_another_format_is_copied_once(asked: Any) -> None:
    """The input is in channels last, so the gradient is brought into that for both."""
    _, run = asked
    image = meta(2, 3, 8, 8).to(memory_format=torch.channels_last)
    arguments = (meta(2, 4, 8, 8), image, meta(4, 3, 3, 3), None, *PADDED, [True, True, False])
    assert run(aten.convolution_backward.default, *arguments) == [
        ("take", 2048),  # the gradient: 2 x 4 x 8 x 8 x 4
        *(("output", 0), ("take", 432), ("convolve", "input"), ("give", 432)),  # 4 x 3 x 3 x 3 x 4
        *(("output", 1), ("convolve", "weight")),
        ("give", 2048),
    ]


def test_depthwise_gradients_are_pytorchs(asked: Any) -> None:
    """Of images the weight's comes first; of volumes, both come before any copy."""
    _, run = asked
    how = ([1, 1], [1, 1], [1, 1], False, [0, 0], 4)
    gradient = meta(1, 1, 1, 1).expand(2, 4, 8, 8)
    arguments = (gradient, meta(2, 4, 8, 8), meta(4, 1, 3, 3), None, *how, [True, True, False])
    assert run(aten.convolution_backward.default, *arguments) == [
        *(("take", 2048), ("output", 1), ("output", 0), ("give", 2048)),
    ]
    how = ([1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 4)
    gradient = meta(1, 1, 1, 1, 1).expand(2, 4, 8, 8, 8)
    volumes = (meta(2, 4, 8, 8, 8), meta(4, 1, 3, 3, 3))
    arguments = (gradient, *volumes, None, *how, [True, True, False])
    assert run(aten.convolution_backward.default, *arguments) == [
        *(("output", 0), ("output", 1), ("take", 16384), ("give", 16384)),
    ]


def test_an_address_inside_of_a_block_is_told(asked: Any) -> None:
    """The fourth number of a flat tensor lies at 3 x 4 = 12 bytes, which 4 divides and 8 does not.

    A weight that is copied into another format lies at a block's beginning again.
    """
    questions, run = asked
    weight = meta(3 + 4 * 3 * 9)[3:].view(4, 3, 3, 3)
    run(aten.convolution.default, meta(2, 3, 8, 8), weight, None, *PADDED)
    image = meta(2, 3, 8, 8).to(memory_format=torch.channels_last)
    run(aten.convolution.default, image, weight, None, *PADDED)
    assert [each.alignments for each in questions] == [(32, 4, 32), (32, 32, 32)]


def test_settings_are_told(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    questions, run = asked
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    run(aten.convolution.default, meta(2, 3, 8, 8), meta(4, 3, 3, 3), None, *PADDED)
    assert (questions[0].deterministic, questions[0].allow_tf32) == (True, False)


def chosen(
    image: torch.Tensor, weight: torch.Tensor, *, groups: int = 1, gpu: Model = A100, step: int = 1
) -> Backend:
    how = ([step, step], [1, 1], False, [0, 0], groups)
    return backend(image, weight, *how, gpu.compute_capability)


def test_bfloat16_is_not_cudnns_before_ampere() -> None:
    image, weight = meta(2, 3, 8, 8, dtype=BF16), meta(4, 3, 3, 3, dtype=BF16)
    assert chosen(image, weight, gpu=A100) is Backend.CUDNN
    assert chosen(image, weight, gpu=T4) is Backend.SLOW
    assert chosen(image.half(), weight.half(), gpu=V100) is Backend.CUDNN


def test_without_cudnn_pytorch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    assert chosen(meta(2, 3, 8, 8), meta(4, 3, 3, 3)) is Backend.SLOW
    assert chosen(meta(2, 4, 8, 8), meta(4, 1, 3, 3), groups=4) is Backend.DEPTHWISE


def test_an_empty_batch_is_nobodys() -> None:
    assert chosen(meta(0, 3, 8, 8), meta(4, 3, 3, 3)) is Backend.EMPTY


@pytest.mark.parametrize(
    ("shape", "filter_side", "step", "expected"),
    [
        ((8, 64, 56, 56), 3, 1, Backend.CUDNN),
        ((8, 64, 56, 56), 7, 1, Backend.DEPTHWISE),  # 1, 3 and 5 alone are fast
        ((8, 16, 56, 56), 3, 1, Backend.DEPTHWISE),  # fewer than 32 channels
        ((8, 64, 6, 6), 3, 1, Backend.DEPTHWISE),  # narrower than 7
        ((8, 256, 28, 28), 3, 2, Backend.CUDNN),
        ((8, 256, 14, 14), 3, 2, Backend.DEPTHWISE),  # strided: from 512 channels on, or 28 wide
        ((1, 64, 14, 14), 3, 2, Backend.CUDNN),  # or a batch of one
    ],
)
def test_depthwise_in_float16_is_cudnns_where_it_pays(
    shape: tuple[int, ...], filter_side: int, step: int, expected: Backend
) -> None:
    image = meta(*shape, dtype=F16)
    weight = meta(shape[1], 1, filter_side, filter_side, dtype=F16)
    assert chosen(image, weight, groups=shape[1], step=step) is expected
    assert chosen(image.float(), weight.float(), groups=shape[1], step=step) is Backend.DEPTHWISE


def test_depthwise_in_channels_last_is_cudnns() -> None:
    image = meta(2, 16, 8, 8).to(memory_format=torch.channels_last)
    assert chosen(image, meta(16, 1, 7, 7), groups=16) is Backend.CUDNN


def test_bfloat16_before_ampere_is_a_product_of_matrices(asked: Any) -> None:
    """The columns of one image: 3 channels of 3 x 3, for each of 8 x 8 places, two bytes each.

    As the native engine has it on a T4; a filter of one number needs none.
    """
    questions, run = asked
    image, weight = meta(2, 3, 8, 8, dtype=BF16), meta(4, 3, 3, 3, dtype=BF16)
    columns = 3 * 3 * 3 * 8 * 8 * 2
    product = [("take", columns), ("workspace", "CUBLAS"), ("give", columns)]
    assert run(aten.convolution.default, image, weight, None, *PADDED, gpu=T4) == [
        ("output", 0),
        *product,
    ]
    small = meta(4, 3, 1, 1, dtype=BF16)
    assert run(aten.convolution.default, image, small, None, *ONE_BY_ONE, gpu=T4) == [
        ("output", 0),
        ("workspace", "CUBLAS"),
    ]
    gradient = meta(2, 4, 8, 8, dtype=BF16)
    arguments = (gradient, image, weight, None, *PADDED, [True, True, False])
    assert run(aten.convolution_backward.default, *arguments, gpu=T4) == [
        ("output", 0),
        ("take", columns),  # for both gradients
        ("output", 1),
        ("workspace", "CUBLAS"),
        ("give", columns),
    ]
    assert questions == []


def test_depthwise_bfloat16_in_channels_last_has_no_kernel_before_ampere(asked: Any) -> None:
    """PyTorch asks cuDNN without looking at the dtype, and cuDNN has no engine."""
    _, run = asked
    image = meta(2, 16, 8, 8, dtype=BF16).to(memory_format=torch.channels_last)
    how = ([1, 1], [1, 1], [1, 1], False, [0, 0], 16)
    with pytest.raises(RuntimeError, match="unable to find an engine"):
        run(aten.convolution.default, image, meta(16, 1, 3, 3, dtype=BF16), None, *how, gpu=T4)


def expanded(*shape: int) -> torch.Tensor:
    return meta().expand(shape)


def taken(size: int) -> list[tuple[str, int]]:
    return [("take", size), ("give", size)]


GRADIENT = 2 * 4 * 8 * 8 * 4
OUT_0, OUT_1, OUT_2 = (("output", index) for index in range(3))


def test_cudnn_reads_a_copy_of_an_expanded_gradient_for_each_result(asked: Any) -> None:
    _, run = asked
    arguments = (expanded(2, 4, 8, 8), meta(2, 3, 8, 8), meta(4, 3, 3, 3), None, *PADDED)
    assert run(aten.convolution_backward.default, *arguments, [True, True, False]) == [
        OUT_0,
        ("take", GRADIENT),
        ("convolve", "input"),
        ("give", GRADIENT),
        ("take", GRADIENT),
        OUT_1,
        ("convolve", "weight"),
        ("give", GRADIENT),
    ]


def test_depthwise_results_begin_with_the_weights(asked: Any) -> None:
    """Of volumes the other way around, with the copy after both."""
    _, run = asked
    how = ([1, 1], [1, 1], [1, 1], False, [0, 0], 4)
    image = (expanded(2, 4, 8, 8), meta(2, 4, 8, 8), meta(4, 1, 3, 3), None, *how)
    mask = [True, True, False]
    assert run(aten.convolution_backward.default, *image, mask) == [
        ("take", GRADIENT),
        OUT_1,
        OUT_0,
        ("give", GRADIENT),
    ]
    in_space = ([1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 4)
    volume = (expanded(2, 4, 8, 8, 8), meta(2, 4, 8, 8, 8), meta(4, 1, 3, 3, 3), None, *in_space)
    assert run(aten.convolution_backward.default, *volume, mask) == [
        OUT_0,
        OUT_1,
        *taken(8 * GRADIENT),
    ]


@pytest.fixture
def without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)


WORKSPACE = ("workspace", "CUBLAS")
IMAGES = 4 * 6 * 20 * 22 * 4
"""Bytes of 4 images of 6 channels."""


@pytest.mark.usefixtures("without_cudnn")
def test_groups_are_convolved_one_by_one(events: Any) -> None:
    """Two groups of 3 channels, with 4 filters of 3 x 3 each, at 18 x 20 places."""
    how = ([1, 1], [0, 0], [1, 1], False, [0, 0], 2)
    columns, part, output = 3 * 9 * 18 * 20 * 4, IMAGES // 2, 4 * 4 * 18 * 20 * 4
    found = events(aten.convolution.default, meta(4, 6, 20, 22), meta(8, 3, 3, 3), None, *how)
    group = [("take", part), ("take", output), ("take", columns), WORKSPACE, ("give", columns)]
    assert found == [
        *group,
        ("give", part),
        *group,
        ("give", part),
        OUT_0,
        ("give", output),
        ("give", output),
    ]


@pytest.mark.usefixtures("without_cudnn")
def test_a_transposed_convolution_makes_columns_of_its_input(events: Any) -> None:
    """Filters of 6 x 8 x 3 x 3: 8 x 9 numbers of each of 10 x 12 places; output 21 x 25.

    A bias is multiplied with a one for each place of the output.
    """
    how = ([2, 2], [0, 0], [1, 1], True, [0, 0], 1)
    image, weight, bias = meta(4, 6, 10, 12), meta(6, 8, 3, 3), meta(8)
    columns, ones = 8 * 9 * 10 * 12 * 4, 21 * 25 * 4
    assert events(aten.convolution.default, image, weight, bias, *how) == [
        OUT_0,
        ("take", columns),
        ("take", ones),
        WORKSPACE,
        ("give", ones),
        ("give", columns),
    ]
    gradient_bytes = 4 * 8 * 21 * 25 * 4
    arguments = (expanded(4, 8, 21, 25), image, weight, [8], *how, [True, True, True])
    assert events(aten.convolution_backward.default, *arguments) == [
        ("take", gradient_bytes),
        OUT_0,
        ("take", columns),
        WORKSPACE,
        ("give", columns),
        ("give", gradient_bytes),
        OUT_1,
        OUT_2,
        ("take", gradient_bytes),
        ("take", columns),
        WORKSPACE,
        ("give", columns),
        ("give", gradient_bytes),
    ]


@pytest.mark.usefixtures("without_cudnn")
def test_an_output_of_volumes_begins_as_large_as_the_input(events: Any) -> None:
    how = ([2, 2, 2], [0, 0, 0], [1, 1, 1], True, [0, 0, 0], 1)
    arguments = (meta(4, 6, 5, 6, 7), meta(6, 8, 3, 3, 3), None, *how)
    input_bytes = 4 * 6 * 5 * 6 * 7 * 4
    found = events(aten.convolution.default, *arguments)
    assert found[:3] == [("take", input_bytes), OUT_0, ("give", input_bytes)]


@pytest.mark.usefixtures("without_cudnn")
def test_dilated_filters_sum_the_bias_image_by_image(events: Any) -> None:
    """16 x 18 places of 6 x 3 x 3 numbers; the sum of 8 channels of each of 4 images."""
    how = ([1, 1], [0, 0], [2, 2], False, [0, 0], 1)
    arguments = (meta(4, 8, 16, 18), meta(4, 6, 20, 22), meta(8, 6, 3, 3), [8], *how)
    columns = 6 * 9 * 16 * 18 * 4
    assert events(aten.convolution_backward.default, *arguments, [True, True, True]) == [
        OUT_0,
        OUT_1,
        OUT_2,
        ("take", columns),
        WORKSPACE,
        *taken(32) * 4,
        ("give", columns),
    ]
