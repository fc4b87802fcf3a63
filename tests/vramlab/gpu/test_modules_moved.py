"""A module that moves to a GPU keeps its parameters: the objects, and what was noted on them."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from vramlab.gpu import VirtualGPU


def test_hooks_of_before_run_after(gpu: VirtualGPU) -> None:
    layer = nn.Linear(4, 4)
    called = []
    layer.weight.register_hook(lambda gradient: called.append("gradient"))
    layer.weight.register_post_accumulate_grad_hook(lambda parameter: called.append("accumulated"))
    layer.cuda()
    layer(torch.ones(2, 4, device="cuda")).sum().backward()
    assert called == ["gradient", "accumulated"]


def test_attributes_stay(gpu: VirtualGPU) -> None:
    layer = nn.Linear(4, 4)
    weight = layer.weight
    weight.no_weight_decay = True  # type: ignore[attr-defined]
    layer.cuda()
    assert layer.weight is weight
    assert weight.is_cuda
    assert weight.no_weight_decay is True  # type: ignore[attr-defined]
    layer.half().cpu()
    assert layer.weight is weight
    assert weight.dtype == torch.float16
    assert not weight.is_cuda
    assert weight.no_weight_decay is True  # type: ignore[attr-defined]


def test_references_do_not_hinder(gpu: VirtualGPU) -> None:
    layer = nn.Linear(4, 4)
    graph = layer(torch.ones(2, 4)).sum()
    view, weak = layer.weight.view(-1), weakref.ref(layer.weight)
    layer.cuda()
    assert weak() is layer.weight
    assert layer.weight.is_cuda
    assert not view.is_cuda
    assert not graph.is_cuda
    # 4 x 4 weights and 4 biases in float32: 64 B and 16 B, in blocks of 512 B
    assert torch.cuda.memory_allocated() == 2 * 512


def test_torchs_own_swap_is_as_before(gpu: VirtualGPU) -> None:
    left, right = torch.ones(2), torch.zeros(2)
    left.mark = "left"  # type: ignore[attr-defined]
    torch.utils.swap_tensors(left, right)
    assert right.mark == "left"
    assert not hasattr(left, "mark")


def test_another_type_takes_the_place_of_the_one_before(gpu: VirtualGPU) -> None:
    """As setting `data` does on CUDA: a weight goes before the bias is converted.

    256 x 256 weights and 256 biases in float32: 256 KiB and 1 KiB; in float16 half of both.
    """
    layer = nn.Linear(256, 256).cuda()
    kib = 1024
    assert torch.cuda.memory_allocated() == 257 * kib
    torch.cuda.reset_peak_memory_stats()
    weight = layer.weight.data_ptr()
    layer.half()
    assert layer.bias.data_ptr() == weight
    assert torch.cuda.memory_allocated() == 128 * kib + 512
    assert torch.cuda.max_memory_allocated() == (257 + 128) * kib
