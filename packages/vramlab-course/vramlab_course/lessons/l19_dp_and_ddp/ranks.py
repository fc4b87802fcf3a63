"""Train a small model with DistributedDataParallel: one of the processes that torchrun starts.

    torchrun --nproc-per-node=2 -m vramlab_course.lessons.l19_dp_and_ddp.ranks ROWS STEPS

ROWS is the batch size of every process; together they see `ROWS x processes` rows in a step. All of
it is in float64, so that what is left of rounding is far below what training changes. It trains
twice from the same start: the second time with gradients in DDP's buckets.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vramlab_course.programs.ranks.join import Rank, join

WIDTH = 8
LEARNING_RATE = 0.1


def make_model() -> nn.Sequential:
    """Make two Linear layers, the same in every process: the seed says which."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).double()


def make_batch(rows: int, step: int) -> Tensor:
    """Return all rows of a step, (rows, WIDTH), on the host."""
    torch.manual_seed(1 + step)
    return torch.randn(rows, WIDTH, dtype=torch.float64)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> None:
    """Train one step: the loss is the mean over the rows."""
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()


def parameters_of(model: nn.Module) -> list[float]:
    """Return every number of the model."""
    return [number for p in model.parameters() for number in p.detach().flatten().cpu().tolist()]


def train_alone(rows: int, steps: int) -> list[float]:
    """Run the same training in one process, which sees all rows of a step at once."""
    model = make_model().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        learn(model, optimizer, make_batch(rows, step).to("cuda"))
    return parameters_of(model)


def train(rank: Rank, rows: int, steps: int, as_view: bool) -> tuple[list[float], int]:
    """Train on this rank's rows; answer what the model has become, and the rows it saw last.

    Args:
        rank: who trains.
        rows: of this rank in each step.
        steps: how many.
        as_view: gradient_as_bucket_view.
    """
    model = make_model().to("cuda")
    parallel = DistributedDataParallel(
        model, device_ids=[rank.number], gradient_as_bucket_view=as_view
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        mine = make_batch(rows * rank.world, step).chunk(rank.world)[rank.number]
        learn(parallel, optimizer, mine.to("cuda"))
    return parameters_of(model), len(mine)


def main() -> None:
    """Read the arguments, join the world, train in both ways, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("steps", type=int)
    arguments = parser.parse_args()
    with join("T4") as rank:
        parameters, seen = train(rank, arguments.rows, arguments.steps, as_view=False)
        with_views, _ = train(rank, arguments.rows, arguments.steps, as_view=True)
        rank.report(rows=seen, parameters=parameters, parameters_with_views=with_views)


if __name__ == "__main__":
    main()
