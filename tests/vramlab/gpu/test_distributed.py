"""One rank simulated alone: DDP, ZeRO, FSDP2 and tensor parallelism."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from allocator_invariants import check
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from vramlab import VirtualGPU

World = Callable[..., None]

LAYER_BYTES = 1024 * 1024 * 4
LAYERS = 4
MODEL_BYTES = LAYERS * LAYER_BYTES
INPUT_BYTES = 8 * 1024 * 4
"""A batch of eight rows, and each activation."""


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    """By the rules of PyTorch 1.13, in which cuBLAS takes nothing of the allocator."""
    with VirtualGPU("A100-40GB", torch_version="1.13") as gpu:
        yield gpu
        if dist.is_initialized():
            dist.destroy_process_group()
        check(gpu.machine.devices[0].allocator)


@pytest.fixture
def world() -> World:
    def join(size: int, rank: int = 0) -> None:
        dist.init_process_group("nccl", rank=rank, world_size=size, store=dist.HashStore())

    return join


def linear_layers() -> nn.Sequential:
    layers = (nn.Linear(1024, 1024, bias=False) for _ in range(LAYERS))
    return nn.Sequential(*layers).cuda()


def step(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    model(torch.zeros(8, 1024, device="cuda")).sum().backward()
    if optimizer is not None:
        optimizer.step()


def allocated() -> int:
    return torch.cuda.memory_allocated()


def test_the_process_group_is_ncclss_and_the_world_as_large_as_asked(world: World) -> None:
    world(16_384, rank=11_111)
    assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("nccl", 11_111, 16_384)


def test_collectives_take_what_nccl_would_take(world: World) -> None:
    world(4)
    mine = torch.zeros(1024, device="cuda")  # 4096 B
    dist.all_reduce(mine)
    assert torch.cuda.max_memory_allocated() == 4096
    outputs = [torch.empty_like(mine) for _ in range(4)]
    dist.all_gather(outputs, mine)
    # five tensors, and a flat one as large as the four outputs
    assert (allocated(), torch.cuda.max_memory_allocated()) == (5 * 4096, 9 * 4096)


def test_nobody_knows_what_is_received(world: World) -> None:
    world(4)
    ones = torch.ones(4, device="cuda")
    assert ones.all().item() is True
    dist.all_reduce(ones)
    with pytest.raises(RuntimeError, match="keeps the sizes of tensors"):
        ones.all().item()


@pytest.mark.parametrize("as_view", [False, True])
def test_ddp_doubles_the_gradients_unless_they_are_views_of_its_buckets(
    world: World, as_view: bool
) -> None:
    world(4)
    model = linear_layers()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=as_view)
    # 16 MiB of gradients are fewer than a bucket of 25 MiB
    assert allocated() == 2 * MODEL_BYTES
    step(parallel)
    assert allocated() == (2 if as_view else 3) * MODEL_BYTES
    step(parallel)  # now it knows the order: the first bucket is of 1 MiB, and ends with a layer
    assert allocated() == (2 if as_view else 3) * MODEL_BYTES


def test_zero_1_keeps_a_part_of_the_states(world: World) -> None:
    world(4)
    model = linear_layers()
    parallel = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    step(parallel, optimizer)
    # parameters, gradients, buckets; and Adam's two states of one layer in four
    assert allocated() == 3 * MODEL_BYTES + 2 * MODEL_BYTES // 4


def test_fsdp_keeps_a_part_of_everything(world: World) -> None:
    world(4)
    model = linear_layers()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    assert allocated() == MODEL_BYTES // 4
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    assert allocated() == 4 * MODEL_BYTES // 4  # parameters, gradients, two states


def test_tensor_parallel_splits_columns_then_rows(world: World) -> None:
    world(4)
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    plan |= {"2": ColwiseParallel(), "3": RowwiseParallel()}
    model = parallelize_module(linear_layers(), init_device_mesh("cuda", (4,)), plan)
    assert allocated() == MODEL_BYTES // 4
    x = torch.zeros(8, 1024, device="cuda")
    before_bytes = allocated()
    y = model(x)
    # column-wise layers put out a quarter, row-wise ones the sum over all ranks
    kept_bytes = 2 * (INPUT_BYTES // 4 + INPUT_BYTES)
    assert allocated() - before_bytes == kept_bytes
    y.sum().backward()
    assert all(p.grad is not None and p.grad.device.type == "cuda" for p in model.parameters())


def test_waiting_gives_the_tensor_that_was_received(world: World) -> None:
    """The functional all-reduce makes one tensor of 8 x 1024 numbers; waiting for it makes none."""
    collectives = torch.ops._c10d_functional
    world(4)
    mine = torch.ones(8, 1024, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    received = collectives.wait_tensor(collectives.all_reduce(mine, "sum", "0"))
    assert torch.cuda.max_memory_allocated() == 2 * INPUT_BYTES
    del received
    assert torch.cuda.memory_allocated() == INPUT_BYTES


def test_a_gathered_tensor_may_be_viewed_before_it_has_come(world: World) -> None:
    """With one sequence, cut among the ranks, PyTorch makes a view of it without waiting."""
    world(4)
    styles = ColwiseParallel(), RowwiseParallel(output_layouts=Shard(1))
    plan = dict(zip("01", styles, strict=True))
    layers = linear_layers()[:2]
    model = parallelize_module(layers, init_device_mesh("cuda", (4,)), plan)
    x = torch.zeros(1, 8, 1024, device="cuda", requires_grad=True)
    y = model(x)
    y.sum().backward()
    assert y.shape == (1, 2, 1024)
    assert x.grad is not None
    assert x.grad.device == torch.device("cuda", 0)


def test_shapes_that_dtensor_infers_take_nothing(world: World) -> None:
    """It computes whole tensors with fake ones; only the parts are there."""
    world(8)
    model = linear_layers()
    fully_shard(model)
    torch.cuda.reset_peak_memory_stats()
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    # parameters, gradients, two states, and the roots that foreach takes: five parts of an eighth
    assert torch.cuda.max_memory_allocated() == 5 * MODEL_BYTES // 8


def test_who_has_chosen_a_gpu_is_not_warned_by_a_mesh(world: World) -> None:
    # DeviceMesh warns, and chooses one itself, if CUDA is not initialized; choosing initializes it.
    torch.cuda.set_device(0)
    world(2)
    assert init_device_mesh("cuda", (2,)).size() == 2


def test_an_error_of_a_collective_is_told_as_it_is(world: World) -> None:
    # What logs it asks for NCCL's version.
    world(2)
    with pytest.raises(ValueError, match="trying to initialize the default process group twice"):
        world(2)


def test_nothing_of_it_stays(gpu: VirtualGPU, world: World) -> None:
    gpu.detach()

    def state() -> tuple[object, ...]:
        register = dist.ProcessGroup._register_backend
        return dist.is_nccl_available(), dist.Reducer, register, sys.excepthook

    before = state()
    gpu.attach()
    world(2)
    assert dist.is_nccl_available()
    assert sys.excepthook is not before[-1]
    dist.destroy_process_group()
    gpu.detach()
    assert state() == before
    gpu.attach()


def peak_of_pipeline(schedule: type[ScheduleGPipe | Schedule1F1B], rank: int) -> int:
    """Peak of a step of eight micro-batches on stage `rank` of four, beyond what was there."""
    linear = nn.Linear(1024, 1024, bias=False)
    layer = nn.Sequential(linear, nn.ReLU()).cuda()  # ReLU saves its output, of each micro-batch
    example = torch.zeros(8, 1024, device="cuda")
    received = example.detach().requires_grad_()
    shapes = {"input_args": (received if rank else example,), "output_args": (received,)}
    stage = PipelineStage(layer, rank, 4, torch.device("cuda", 0), **shapes)
    given: dict[int, Any] = {
        0: {"args": (torch.zeros(64, 1024, device="cuda"),)},
        3: {"kwargs": {"target": torch.zeros(64, 1, device="cuda")}},
    }
    call = given.get(rank, {})
    torch.cuda.reset_peak_memory_stats()
    before_bytes = allocated()
    step = schedule(stage, 8, loss_fn=lambda out, _: out.sum()).step
    step(*call.get("args", ()), **call.get("kwargs", {}))
    assert linear.weight.grad is not None
    return torch.cuda.max_memory_allocated() - before_bytes


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_stage_of_a_pipeline_alone_holds_less_under_1f1b(world: World, rank: int) -> None:
    """GPipe has all eight micro-batches in flight on every stage, 1F1B four less the rank."""
    world(4, rank)
    assert peak_of_pipeline(Schedule1F1B, rank) < peak_of_pipeline(ScheduleGPipe, rank)
