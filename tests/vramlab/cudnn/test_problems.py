"""A convolution as PyTorch describes it to cuDNN: its strides, and the line that a table has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab.cudnn.problems import Convolution, strides_of

VGG = Convolution(
    "forward",
    "f32",
    input=(32, 64, 224, 224),
    weight=(64, 64, 3, 3),
    output=(32, 64, 224, 224),
    padding=(1, 1),
    stride=(1, 1),
    dilation=(1, 1),
)


def test_strides_follow_the_format() -> None:
    assert strides_of((2, 3, 5, 7), channels_last=False) == [3 * 5 * 7, 5 * 7, 7, 1]
    assert strides_of((2, 3, 5, 7), channels_last=True) == [5 * 7 * 3, 1, 7 * 3, 3]
    assert strides_of((2, 3, 4, 5, 7), channels_last=True) == [4 * 5 * 7 * 3, 1, 5 * 7 * 3, 21, 3]


def test_a_dimension_of_one_element_has_the_stride_that_follows_from_the_others() -> None:
    """(16, 64, 1, 1): rows of 64 channels, in either format."""
    assert strides_of((16, 64, 1, 1), channels_last=False) == [64, 1, 1, 1]
    assert strides_of((16, 64, 1, 1), channels_last=True) == [64, 1, 64, 64]


@pytest.mark.parametrize(
    "convolution",
    [
        VGG,
        replace(VGG, operation="weight", dtype="bf16", channels_last=True),
        replace(VGG, deterministic=True, allow_tf32=False),
        replace(VGG, alignments=(32, 4, 16)),
        Convolution("input", "f16", *[(1, 4, 5, 6, 7)] * 3, *[(1, 2, 3)] * 3),
    ],
)
def test_its_key_says_all_of_it(convolution: Convolution) -> None:
    assert Convolution.from_key(convolution.key) == convolution


def test_a_key_is_short_where_nothing_is_special() -> None:
    assert VGG.key == "forward f32 32x64x224x224 64x64x3x3 32x64x224x224 1x1 1x1 1x1"


@pytest.mark.parametrize("key", ["", "forward f32", f"{VGG.key} faster"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        Convolution.from_key(key)


def test_tf32_is_a_matter_of_float32_alone() -> None:
    """What is asked of 16-bit convolutions does not depend on `torch.backends.cudnn.allow_tf32`."""
    half = replace(VGG, dtype="f16", allow_tf32=False)
    assert half.as_question()[-1] is True
    assert replace(VGG, allow_tf32=False).as_question()[-1] is False
