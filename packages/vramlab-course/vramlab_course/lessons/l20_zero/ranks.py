"""Divide a model among processes that torchrun starts: see who holds what, and train.

    torchrun --nproc-per-node=3 -m vramlab_course.lessons.l20_zero.ranks

Each rank reports

- `held`: the three layers of three parameters each of document 001 §5.2, under FSDP2; for each
  moment of a step, the parameters that this rank's program sees, by the names a0 to c2. (What
  FSDP2 holds besides, in buffers for what comes next, is not among `model.parameters()`.)
- `trained`: all parameters of a small model after some steps of AdamW, for each stage of ZeRO. In
  float64, so that what is left of rounding is far below what training changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from vramlab_course.lessons.l20_zero.formulas import STAGES, Stage
from vramlab_course.programs.ranks.join import Rank, join

LAYERS = "abc"
"""La, Lb and Lc."""
PARTS = 3
"""Parameters of each layer."""
STEPS, ROWS, WIDTH = 3, 12, 8

Held = dict[str, list[str]]
"""For each moment, the names of the parameters that a rank's program sees."""


# ---- Who holds what ----


def value_of(name: str) -> float:
    """Return the value by which a parameter is known wherever it turns up: 1, 2, 3, 11, ..."""
    return 10.0 * LAYERS.index(name[0]) + int(name[1]) + 1


NAMES = {value_of(f"{layer}{part}"): f"{layer}{part}" for layer in LAYERS for part in range(PARTS)}


class ScalingLayer(nn.Module):
    """Three parameters, each of which scales a number: (rows, 3) to the same.

    Args:
        letter: of `LAYERS`.
        look: called with what happens, in forward and in backward, while the layer works.
    """

    def __init__(self, letter: str, look: Callable[[str], None]) -> None:
        super().__init__()
        self.letter, self.look = letter, look
        values = [value_of(f"{letter}{part}") for part in range(PARTS)]
        self.weight = nn.Parameter(torch.tensor(values, device="cuda"))

    def forward(self, x: Tensor) -> Tensor:
        """Scale, and call a watcher, now and when the gradient has come back."""
        seen: Tensor = _Seen.apply(x, self)  # type: ignore[no-untyped-call]
        return seen * self.weight


class _Seen(torch.autograd.Function):
    """Passes a tensor on, and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: ScalingLayer) -> Tensor:
        ctx.layer = layer
        layer.look(f"forward, L{layer.letter}")
        return x.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        layer = ctx.layer  # type: ignore[attr-defined]
        layer.look(f"backward, L{layer.letter}")
        return gradient, None


def watch_a_step() -> Held:
    """Run forward and backward of three sharded layers, and look at every moment."""
    held: Held = {}

    def look(moment: str) -> None:
        values = [value for weight in model.parameters() for value in _local_values(weight)]
        held[moment] = [NAMES[value] for value in values]

    model = nn.Sequential(*(ScalingLayer(letter, look) for letter in LAYERS))
    for layer in model:
        fully_shard(layer, reshard_after_forward=True)
    fully_shard(model, reshard_after_forward=True)
    look("before the step")
    x = torch.ones(1, PARTS, device="cuda", requires_grad=True)
    model(x).sum().backward()
    look("after backward")
    return held


def _local_values(parameter: Tensor) -> list[float]:
    """Values of a parameter that are on this rank."""
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    values: list[float] = local.detach().cpu().tolist()
    return values


# ---- Training ----


def make_model() -> nn.Sequential:
    """Make two Linear layers and a number out, the same in every process: the seed says which."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)]
    return nn.Sequential(*layers).double().to("cuda")


def make_batch(step: int) -> Tensor:
    """Return all rows of a step, (ROWS, WIDTH), on the host."""
    torch.manual_seed(1 + step)
    return torch.randn(ROWS, WIDTH, dtype=torch.float64)


def train(stage: Stage | None, rank: int = 0, world: int = 1) -> list[float]:
    """Train on this rank's part of each batch; with `stage` None in one process, on all of it."""
    model = make_model()
    parallel: nn.Module = model
    if stage is not None and stage < 2:
        parallel = DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    elif stage is not None:
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, reshard_after_forward=stage == 3)
        fully_shard(model, reshard_after_forward=stage == 3)
    optimizer: torch.optim.Optimizer
    if stage == 1:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        parallel(make_batch(step).chunk(world)[rank].to("cuda")).square().mean().backward()
        optimizer.step()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return [number for p in whole for number in p.detach().flatten().cpu().tolist()]


def report(rank: Rank) -> None:
    """Watch a step, train at every stage, and tell."""
    rank.report(
        held=watch_a_step(),
        trained={name: train(stage, rank.number, rank.world) for stage, name in STAGES.items()},
    )


if __name__ == "__main__":
    with join("T4") as this_rank:
        report(this_rank)
