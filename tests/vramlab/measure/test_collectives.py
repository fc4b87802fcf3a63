"""Collectives are seen whichever code calls them, with the whole tensor and the group's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_reduce, broadcast
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from vramlab import VirtualGPU
from vramlab.measure import record_collectives
from vramlab.measure.collectives import Collective, Collectives
from vramlab.units import MIB

RANKS = 4


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with VirtualGPU("T4"):
        dist.init_process_group("nccl", rank=0, world_size=RANKS, store=dist.HashStore())
        yield
        dist.destroy_process_group()


CALLS: dict[str, tuple[Callable[[Tensor], object], Collective]] = {
    "all_reduce": (dist.all_reduce, Collective("all-reduce", 4096, RANKS)),
    "broadcast": (lambda x: dist.broadcast(x, 0), Collective("broadcast", 4096, RANKS)),
    "reduce": (lambda x: dist.reduce(x, 0), Collective("reduce", 4096, RANKS)),
    "all_gather": (
        lambda x: dist.all_gather([torch.empty_like(x) for _ in range(RANKS)], x),
        Collective("all-gather", 4 * 4096, RANKS),
    ),
    "reduce_scatter": (
        lambda x: dist.reduce_scatter(torch.empty(256, device="cuda"), list(x.chunk(RANKS))),
        Collective("reduce-scatter", 4096, RANKS),
    ),
    "all_to_all": (
        lambda x: dist.all_to_all_single(torch.empty_like(x), x),
        Collective("all-to-all", 4096, RANKS),
    ),
    "functional all_reduce": (
        lambda x: all_reduce(x, "sum", dist.group.WORLD),
        Collective("all-reduce", 4096, RANKS),
    ),
    "functional broadcast": (
        lambda x: broadcast(x, 0, dist.group.WORLD),
        Collective("broadcast", 4096, RANKS),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_collective(name: str) -> None:
    call, expected = CALLS[name]
    x = torch.zeros(1024, device="cuda")  # 4096 B
    with record_collectives() as collectives:
        call(x)
    assert collectives.calls == [expected]


def test_those_of_ddps_reducer_in_cpp() -> None:
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(3)]  # 4 MiB each
    parallel = DistributedDataParallel(nn.Sequential(*layers).cuda(), bucket_cap_mb=8)
    sizes_mib = []
    for _ in range(2):
        with record_collectives() as collectives:
            parallel(torch.zeros(2, 1024, device="cuda")).sum().backward()
        sizes_mib.append([call.whole_bytes // MIB for call in collectives.of("all-reduce")])
    # everything at once; then, in the order in which gradients come, buckets full from 8 MiB on
    assert sizes_mib == [[12], [8, 4]]
    # 2 (4 - 1) / 4 of 12 MiB, and what the ranks tell each other about the new buckets
    told_bytes = sum(call.whole_bytes for call in collectives.of("broadcast"))
    assert told_bytes < 1024
    assert collectives.sent_bytes == 18 * MIB + told_bytes


def test_those_of_fsdp() -> None:
    model = nn.Linear(1024, 1024, bias=False).cuda()
    fully_shard(model, mesh=init_device_mesh("cuda", (RANKS,)))
    with record_collectives() as collectives:
        model(torch.zeros(2, 1024, device="cuda")).sum().backward()
    # gathered for forward (and kept for backward, as it is the root), reduced and scattered after
    assert [(call.kind, call.whole_bytes) for call in collectives.calls] == [
        ("all-gather", 4 * MIB),
        ("reduce-scatter", 4 * MIB),
    ]


def test_the_table() -> None:
    table = Collectives([Collective("all-reduce", 4 * MIB, 4)]).table()
    assert "6.0000 MiB" in str(table)  # 2 x 3 / 4 of 4 MiB
