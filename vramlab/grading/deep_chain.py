"""The trial of a training whose memory is in its weights: a deep chain of layers, small batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vramlab.grading.batches import check_order, noting, numbered_batch
from vramlab.grading.limits import limited, peak_report
from vramlab.grading.task import NotFixed
from vramlab.units import format_bytes

if TYPE_CHECKING:
    import torch

GPU = "T4"
WIDTH = 512
WEIGHT_BYTES = 4 * WIDTH * WIDTH
ROWS = 8
"""Of a batch: its activations are next to nothing beside a weight."""

Train = Callable[["torch.nn.Module", Callable[[int], "torch.Tensor"], int], object]
"""Trains a model, on batches from a function that loads them, for so many steps."""


def try_training(
    answer: Train,
    own: Train,
    *,
    layers: int,
    steps: int,
    batches: int,
    room_bytes: int,
    same: float,
    question: str,
) -> str:
    """Train within what a program of our own reserves, and some room; compare what is learned.

    Args:
        answer: the repaired program.
        own: gives the weights that are right, and the limit.
        layers: of the chain.
        steps: what programs are called with.
        batches: how many they have to load.
        room_bytes: what may be reserved beyond what our own program does.
        same: how far a weight may be off.
        question: to somebody whose program has run out of memory.

    Returns:
        The peak, and the limit.

    Raises:
        NotFixed: the answer takes too much, loads other batches, or learns something else.
    """
    import torch

    import vramlab

    loaded: list[int] = []

    def where(held_bytes: int) -> str:
        return (
            f"in step {len(loaded)} of {batches}, where it holds {format_bytes(held_bytes)}: "
            f"{held_bytes / (layers * WEIGHT_BYTES):.1f} times the weights. {question}"
        )

    with vramlab.VirtualGPU(GPU, values=True):
        expected = _trained(own, layers, steps, [])
        limit_bytes = torch.cuda.max_memory_reserved() + room_bytes
    with vramlab.VirtualGPU(GPU, values=True):
        with limited(limit_bytes, where):
            learned = _trained(answer, layers, steps, loaded)
        report = peak_report(limit_bytes)
    check_order(loaded, batches)
    if not torch.allclose(learned, expected, rtol=0, atol=same):
        raise NotFixed(
            "It fits, but the model has learned something else than with the program as it was."
        )
    return report


def _trained(train: Train, layers: int, steps: int, loaded: list[int]) -> torch.Tensor:
    """Train a fresh chain; give its weights on the host: (layers, width, width)."""
    import torch

    model = _chain(layers)
    train(model, noting(lambda index: numbered_batch(index, ROWS, WIDTH), loaded), steps)
    return torch.stack([weight.detach().cpu() for weight in model.parameters()])


def _chain(layers: int) -> torch.nn.Sequential:
    import torch

    torch.manual_seed(layers)
    linears = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)]
    model = torch.nn.Sequential(*linears).to("cuda")
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3**0.5)  # so that outputs neither vanish nor explode over many layers
    return model
