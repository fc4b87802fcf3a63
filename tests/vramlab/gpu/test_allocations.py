"""What each tensor operation takes: outputs are allocated, views and in-place ops are not."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB

KIB4 = 4096
"""1024 float32: 4 KiB, a multiple of 512."""


def allocated(device: int = 0) -> int:
    return torch.cuda.memory_allocated(device)


def peak() -> int:
    return torch.cuda.max_memory_allocated()


def x1024(**options: object) -> Tensor:
    return torch.zeros(1024, device="cuda", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numel", "dtype", "size_bytes"),
    [
        (0, torch.float32, 0),  # nothing is asked for
        (1, torch.float32, 512),  # 4 B
        (128, torch.float32, 512),  # 512 B
        (129, torch.float32, 1024),  # 516 B
        (128, torch.float64, 1024),
        (257, torch.float16, 1024),  # 514 B
        (512, torch.bool, 512),
        (513, torch.uint8, 1024),
        (64, torch.complex64, 512),
        (65, torch.complex64, 1024),
        (100, torch.bfloat16, 512),
        (1000, torch.float8_e4m3fn, 1024),
    ],
)
def test_sizes_are_rounded_to_512(
    gpu: VirtualGPU, numel: int, dtype: torch.dtype, size_bytes: int
) -> None:
    x = torch.empty(numel, dtype=dtype, device="cuda")
    assert allocated() == size_bytes
    del x
    assert allocated() == 0


VIEWS: dict[str, Callable[[Tensor], object]] = {
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(64, 16),
    "flatten": lambda x: x.flatten(),
    "slice": lambda x: x[3:7],
    "select": lambda x: x[0],
    "ellipsis": lambda x: x[..., None],
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x[None].expand(10, -1, -1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "chunk": lambda x: x.chunk(4),
    "split": lambda x: x.split(8),
    "unbind": lambda x: x.unbind(),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 1)),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "contiguous": lambda x: x.contiguous(),
    "to the same": lambda x: x.to("cuda").float(),
    "view of another dtype": lambda x: x.view(torch.int32),
    "view_as": lambda x: x.view_as(x),
    "alias": lambda x: torch.ops.aten.alias(x),
    "parameter": lambda x: nn.Parameter(x),
    "broadcast_to": lambda x: x.broadcast_to(5, 32, 32),
    "T": lambda x: x.T,
    "movedim": lambda x: x.movedim(0, 1),
    "shape": lambda x: (x.shape, x.stride(), x.numel(), x.is_contiguous(), x.storage_offset()),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_take_nothing(gpu: VirtualGPU, view: Callable[[Tensor], object]) -> None:
    x = torch.zeros(32, 32, device="cuda")
    result = view(x)
    assert peak() == KIB4
    del x
    gone = KIB4 if isinstance(result, tuple) and isinstance(result[0], torch.Size) else 0
    assert allocated() == KIB4 - gone  # a view keeps the whole storage


IN_PLACE: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "+=": lambda x: x.__iadd__(x),
    "mul_": lambda x: x.mul_(x),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3),
    "clamp_": lambda x: x.clamp_(0, 1),
    "relu_": lambda x: x.relu_(),
    "sigmoid_": lambda x: x.sigmoid_(),
    "normal_": lambda x: x.normal_(),
    "uniform_": lambda x: x.uniform_(),
    "copy_": lambda x: x.copy_(x.detach()),
    "slice assignment": lambda x: x.__setitem__(slice(0, 3), 1.0),
    "assignment of a slice": lambda x: x.__setitem__(slice(0, 3), x[3:6]),
    "assignment of a number": lambda x: x.__setitem__(Ellipsis, True),
    "masked_fill_": lambda x: x.masked_fill_(torch.ones((), dtype=torch.bool), 0.0),
    "transpose_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "init": lambda x: nn.init.kaiming_uniform_(x.view(32, 32)),
    "requires_grad_": lambda x: x.requires_grad_(),
    "foreach": lambda x: torch._foreach_add_([x], 1.0),
}


@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
def test_ops_in_place_take_nothing(gpu: VirtualGPU, change: Callable[[Tensor], object]) -> None:
    x = x1024()
    change(x)
    assert peak() == KIB4


# op(x), x of (32, 32) float32 = 4096 B -> bytes of its outputs, each rounded to 512
OUTPUTS: dict[str, tuple[Callable[[Tensor], object], int]] = {
    "add": (lambda x: x + 1, 4096),
    "add of two": (lambda x: x + x, 4096),
    "broadcast": (lambda x: x[:, None] * x[None], 32 * 4096),
    "clone": (lambda x: x.clone(), 4096),
    "clone of a slice": (lambda x: x[:4].clone(), 4 * 128),
    "contiguous of a transposed": (lambda x: x.t().contiguous(), 4096),
    "reshape that must copy": (lambda x: x.t().reshape(-1), 4096),
    "half": (lambda x: x.half(), 2048),
    "double": (lambda x: x.double(), 8192),
    "bool": (lambda x: x > 0, 1024),
    "long": (lambda x: x.long(), 8192),
    "cat": (lambda x: torch.cat([x, x, x]), 3 * 4096),
    "stack": (lambda x: torch.stack([x, x]), 2 * 4096),
    "repeat": (lambda x: x.repeat(2, 2), 4 * 4096),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 0), 2 * 4096),
    "sum of columns": (lambda x: x.sum(0), 512),
    "argmax": (lambda x: x.argmax(1), 512),
    "max": (lambda x: x.max(1), 2 * 512),
    "topk": (lambda x: x.topk(4), 512 + 1024),  # 32 x 4 x (4 B and 8 B)
    "sort": (lambda x: x.sort(), 4096 + 8192),
    "cumsum": (lambda x: x.cumsum(0), 4096),
    "softmax": (lambda x: x.softmax(-1), 4096),
    "softmax in float64": (lambda x: x.softmax(-1, dtype=torch.float64), 8192),
    "gather": (lambda x: x.gather(1, torch.zeros(32, 1, dtype=torch.long, device="cuda")), 512),
    "index by a list": (lambda x: x[[0, 3]], 512),
    "tril": (lambda x: x.tril(), 4096),
    "where": (lambda x: torch.where(x > 0, x, 0.0), 4096),
    "one_hot": (
        lambda x: nn.functional.one_hot(torch.zeros(8, dtype=torch.long, device="cuda"), 16),
        8 * 16 * 8,
    ),
    "relu": (lambda x: x.relu(), 4096),
    "dropout off": (lambda x: nn.functional.dropout(x, 0.5, training=False), 0),
    "dropout of 0": (lambda x: nn.functional.dropout(x, 0.0), 0),
    "dropout": (lambda x: nn.functional.dropout(x, 0.5), 4096),  # its mask is not kept: no grad
    "ones_like": (lambda x: torch.ones_like(x, dtype=torch.half), 2048),
    "new_zeros": (lambda x: x.new_zeros(7), 512),
    "outer": (lambda x: torch.outer(x[0], x[0]), 4096),
    "meshgrid": (lambda x: torch.meshgrid(x[0], x[0], indexing="ij"), 0),
    "deepcopy": (lambda x: copy.deepcopy(x), 4096),
    "pad": (lambda x: nn.functional.pad(x, (0, 32)), 8192),
    "complex": (lambda x: torch.complex(x, x), 8192),
    "real": (lambda x: torch.view_as_real(torch.complex(x, x)), 8192),
    "channels_last": (
        lambda x: x.view(1, 4, 16, 16).contiguous(memory_format=torch.channels_last),
        4096,
    ),
    "unfold, then copy": (lambda x: x.unfold(1, 4, 4).contiguous(), 0),  # the same layout
    "split": (lambda x: [part.clone() for part in x.split(16)], 2 * 2048),
    "arange": (lambda x: torch.arange(65, device="cuda"), 1024),
    "randperm": (lambda x: torch.randperm(64, device="cuda"), 512),
    "norm": (lambda x: x.norm(), 512),
    "roll": (lambda x: x.roll(1), 4096),
    "flip": (lambda x: x.flip(0), 4096),
    "interpolate": (
        lambda x: nn.functional.interpolate(x[None, None], scale_factor=2.0),
        4 * 4096,
    ),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x), 4096),
    "matmul": (lambda x: x @ x, 4096),
    "batched matmul": (lambda x: x.view(4, 8, 32) @ x, 4096),
    "empty": (lambda x: torch.empty(0, device="cuda"), 0),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(no_workspaces: VirtualGPU, name: str) -> None:
    operation, size_bytes = OUTPUTS[name]
    x = torch.zeros(32, 32, device="cuda")
    result = operation(x)
    assert allocated() - 4096 == size_bytes
    del result
    assert allocated() == 4096


def test_numbers_go_where_a_mask_says(gpu: VirtualGPU) -> None:
    x = torch.zeros(32, 32, device="cuda")
    mask = x > 0  # 1024 B
    torch.cuda.reset_peak_memory_stats()
    x[mask] = 1.0
    x[mask[0]] = 2.0  # rows
    x[:, mask[0]] = 3.0
    assert peak() == 4096 + 1024


def test_indices_are_made_on_the_gpu(gpu: VirtualGPU) -> None:
    x = torch.zeros(32, 32, device="cuda")
    x[[0, 3, 5]]
    # the list as 3 int64 = 24 B -> 512, and the result 3 x 32 x 4 = 384 B -> 512
    assert (allocated(), peak()) == (4096, 4096 + 512 + 512)
    x[torch.tensor([0, 3, 5])]
    assert (allocated(), peak()) == (4096, 4096 + 512 + 512)
    assert x[torch.tensor([True, False] * 16)].shape == (16, 32)


def test_results_that_nobody_keeps(gpu: VirtualGPU) -> None:
    x = x1024()
    (x + 1) * 2  # the sum and the product are there together
    assert (allocated(), peak()) == (KIB4, 3 * KIB4)
    y = ((x + 1) * 2).exp()  # each result is freed once the next is there
    assert (allocated(), peak()) == (2 * KIB4, 3 * KIB4)
    del y


def test_a_small_view_keeps_a_large_storage(gpu: VirtualGPU) -> None:
    first = torch.zeros(MIB, device="cuda")[:1]
    assert allocated() == 4 * MIB
    first = first.clone()
    assert allocated() == 512


def test_out_takes_what_is_given(gpu: VirtualGPU) -> None:
    x, out = x1024(), x1024()
    torch.add(x, x, out=out)
    assert peak() == 2 * KIB4
    empty = torch.empty(0, device="cuda")
    torch.add(x, x, out=empty)  # resized: now it has a storage
    assert allocated() == 3 * KIB4
    assert empty.shape == (1024,)
    values, indices = torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.long, device="cuda")
    torch.max(x.view(32, 32), 1, out=(values, indices))
    assert allocated() == 3 * KIB4 + 2 * 512


def test_resize_grows_and_never_shrinks(gpu: VirtualGPU) -> None:
    x = torch.empty(10, device="cuda")
    x.resize_(1024)
    assert (allocated(), peak()) == (KIB4, KIB4 + 512)  # the new block, then the old one goes
    x.resize_(10)
    assert allocated() == KIB4
    x.resize_(1024)
    assert (allocated(), x.untyped_storage().nbytes()) == (KIB4, KIB4)
    y = torch.empty(0, device="cuda")
    y.resize_as_(x)
    assert allocated() == 2 * KIB4


def test_set_shares_a_storage(gpu: VirtualGPU) -> None:
    x, y = x1024(), x1024()
    y.set_(x)
    assert allocated() == KIB4
    y.set_()
    assert (y.numel(), allocated()) == (0, KIB4)
    y.set_(x.untyped_storage(), 0, (4,), (1,))
    del x
    assert allocated() == KIB4


def test_a_storage_can_be_emptied_and_refilled(gpu: VirtualGPU) -> None:
    # as FSDP does with parameters that are not needed now
    x = x1024()
    storage = x.untyped_storage()
    storage.resize_(0)
    assert (allocated(), x.shape) == (0, (1024,))
    storage.resize_(KIB4)
    assert (allocated(), storage.nbytes()) == (KIB4, KIB4)
    assert x.data_ptr() == storage.data_ptr() != 0


def test_data_swaps_storages(gpu: VirtualGPU) -> None:
    x, y = x1024(), torch.zeros(2048, device="cuda")
    x.data = y
    assert (allocated(), x.shape) == (2 * KIB4, (2048,))
    x.data = torch.empty(0, device="cuda")
    del y
    assert allocated() == 0


def test_data_between_host_and_gpu(gpu: VirtualGPU) -> None:
    parameter = nn.Parameter(torch.zeros(1024))
    name = id(parameter)
    parameter.data = parameter.data.cuda()
    assert (allocated(), parameter.device.type, id(parameter)) == (KIB4, "cuda", name)
    parameter.data = parameter.data.cpu()
    assert (allocated(), parameter.device.type, id(parameter)) == (0, "cpu", name)


def test_addresses(gpu: VirtualGPU) -> None:
    x, y = torch.zeros(256, device="cuda"), torch.zeros(256, device="cuda")
    assert y.data_ptr() - x.data_ptr() == 1024  # neighbours in one segment of 2 MiB
    assert x[10:].data_ptr() == x.data_ptr() + 40
    assert x.untyped_storage().data_ptr() == x[10:].untyped_storage().data_ptr() == x.data_ptr()
    first = x.data_ptr()
    del x
    assert torch.zeros(256, device="cuda").data_ptr() == first  # best fit: the block just freed
    assert torch.empty(0, device="cuda").data_ptr() == 0


def test_a_model_takes_its_parameters_and_buffers(gpu: VirtualGPU) -> None:
    model = nn.Sequential(nn.Linear(100, 30), nn.BatchNorm1d(30), nn.Embedding(7, 9)).cuda()
    # 3000 x 4 -> 12288; 30 x 4 -> 512; norm: weight, bias, mean, variance 4 x 512, the counter of
    # batches 8 B -> 512; 63 x 4 -> 512
    assert allocated() == 12288 + 512 + 4 * 512 + 512 + 512
    model.half()
    # 6000 -> 6144; the rest is below 512 as before
    assert allocated() == 6144 + 512 + 4 * 512 + 512 + 512
    model.cpu()
    assert allocated() == 0


def test_tied_parameters_are_one(gpu: VirtualGPU) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(64, 16)
            self.head = nn.Linear(16, 64, bias=False)
            self.head.weight = self.embed.weight

    model = Tied().cuda()
    assert model.head.weight is model.embed.weight
    assert allocated() == 64 * 16 * 4
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embed.weight
    assert allocated() == 2 * 64 * 16 * 4


def test_state_dicts_share_and_loading_copies(gpu: VirtualGPU) -> None:
    model, other = nn.Linear(32, 32).cuda(), nn.Linear(32, 32).cuda()
    one = 32 * 32 * 4 + 512
    state = model.state_dict()
    assert allocated() == 2 * one
    other.load_state_dict(state)
    assert peak() == 2 * one
    other.load_state_dict(state, assign=True)
    assert allocated() == one


def test_an_exception_frees_what_it_unwinds(gpu: VirtualGPU) -> None:
    def fails() -> None:
        temporary = x1024()
        raise ValueError(temporary.shape)

    with pytest.raises(ValueError, match="1024"):
        fails()
    assert allocated() == 0


def test_sum_of_live_storages(gpu: VirtualGPU) -> None:
    sizes = [1, 100, 128, 129, 5000, 70_000, 200_000]
    kept = [torch.empty(n, device="cuda") for n in sizes]
    assert allocated() == sum(math.ceil(4 * n / 512) * 512 for n in sizes)
    assert torch.cuda.memory_stats()["requested_bytes.all.current"] == sum(4 * n for n in sizes)
    kept.clear()


def test_a_kernel_that_fails_gives_its_output_back_at_once() -> None:
    """As C++ does on its way out, though the exception is kept: cuDNN has no engine."""
    with VirtualGPU("T4"):
        x = torch.zeros(16, 96, 56, 56, device="cuda", dtype=torch.bfloat16)
        x = x.to(memory_format=torch.channels_last)
        weight = torch.zeros(96, 1, 7, 7, device="cuda", dtype=torch.bfloat16)
        before = allocated()
        with pytest.raises(RuntimeError, match="unable to find an engine") as caught:
            nn.functional.conv2d(x, weight, padding=3, groups=96)
        assert caught.value.__traceback__ is not None
        assert allocated() == before
        assert peak() == before + x.nbytes
