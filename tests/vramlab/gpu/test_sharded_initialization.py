"""DTensors are initialized where they are, as FSDP2 begins: `to_empty`, then `reset_parameters`."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from vramlab.gpu import VirtualGPU


@pytest.mark.parametrize(
    "fill",
    [
        nn.init.kaiming_uniform_,
        nn.init.trunc_normal_,
        nn.init.xavier_normal_,
        torch.Tensor.normal_,
        torch.Tensor.uniform_,
    ],
    ids=lambda fill: fill.__name__,
)
def test_parts_of_a_dtensor_are_filled_with_random_numbers(fill: object) -> None:
    from torch.distributed.fsdp import fully_shard

    with VirtualGPU("T4", on_value="nan"):
        torch.cuda.set_device(0)
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=4)  # type: ignore[attr-defined]
        try:
            with torch.device("meta"):
                model = nn.Linear(512, 512, bias=False)
            fully_shard(model)
            model.to_empty(device="cuda")
            allocated = torch.cuda.memory_allocated()
            weight = model.weight
            with torch.no_grad():
                assert fill(weight) is weight  # type: ignore[operator]
            model.reset_parameters()
            assert torch.cuda.memory_allocated() == allocated == 512 // 4 * 512 * 4
        finally:
            dist.destroy_process_group()
