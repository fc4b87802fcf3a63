"""Several GPUs in one process: DataParallel, models split over GPUs, copies between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from allocator_invariants import check
from torch import nn
from torch.cuda import comm
from torch.nn.parallel import DataParallel, gather, parallel_apply, replicate, scatter

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB


@pytest.fixture
def four() -> Iterator[VirtualGPU]:
    """Four T4s by the rules of PyTorch 1.13, in which cuBLAS takes nothing of the allocator."""
    with VirtualGPU("T4", 4, torch_version="1.13") as gpu:
        yield gpu
        for device in gpu.machine.devices:
            check(device.allocator)


def allocated() -> list[int]:
    return [torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())]


def test_scatter_and_gather(four: VirtualGPU) -> None:
    x = torch.zeros(8, 128, device="cuda")  # 4096 B
    pieces = scatter(x, [0, 1, 2, 3])
    assert [piece.device.index for piece in pieces] == [0, 1, 2, 3]
    assert [piece.shape for piece in pieces] == [(2, 128)] * 4
    # the first piece is a view of x; the others 2 x 128 x 4 = 1024 B
    assert allocated() == [4096, 1024, 1024, 1024]
    whole = gather(pieces, 2)
    assert (whole.device.index, whole.shape) == (2, (8, 128))
    assert allocated() == [4096, 1024, 1024 + 4096, 1024]
    assert comm.gather(pieces, destination="cpu").device.type == "cpu"


def test_broadcast(four: VirtualGPU) -> None:
    x = torch.zeros(1024, device="cuda")
    copies = comm.broadcast(x, [0, 1, 2])
    assert copies[0] is x
    assert allocated() == [4096, 4096, 4096, 0]
    with pytest.raises(RuntimeError, match="must appear as the first on devices list"):
        comm.broadcast(x, [1, 0])


def test_data_parallel(four: VirtualGPU) -> None:
    model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)).cuda()
    parameters = 2 * (128 * 128 * 4 + 512)
    assert allocated() == [parameters, 0, 0, 0]
    parallel = DataParallel(model)
    x = torch.zeros(32, 128, device="cuda")
    out = parallel(x)
    assert (out.shape, out.device.index) == ((32, 128), 0)
    after_forward = allocated()
    # a replica of the parameters on each other GPU (in one flat piece), with its activations
    assert after_forward[1] == after_forward[2] == after_forward[3]
    assert after_forward[1] >= 2 * (128 * 128 + 128) * 4
    out.sum().backward()
    assert all(p.grad is not None and p.grad.device.index == 0 for p in model.parameters())
    del out
    # replicas and their gradients are gone; parameters, gradients and the input stay
    assert allocated() == [2 * parameters + 32 * 128 * 4, 0, 0, 0]


def test_a_replica_travels_in_pieces_of_10_mib(four: VirtualGPU) -> None:
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(4)]  # 4 MiB each
    model = nn.Sequential(*layers).cuda()
    torch.cuda.reset_peak_memory_stats(0)
    replicas = replicate(model, [0, 1])
    # a piece is full when it has reached 10 MiB, after three weights; GPU 0 lays it flat to send it
    assert torch.cuda.max_memory_allocated(0) == (16 + 12) * MIB
    storages = [replica.weight.untyped_storage() for replica in replicas[1]]
    assert [storage.nbytes() for storage in storages] == [12 * MIB] * 3 + [4 * MIB]
    assert allocated()[:2] == [16 * MIB, 16 * MIB]


def test_gradients_are_added_up_on_gpu_0_piece_by_piece(four: VirtualGPU) -> None:
    weights = [[torch.zeros(1024, 1024, device=f"cuda:{gpu}") for _ in range(4)] for gpu in (0, 1)]
    torch.cuda.reset_peak_memory_stats(0)
    sums = comm.reduce_add_coalesced(weights, 0)
    # 16 MiB of gradients, 16 MiB of sums, and the last two gradients of GPU 0 laid flat: two make
    # 8 MiB, and a third would exceed 10 MiB
    assert torch.cuda.max_memory_allocated(0) == (16 + 16 + 8) * MIB
    assert allocated()[:2] == [32 * MIB, 16 * MIB]
    assert [each.device.index for each in sums] == [0] * 4


def test_gradients_that_are_added_up_have_their_values() -> None:
    with VirtualGPU("T4", 3, values=True):
        parts = [[torch.full((4,), float(gpu + 1), device=f"cuda:{gpu}")] for gpu in range(3)]
        (whole,) = comm.reduce_add_coalesced(parts, 0)
        assert whole.cpu().tolist() == [6.0] * 4  # 1 + 2 + 3
        assert parts[0][0].cpu().tolist() == [1.0] * 4


def test_parameters_that_get_no_gradient_in_a_replica_get_zeros(four: VirtualGPU) -> None:
    """As PyTorch does it: a number for each, so that gradients can be added up in flat pieces."""

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.used(x)
            return result

    model = Half().cuda()
    DataParallel(model)(torch.zeros(8, 8, device="cuda")).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(each is not None and each.device.index == 0 for each in gradients)
    assert allocated()[1:] == [0, 0, 0]


def test_the_parts_of_data_parallel(four: VirtualGPU) -> None:
    layer = nn.Linear(8, 8).cuda()
    replicas = replicate(layer, [0, 1, 2, 3])
    assert [r.weight.device.index for r in replicas] == [0, 1, 2, 3]
    inputs = scatter(torch.zeros(8, 8, device="cuda"), [0, 1, 2, 3])
    outputs = parallel_apply(replicas, [(each,) for each in inputs])
    assert [each.device.index for each in outputs] == [0, 1, 2, 3]
    gather(outputs, 0).sum().backward()
    assert layer.weight.grad is not None


def test_a_model_split_over_gpus(four: VirtualGPU) -> None:
    layers = [nn.Linear(256, 256, bias=False).to(f"cuda:{i}") for i in range(4)]
    one = 256 * 256 * 4
    assert allocated() == [one] * 4
    h = torch.zeros(64, 256, device="cuda:0")
    for index, layer in enumerate(layers):
        h = layer(h.to(f"cuda:{index}")).relu()
    assert h.device.index == 3
    h.sum().backward()
    assert [layer.weight.grad.device.index for layer in layers] == [0, 1, 2, 3]  # type: ignore[union-attr]
    del h
    assert allocated() == [2 * one] * 4


def test_copies_between_gpus_take_temporaries_only_when_they_must(four: VirtualGPU) -> None:
    x = torch.zeros(64, 64, device="cuda:0")  # 16 KiB
    torch.cuda.reset_peak_memory_stats(0)
    x.to("cuda:1")
    assert torch.cuda.max_memory_allocated(0) == 16384  # in one piece
    x.to("cuda:1", torch.float16)
    # converted at the source: a float16 copy of 8 KiB there
    assert torch.cuda.max_memory_allocated(0) == 16384 + 8192
    torch.cuda.reset_peak_memory_stats(0)
    x[:, :32].to("cuda:1")
    # made contiguous at the source: 64 x 32 x 4 = 8 KiB
    assert torch.cuda.max_memory_allocated(0) == 16384 + 8192


def test_events_streams_and_devices_go_together(four: VirtualGPU) -> None:
    for index in range(4):
        with torch.cuda.device(index):
            event = torch.cuda.Event()
            event.record()
            assert event.device == torch.device("cuda", index)
    assert torch.cuda.current_device() == 0


def test_what_cpp_makes_is_where_the_operands_are(gpus: VirtualGPU) -> None:
    """A number of `torch.where` is a tensor of 4 B, 512 B allocated, beside as much of the result.

    Before, nothing but copies ran on that GPU, and the last kernel on another.
    """
    mask = torch.ones(4, dtype=torch.bool).to("cuda:1")
    x = torch.ones(4).to("cuda:1")
    torch.ones(1, device="cuda:0")
    before = torch.cuda.memory_allocated(1)
    torch.cuda.reset_peak_memory_stats(1)
    result = torch.where(mask, x, 2.0)
    assert result.device == torch.device("cuda:1")
    assert torch.cuda.max_memory_allocated(1) - before == 2 * 512
    torch.cuda.reset_peak_memory_stats(1)
    of_meta = torch.empty(4, device="meta")
    assert torch.where(of_meta > 0, of_meta, 2.0).is_meta
    assert torch.cuda.max_memory_allocated(1) == torch.cuda.memory_allocated(1)
