"""Convolutions' results lie in memory as cuDNN lays them out, whatever the meta kernels say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import vramlab

CHANNELS_LAST = (8 * 14 * 14, 1, 14 * 8, 8)
CONTIGUOUS = (8 * 14 * 14, 14 * 14, 14, 1)
"""Strides of (2, 8, 14, 14)."""


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with vramlab.VirtualGPU("H200"):
        yield


def images(memory_format: torch.memory_format, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(2, 8, 14, 14, device="cuda", dtype=dtype).to(memory_format=memory_format)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_the_output_is_channels_last_where_the_input_is(groups: int) -> None:
    """Depthwise convolutions too: cuDNN takes them over where channels are last."""
    layer = nn.Conv2d(8, 8, 3, padding=1, groups=groups).cuda()
    assert layer(images(torch.channels_last)).stride() == CHANNELS_LAST
    assert layer(images(torch.contiguous_format)).stride() == CONTIGUOUS


def test_the_output_is_channels_last_where_the_weight_is() -> None:
    layer = nn.Conv2d(8, 8, 3, padding=1).cuda().to(memory_format=torch.channels_last)
    assert layer(images(torch.contiguous_format)).stride() == CHANNELS_LAST


def test_gradients_go_by_input_and_weight_alone() -> None:
    """A patch embedding: its output's gradient is channels last, since patches were flattened."""
    layer = nn.Conv2d(8, 8, 1).cuda()
    strides: list[tuple[int, ...]] = []
    layer.weight.register_hook(lambda gradient: strides.append(gradient.stride()))
    x = images(torch.contiguous_format).requires_grad_()
    patches = layer(x).flatten(2).transpose(1, 2)
    nn.functional.layer_norm(patches, (8,)).sum().backward()
    assert strides == [(8, 1, 1, 1)]
    assert x.grad is not None
    assert x.grad.stride() == CONTIGUOUS


def test_what_strides_decide_is_counted() -> None:
    """A contiguous copy of a channels-last output, which a contiguous one needs no copy for."""
    layer = nn.Conv2d(8, 8, 3, padding=1).cuda()
    output_bytes = 2 * 8 * 14 * 14 * 4  # 12544, which is 24.5 blocks of 512
    for memory_format, copies in ((torch.channels_last, 1), (torch.contiguous_format, 0)):
        output = layer(images(memory_format))
        before_bytes = torch.cuda.memory_stats()["requested_bytes.all.current"]
        flat = output.contiguous().flatten()
        after_bytes = torch.cuda.memory_stats()["requested_bytes.all.current"]
        assert after_bytes - before_bytes == copies * output_bytes
        del output, flat
