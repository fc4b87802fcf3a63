"""Rules of an older PyTorch: how far back they go, and what autograd kept before."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB

SIZE_BYTES = 4 * MIB  # of 1024 x 1024 floats


def gpu_of(version: str, **options: bool) -> VirtualGPU:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return VirtualGPU("V100-16GB", torch_version=version, **options)  # type: ignore[arg-type]


def softmax(x: Tensor) -> Tensor:
    return functional.softmax(x, dim=-1)


def softmax_method(x: Tensor) -> Tensor:
    return x.softmax(0)


def log_softmax(x: Tensor) -> Tensor:
    return functional.log_softmax(x, dim=-1)


def cross_entropy(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, torch.zeros(1024, dtype=torch.int64, device=x.device))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("layer", [softmax, softmax_method, log_softmax, cross_entropy])
@pytest.mark.parametrize(("version", "kept"), [("1.10", 2), ("1.8", 2), ("1.11", 1), ("2.13", 1)])
def test_softmax_kept_its_input_before_1_11(
    version: str, kept: int, layer: Callable[[Tensor], Tensor], values: bool
) -> None:
    """Its result is kept in any version, its input beside it, until the backward pass."""
    with gpu_of(version, values=values):
        weight = torch.ones(1024, 1024, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        loss = layer(weight * 2).sum()
        small_bytes = (torch.cuda.memory_allocated() - before) % SIZE_BYTES
        assert torch.cuda.memory_allocated() - before - small_bytes == kept * SIZE_BYTES
        assert small_bytes < 64 * 1024
        loss.backward(retain_graph=True)
        gradient = SIZE_BYTES
        held = torch.cuda.memory_allocated() - before - gradient
        assert held - held % SIZE_BYTES == kept * SIZE_BYTES  # the graph may run again
        loss.backward()
        held = torch.cuda.memory_allocated() - before - gradient
        assert held < 64 * 1024


@pytest.mark.parametrize("layer", [softmax, log_softmax, cross_entropy])
def test_its_gradients_are_the_same(layer: Callable[[Tensor], Tensor]) -> None:
    def gradients(x: Tensor) -> tuple[Tensor, Tensor]:
        (first,) = torch.autograd.grad((layer(x) * x.detach()).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        return first.detach(), second

    values = torch.linspace(-1, 1, 1024 * 4).reshape(1024, 4)
    expected = gradients(values.clone().requires_grad_())
    with gpu_of("1.10", values=True):
        found = gradients(values.cuda().requires_grad_())
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)


def test_halves_are_read_as_they_are() -> None:
    """The input that is kept is the float16 one; the result is float32."""
    with gpu_of("1.10"):
        weight = torch.ones(1024, 1024, dtype=torch.float16, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        result = functional.softmax(weight * 2, dim=-1, dtype=torch.float32)
        assert torch.cuda.memory_allocated() - before == SIZE_BYTES + SIZE_BYTES // 2
        result.sum().backward()
        assert weight.grad is not None
        assert weight.grad.dtype == torch.float16


@pytest.mark.parametrize("version", ["1.10", "1.12.1", "0.4"])
def test_a_version_before_the_oldest_is_told(version: str) -> None:
    with pytest.warns(UserWarning, match=r"rules are those of PyTorch 1\.13 and later") as caught:
        VirtualGPU("T4", torch_version=version)
    assert caught[0].filename == __file__
    assert str(torch.__version__) in str(caught[0].message)
