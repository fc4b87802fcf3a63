"""The program of test_distributed_processes.py: what each rank measures, with values or without.

Prints a line of JSON per rank: for each way to train, allocated and peak bytes at every stage, and
a number that the computed values come to.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import vramlab

WIDTH, BATCH, LAYERS = 64, 8, 4
Stages = list[list[int]]


def linear_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).cuda()


def batch() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(BATCH, WIDTH, device="cuda")


def measured(stages: Stages) -> None:
    stages.append([torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()])


def train(model: nn.Module, samples: Tensor, stages: Stages) -> list[Tensor]:
    """Two steps; answers the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    measured(stages)
    for _ in range(2):
        model(samples).square().mean().backward()
        measured(stages)
        optimizer.step()
        optimizer.zero_grad()
    measured(stages)
    return list(model.parameters())


def ddp(rank: int, world: int, stages: Stages) -> list[Tensor]:
    samples = batch().chunk(world)[rank].clone()
    return train(DistributedDataParallel(linear_layers()), samples, stages)


def fsdp(rank: int, world: int, stages: Stages) -> list[Tensor]:
    model = linear_layers()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return train(model, batch().chunk(world)[rank].clone(), stages)


def tensor_parallel(rank: int, world: int, stages: Stages) -> list[Tensor]:
    pairs = [ColwiseParallel(), RowwiseParallel()] * (LAYERS // 2)
    plan = {str(number): style for number, style in enumerate(pairs)}
    mesh = init_device_mesh("cuda", (world,))
    return train(parallelize_module(linear_layers(), mesh, plan), batch(), stages)


def pipeline(rank: int, world: int, stages: Stages) -> list[Tensor]:
    share = LAYERS // world
    part = nn.Sequential(*list(linear_layers())[rank * share : (rank + 1) * share])
    stage = PipelineStage(part, rank, world, torch.device("cuda", rank))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, _: out.square().mean())
    samples = batch()
    if rank == 0:
        schedule.step(samples)
    else:
        schedule.step(target=torch.zeros_like(samples))
    return [parameter.grad for parameter in part.parameters() if parameter.grad is not None]


WAYS: dict[str, Callable[[int, int, Stages], list[Tensor]]] = {
    "ddp": ddp,
    "fsdp": fsdp,
    "tensor parallel": tensor_parallel,
    "pipeline": pipeline,
}


def comes_to(tensors: list[Tensor]) -> float:
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return sum(tensor.double().abs().sum().item() for tensor in whole)


def main(has_values: bool, names: list[str]) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with vramlab.VirtualGPU("A100-40GB", count=world, values=has_values):
        torch.cuda.set_device(rank)
        store = None if has_values else dist.HashStore()
        dist.init_process_group("nccl", rank=rank, world_size=world, store=store)
        answer: dict[str, object] = {"rank": rank}
        gc.disable()  # fully_shard's modules are cycles: they would be freed at any moment
        for name in names:
            gc.collect()
            torch.cuda.reset_peak_memory_stats()
            stages: Stages = []
            tensors = WAYS[name](rank, world, stages)
            answer[name] = {
                "stages": stages,
                "value": comes_to(tensors) if has_values else None,
            }
            del tensors
            torch._C._cuda_clearCublasWorkspaces()
        dist.destroy_process_group()
    sys.stdout.write(json.dumps(answer) + "\n")  # at once: ranks share the pipe


if __name__ == "__main__":
    main(sys.argv[1] == "values", sys.argv[2:])
