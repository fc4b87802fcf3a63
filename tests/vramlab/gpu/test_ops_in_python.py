"""Ops that a program defines in Python: what they allocate on a GPU is what their kernels do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vramlab
from vramlab.measure import record_timeline
from vramlab.measure.history.recording import Recording

SEEN: list[torch.device] = []


@torch.library.custom_op("vramlab_tests::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    """Make two temporaries and a result."""
    SEEN.append(x.device)
    return (x * factor + 1) * 2


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.factor = inputs[1]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return scaled(gradient, ctx.factor), None


scaled.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("vramlab_tests::of_two", mutates_args=(), device_types="cpu")
def of_two(x: Tensor) -> Tensor:
    return x.clone()


@of_two.register_kernel("cuda")
def _on_cuda(x: Tensor) -> Tensor:
    return x.exp().exp()


@of_two.register_fake
def _of_two_fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    SEEN.clear()
    with vramlab.VirtualGPU("A100-40GB"):
        yield


def sizes(recording: Recording) -> list[int]:
    """Return what was requested while a timeline was recorded."""
    made = [block for block in recording.timeline.blocks if block.born >= 0]
    return [block.requested_bytes for block in sorted(made, key=lambda block: block.born)]


def test_its_temporaries_are_counted_forward_and_backward() -> None:
    """The fake kernel knows the result of 1000 numbers only."""
    x = torch.zeros(1000, device="cuda", requires_grad=True)
    with record_timeline() as recording:
        y = scaled(x, 2.0)
    assert sizes(recording) == [4000, 4000, 4000]
    gradient = torch.ones_like(y)
    with record_timeline() as recording:
        y.backward(gradient)
    assert sizes(recording) == [4000, 4000, 4000]
    assert [torch.device("cuda", 0)] * 2 == SEEN


def test_the_kernel_for_cuda_is_run() -> None:
    x = torch.zeros(1000, device="cuda")
    with record_timeline() as recording:
        of_two(x)
    assert sizes(recording) == [4000, 4000]


def test_on_the_host_it_is_as_it_is() -> None:
    assert scaled(torch.ones(2), 2.0).tolist() == [6.0, 6.0]
    assert of_two(torch.ones(2)).tolist() == [1.0, 1.0]
    assert [torch.device("cpu")] == SEEN


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda x: torch.dist(x, x + 1), 2.0),  # of four ones, the square root of 4
        (lambda x: torch.isinf(x).sum(), 0),
        (lambda x: torch.ldexp(x, x).sum(), 8.0),
        (lambda x: torch.nn.functional.bilinear(x, x, torch.ones(1, 2, 2)).sum(), 8.0),
    ],
)
def test_host_tensors_keep_ops_that_cuda_makes_of_others(
    compute: Callable[[Tensor], Tensor], expected: float
) -> None:
    assert compute(torch.ones(2, 2)).item() == expected
