"""Train a small model in a pipeline: one of the processes that torchrun starts.

    torchrun --nproc-per-node=2 -m vramlab_course.lessons.l22_pipeline_parallel.ranks

Each rank runs a step of the same batch with every schedule, and reports

- by the schedule's name, the gradients of its own layers. In float64, so that what is left of
  rounding is far below what training changes;
- `peaks_bytes`: what a stage of `formulas` beside this file holds at most
  among its neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

from vramlab.measure.environment import gpu_environment
from vramlab.programs.pipeline_schedules import Name, schedule_of_torch
from vramlab_course.lessons.l22_pipeline_parallel.formulas import Pipeline, even_stages
from vramlab_course.lessons.l22_pipeline_parallel.pipeline_stage import LoneStage
from vramlab_course.programs.ranks.join import Rank, join

SCHEDULES: tuple[Name, ...] = ("GPipe", "1F1B")
WIDTH, LAYERS = 8, 8
ROWS, MICRO_BATCHES = 24, 4


def make_layers() -> list[nn.Module]:
    """Make the same in every process: the seed says which."""
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(LAYERS)]


def make_batch() -> tuple[Tensor, Tensor]:
    """Make rows and what should come out, both (ROWS, WIDTH), on the host."""
    torch.manual_seed(1)
    x, target = torch.randn(2, ROWS, WIDTH, dtype=torch.float64)
    return x, target


def gradients_of(layers: nn.Module) -> list[float]:
    """Return every number of every gradient."""
    gradients = [p.grad for p in layers.parameters() if p.grad is not None]
    return [number for gradient in gradients for number in gradient.flatten().cpu().tolist()]


def train_alone() -> list[float]:
    """Return the gradients of one process that runs the whole batch through all layers."""
    model = nn.Sequential(*make_layers()).to("cuda")
    x, target = (rows.to("cuda") for rows in make_batch())
    nn.functional.mse_loss(model(x), target).backward()
    return gradients_of(model)


def train(rank: Rank, schedule: str) -> list[float]:
    """Run a step in a pipeline of all ranks; gives the gradients of this rank's layers."""
    share = LAYERS // rank.world
    mine = make_layers()[rank.number * share : (rank.number + 1) * share]
    layers = nn.Sequential(*mine).to("cuda")
    stage = PipelineStage(layers, rank.number, rank.world, torch.device("cuda", rank.number))
    run = schedule_of_torch(schedule)(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    x, target = (rows.to("cuda") for rows in make_batch())
    first, last = rank.number == 0, rank.number == rank.world - 1
    run.step(*([x] if first else []), target=target if last else None)
    return gradients_of(layers)


def peak_bytes(rank: Rank, schedule: Name) -> int:
    """Return the peak of a step of a chain of Linear layers, without workspaces."""
    lone = LoneStage(chain(schedule, rank.world).stage(rank.number))
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.reset_peak_memory_stats()
    lone.step()
    workspaces_bytes = 2 * gpu_environment().matmul_workspace_bytes()
    return torch.cuda.max_memory_allocated() - workspaces_bytes


def chain(schedule: Name, ranks: int) -> Pipeline:
    """Run three layers on each rank, and six micro-batches of 32 rows."""
    return Pipeline(schedule, 32, 6, even_stages(3 * ranks, 64, ranks))


def report(rank: Rank) -> None:
    """Train with every schedule, and tell."""
    peaks_bytes = {name: peak_bytes(rank, name) for name in SCHEDULES}
    rank.report(peaks_bytes=peaks_bytes, **{name: train(rank, name) for name in SCHEDULES})


if __name__ == "__main__":
    with join("T4") as this_rank:
        report(this_rank)
