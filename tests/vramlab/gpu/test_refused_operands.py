"""Sizes and dtypes that CUDA's kernels refuse are refused, in the words of torch's C++ code."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn, zeros
from torch.nn import functional

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU

Program = Callable[[str], object]

SIZES: dict[str, Program] = {
    "add": lambda d: zeros(3, 3, device=d) + zeros(2, device=d),
    "add_": lambda d: zeros(3, 3, device=d).add_(zeros(4, 3, 3, device=d)),
    "mm": lambda d: zeros(3, 3, device=d) @ zeros(2, 2, device=d),
    "mm of a vector": lambda d: torch.mm(zeros(3, 3, device=d), zeros(2, device=d)),
    "linear": lambda d: nn.Linear(3, 4, device=d)(zeros(2, 2, device=d)),
    "bmm": lambda d: torch.bmm(zeros(2, 3, 3, device=d), zeros(2, 2, 2, device=d)),
    "batches": lambda d: zeros(2, 3, 3, device=d) @ zeros(4, 3, 3, device=d),
    "channels": lambda d: nn.Conv2d(3, 4, 3, device=d)(zeros(1, 2, 8, 8, device=d)),
    "kernel": lambda d: nn.Conv2d(3, 4, 3, device=d)(zeros(1, 3, 2, 2, device=d)),
    "cat": lambda d: torch.cat([zeros(2, 3, device=d), zeros(2, 4, device=d)]),
    "stack": lambda d: torch.stack([zeros(2, 3, device=d), zeros(2, 4, device=d)]),
    "view": lambda d: zeros(2, 3, device=d).view(4),
    "expand": lambda d: zeros(2, 3, device=d).expand(4, 3),
    "targets": lambda d: functional.cross_entropy(
        zeros(3, 4, device=d), zeros(2, dtype=torch.long, device=d)
    ),
    "layer norm": lambda d: functional.layer_norm(zeros(3, 4, device=d), (3,)),
    "batch norm": lambda d: nn.BatchNorm1d(3, device=d)(zeros(2, 4, device=d)),
    "too many indices": lambda d: zeros(3, 4, device=d)[:, :, 0],
    "copy_": lambda d: zeros(3, device=d).copy_(zeros(4, device=d)),
    "slice assignment": lambda d: zeros(3, device=d).__setitem__(slice(0, 2), zeros(3, device=d)),
    "lstm": lambda d: nn.LSTM(3, 4, device=d)(zeros(2, 2, device=d)),
    "softmax": lambda d: zeros(3, device=d).softmax(3),
    "topk": lambda d: zeros(3, device=d).topk(5),
    "split": lambda d: zeros(6, device=d).split([2, 2]),
    "negative": lambda d: zeros(-1, device=d),
}

DTYPES: dict[str, Program] = {
    "linear": lambda d: nn.Linear(3, 4, device=d)(zeros(2, 3, device=d).half()),
    "bmm": lambda d: torch.bmm(zeros(2, 3, 3, device=d), zeros(2, 3, 3, device=d).half()),
    "convolution": lambda d: nn.Conv2d(3, 4, 3, device=d)(zeros(1, 3, 8, 8, device=d).half()),
    "tokens": lambda d: functional.embedding(zeros(3, device=d), zeros(2, 2, device=d)),
    "index": lambda d: zeros(3, 4, device=d).gather(0, zeros(3, 1, device=d)),
}

AUTOGRAD: dict[str, Program] = {
    "in place on a leaf": lambda d: zeros(3, device=d, requires_grad=True).add_(1),
    "backward of nothing": lambda d: zeros(3, device=d).sum().backward(),
    "backward of a vector": lambda d: (zeros(3, device=d, requires_grad=True) * 2).backward(),
    "backward twice": lambda d: backward_twice(d),
    "changed after saving": lambda d: change_after_saving(d),
    "unused": lambda d: torch.autograd.grad(
        (zeros(3, device=d, requires_grad=True) * 2).sum(), zeros(3, device=d, requires_grad=True)
    ),
}


def backward_twice(device: str) -> None:
    loss = zeros(3, device=device, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def change_after_saving(device: str) -> None:
    y = zeros(3, device=device, requires_grad=True).exp()
    y.add_(1)
    y.sum().backward()


def complaint(program: Program, device: str) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011  the caller compares type and text
        program(device)
    text = str(caught.value).splitlines()[0]
    return type(caught.value), text.replace("torch.cuda.", "torch.")


@pytest.mark.parametrize(
    "program", [*SIZES.values(), *DTYPES.values()], ids=[*SIZES, *(f"dtype {n}" for n in DTYPES)]
)
def test_the_host_and_a_gpu_refuse_alike(program: Program) -> None:
    on_host = complaint(program, "cpu")
    with VirtualGPU("T4"):
        assert complaint(program, "cuda") == on_host


@pytest.mark.parametrize("program", AUTOGRAD.values(), ids=AUTOGRAD)
def test_autograd_refuses_alike(program: Program) -> None:
    on_host = complaint(program, "cpu")
    with VirtualGPU("T4"):
        kind, text = complaint(program, "cuda")
    assert (kind, text) == on_host


def test_matrices_of_two_dtypes(gpu: VirtualGPU) -> None:
    # CUDA's own words: the host says m1 and m2
    matrix = zeros(3, 3, device="cuda")
    with pytest.raises(
        RuntimeError,
        match=r"expected mat1 and mat2 to have the same dtype, but got: float != c10::Half",
    ):
        matrix @ matrix.half()


@pytest.mark.parametrize(
    ("sizes", "reduction", "until_2_11"),
    [
        ((3, 4), "mean", '"nll_loss_forward_reduce_cuda_kernel_2d_index" not implemented for'),
        ((4,), "sum", '"nll_loss_forward_reduce_cuda_kernel_1d_index" not implemented for'),
        ((4,), "none", '"nll_loss_forward_reduce_cuda_kernel_1d_index" not implemented for'),
        ((3, 4), "none", '"nll_loss_forward_no_reduce_cuda_kernel_index" not implemented for'),
        ((3, 4, 2, 2), "mean", "expected scalar type Long but found"),
    ],
)
def test_targets_of_another_dtype(
    gpu: VirtualGPU, sizes: tuple[int, ...], reduction: str, until_2_11: str
) -> None:
    one_dtype_for_all_devices = "expected target dtype to be Long or Byte, but got"
    target_sizes = (*sizes[:-3], *sizes[-2:]) if len(sizes) > 2 else sizes[:-1]
    targets = zeros(target_sizes, dtype=torch.int32, device="cuda")
    words = one_dtype_for_all_devices if torch.__version__ >= (2, 12) else until_2_11
    with pytest.raises(RuntimeError, match=re.escape(words)):
        functional.cross_entropy(zeros(sizes, device="cuda"), targets, reduction=reduction)


def test_an_op_without_a_shape_rule_is_named(gpu: VirtualGPU) -> None:
    matrix = zeros(4, 4, device="cuda")
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"aten\.geqrf\.default is not modelled"):
        torch.geqrf(matrix)
    assert torch.cuda.memory_allocated() == 512


def test_nested_tensors_without_a_layout_are_refused_on_the_gpu(gpu: VirtualGPU) -> None:
    rows = [zeros(5, 8, device="cuda"), zeros(3, 8, device="cuda")]
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"layout=torch\.jagged"):
        torch.nested.nested_tensor(rows)
