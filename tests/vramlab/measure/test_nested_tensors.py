"""The walk over nested values, and over tensors that wrap others."""

from __future__ import annotations

import torch
from torch import nn

import vramlab
from vramlab.measure import record_saved_tensors
from vramlab.measure.tensors import named_tensors, plain_tensors


def names(value: object, **how: bool) -> list[str]:
    return [name for name, _ in named_tensors(value, "x", **how)]


def test_names_say_where() -> None:
    one = torch.zeros(1)
    assert names(one) == ["x"]
    assert names([one, {"a": (one,), "b": 3}]) == ["x[0]", "x[1].a[0]"]
    assert names([one, {"a": (one,)}], number_alone=False) == ["x[0]", "x[1].a"]


def test_a_sparse_tensor_stands_for_its_parts() -> None:
    sparse = torch.eye(3).to_sparse()
    assert [tuple(tensor.shape) for tensor in plain_tensors(sparse)] == [(2, 3), (3,)]


def test_a_divided_tensor_stands_for_its_part_and_not_for_its_mesh() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    with vramlab.VirtualGPU("T4"):
        dist.init_process_group("nccl", rank=0, world_size=2, store=dist.HashStore())
        whole = torch.zeros(8, 4, device="cuda")
        weight = distribute_tensor(whole, init_device_mesh("cuda", (2,)), [Shard(0)])
        assert [tuple(tensor.shape) for tensor in plain_tensors(weight)] == [(4, 4)]
        with record_saved_tensors() as recording:
            loss = nn.Parameter(weight).square().sum()
        saved = recording.saved(loss)
        dist.destroy_process_group()
    assert saved.kept_bytes == 4 * 4 * 4  # this rank's half
