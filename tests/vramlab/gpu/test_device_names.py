"""A GPU's name in every form and every place that PyTorch takes one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vramlab.gpu import VirtualGPU

CUDA0, CUDA1 = torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("cuda", 0),
        ("cuda:0", 0),
        ("cuda:1", 1),
        (torch.device("cuda"), 0),
        (torch.device("cuda:1"), 1),
        (torch.device("cuda", 1), 1),
        (1, 1),
        (0, 0),
        (torch.device("cuda:1").index, 1),
    ],
)
def test_every_form_of_a_name(gpus: VirtualGPU, name: object, index: int) -> None:
    made = torch.zeros(3, device=name)  # type: ignore[arg-type]
    moved = torch.zeros(3).to(name)  # type: ignore[call-overload]
    by_cuda = torch.zeros(3).cuda(name)  # type: ignore[arg-type]
    for tensor in (made, moved, by_cuda):
        assert tensor.device == torch.device("cuda", index)
    # three tensors of 12 bytes, 512 each, and nothing on the other GPU
    assert torch.cuda.memory_allocated(index) == 3 * 512
    assert torch.cuda.memory_allocated(1 - index) == 0


FACTORIES: dict[str, Callable[..., Tensor]] = {
    "empty": lambda **kw: torch.empty(4, **kw),
    "zeros": lambda **kw: torch.zeros(4, **kw),
    "ones": lambda **kw: torch.ones(4, **kw),
    "full": lambda **kw: torch.full((4,), 2.0, **kw),
    "rand": lambda **kw: torch.rand(4, **kw),
    "randn": lambda **kw: torch.randn(4, **kw),
    "randint": lambda **kw: torch.randint(3, (4,), **kw),
    "randperm": lambda **kw: torch.randperm(4, **kw),
    "arange": lambda **kw: torch.arange(4, **kw),
    "linspace": lambda **kw: torch.linspace(0, 1, 4, **kw),
    "logspace": lambda **kw: torch.logspace(0, 1, 4, **kw),
    "eye": lambda **kw: torch.eye(2, **kw),
    "tril_indices": lambda **kw: torch.tril_indices(3, 3, **kw),
    "triu_indices": lambda **kw: torch.triu_indices(3, 3, **kw),
    "empty_strided": lambda **kw: torch.empty_strided((2, 2), (2, 1), **kw),
    "empty_permuted": lambda **kw: torch.empty_permuted((2, 2), (1, 0), **kw),
    "hann_window": lambda **kw: torch.hann_window(4, **kw),
    "tensor": lambda **kw: torch.tensor([1.0, 2.0], **kw),
    "scalar tensor": lambda **kw: torch.tensor(1.0, **kw),
    "as_tensor of a list": lambda **kw: torch.as_tensor([1.0, 2.0], **kw),
    "as_tensor of numpy": lambda **kw: torch.as_tensor(np.ones(3), **kw),
    "as_tensor of a host tensor": lambda **kw: torch.as_tensor(torch.ones(3, device="cpu"), **kw),
    "asarray": lambda **kw: torch.asarray([1.0, 2.0], **kw),
    "complex": lambda **kw: torch.zeros(2, dtype=torch.complex64, **kw),
    "bool": lambda **kw: torch.ones(4, dtype=torch.bool, **kw),
    "parameter": lambda **kw: nn.Parameter(torch.empty(4, **kw)),
    "layer": lambda **kw: nn.Linear(2, 2, bias=False, **kw).weight,
    "embedding": lambda **kw: nn.Embedding(3, 2, **kw).weight,
    "zeros_like": lambda **kw: torch.zeros_like(torch.zeros(4, device="cpu"), **kw),
    "rand_like": lambda **kw: torch.rand_like(torch.zeros(4, device="cpu"), **kw),
    "empty_like": lambda **kw: torch.empty_like(torch.zeros(4, device="cpu"), **kw),
    "full_like": lambda **kw: torch.full_like(torch.zeros(4, device="cpu"), 2.0, **kw),
    "new_zeros": lambda **kw: torch.zeros(4, device="cpu").new_zeros(3, **kw),
    "new_full": lambda **kw: torch.zeros(4, device="cpu").new_full((3,), 2.0, **kw),
    "new_tensor": lambda **kw: torch.zeros(4, device="cpu").new_tensor([1.0], **kw),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_take_a_device(gpus: VirtualGPU, name: str) -> None:
    made = FACTORIES[name](device="cuda:1")
    assert made.device == CUDA1
    assert torch.cuda.memory_allocated(1) == 512
    assert torch.cuda.memory_allocated(0) == 0


def test_default_device(gpus: VirtualGPU) -> None:
    torch.set_default_device("cuda:1")
    try:
        assert torch.get_default_device() == CUDA1
        assert torch.zeros(3).device == CUDA1
        assert torch.tensor([1, 2]).device == CUDA1
        assert nn.Linear(2, 2).bias.device == CUDA1
        assert torch.zeros(3, device="cpu").device.type == "cpu"
    finally:
        torch.set_default_device(None)
    assert torch.zeros(3).device.type == "cpu"


@pytest.mark.parametrize("values", [False, True])
def test_what_a_backward_pass_makes_without_a_device_is_on_the_cpu(values: bool) -> None:
    class Draws(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            made = torch.rand(()), torch.zeros(3), torch.tensor([1.0]), torch.arange(2)
            assert {each.device.type for each in made} == {"cpu"}
            assert torch.as_tensor(gradient).device == torch.asarray(gradient).device == CUDA0
            with torch.device("cuda"):
                assert torch.rand(()).device == CUDA0
            return gradient

    with VirtualGPU("T4", values=values):
        x = torch.ones(3, device="cuda", requires_grad=True)
        Draws.apply(x).sum().backward()
        assert x.grad is not None


def test_current_device(gpus: VirtualGPU) -> None:
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        assert torch.zeros(3, device="cuda").device == CUDA1
        assert torch.zeros(3).cuda().device == CUDA1
        assert torch.zeros(3).to("cuda").device == CUDA1
        assert torch.zeros(3, device="cuda:0").device == CUDA0
    assert torch.zeros(3, device="cuda").device == CUDA0
    torch.cuda.set_device("cuda:1")
    assert torch.zeros(3, device="cuda").device == CUDA1
    with torch.cuda.device_of(torch.zeros(3, device="cuda:0")):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.current_device() == 1
    with torch.cuda.device(-1):  # none: no change
        assert torch.cuda.current_device() == 1


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # once in a process
def test_what_a_tensor_says_of_itself(gpus: VirtualGPU) -> None:
    there, here = torch.zeros(3, device="cuda:1"), torch.zeros(3)
    assert (there.is_cuda, there.is_cpu, there.is_meta) == (True, False, False)
    assert (here.is_cuda, here.is_cpu, here.is_meta) == (False, True, False)
    assert (there.get_device(), here.get_device()) == (1, -1)
    assert torch.get_device(there) == 1
    assert there.type() == "torch.cuda.FloatTensor"
    assert there.half().type() == "torch.cuda.HalfTensor"
    assert here.type() == "torch.FloatTensor"
    assert there.device.type == "cuda"
    assert there.device.index == 1
    assert str(there.device) == "cuda:1"
    assert there.untyped_storage().device == CUDA1
    assert there.storage().device == CUDA1
    assert there.is_pinned() is False
    assert there.layout == torch.strided
    assert isinstance(there, torch.Tensor)
    assert type(there) is torch.Tensor


def test_tensors_made_from_others_stay_with_them(gpus: VirtualGPU) -> None:
    x = torch.zeros(4, 4, device="cuda:1")
    results = [
        torch.ones_like(x),
        x.new_zeros(3),
        x.new_empty(3),
        x.new_ones(3),
        x.new_full((2,), 1.0),
        x.new_tensor([1.0]),
        x + 1,
        2 * x,
        x @ x,
        x.T,
        x[0],
        x.clone(),
        x.detach(),
        x.to(torch.float16),
        x.half(),
        x.double(),
        x.contiguous(),
        x.sum(),
        x.softmax(-1),
        torch.stack([x, x]),
        torch.cat([x, x]),
        torch.where(x > 0, x, 0.0),
        nn.functional.one_hot(torch.zeros(3, dtype=torch.long, device="cuda:1"), 4),
        copy.deepcopy(x),
        copy.copy(x),
    ]
    assert {each.device for each in results} == {CUDA1}


def test_moving(gpus: VirtualGPU) -> None:
    x = torch.zeros(3)
    on0 = x.cuda()
    assert on0.cuda() is on0
    assert on0.to("cuda") is on0
    assert on0.to("cuda:0") is on0
    assert on0.to(torch.float32) is on0
    assert x.cpu() is x
    assert on0.to("cuda", copy=True) is not on0
    assert on0.to("cuda:1").device == CUDA1
    assert on0.to(torch.zeros(1, device="cuda:1")).device == CUDA1
    assert x.to(torch.zeros(1, dtype=torch.half, device="cuda:1")).type() == "torch.cuda.HalfTensor"
    assert on0.to(x).device.type == "cpu"
    assert on0.to("cuda:1", torch.float16).dtype == torch.float16
    assert on0.to(device="cuda:1", dtype=torch.int64, non_blocking=True).dtype == torch.int64
    assert on0.to("cpu").device.type == "cpu"
    assert on0.cpu().device.type == "cpu"
    assert torch.zeros(2, 3, 4, 4).to("cuda", memory_format=torch.channels_last).stride() == (
        48,
        1,
        12,
        3,
    )


def test_memory_of_moves(gpus: VirtualGPU) -> None:
    on0 = torch.zeros(1024).cuda()  # 4 KiB
    assert torch.cuda.memory_allocated(0) == 4096
    on1 = on0.to("cuda:1")
    assert (torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)) == (4096, 4096)
    on0 = on0.to("cuda:1")
    assert (torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)) == (0, 8192)
    on1 = on1.cpu()
    assert (torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)) == (0, 4096)
    assert on1.device.type == "cpu"


def test_modules_keep_their_parameters_when_moved(gpus: VirtualGPU) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    before = [id(p) for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for move in (
        lambda: model.cuda(),
        lambda: model.to("cuda:1"),
        lambda: model.half(),
        lambda: model.to("cuda:0", torch.float32),
        lambda: model.cpu(),
        lambda: model.to(device="cuda"),
    ):
        assert move() is model
        assert [id(p) for p in model.parameters()] == before
    assert {p.device for p in model.parameters()} == {CUDA0}
    assert {b.device for b in model.buffers()} == {CUDA0}
    assert all(isinstance(p, nn.Parameter) and p.is_leaf for p in model.parameters())
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == before


def test_a_module_on_the_meta_device_takes_nothing_until_to_empty(gpus: VirtualGPU) -> None:
    with torch.device("meta"):
        model = nn.Linear(16, 16)
    assert model.weight.is_meta
    assert model.weight.device.type == "meta"
    assert torch.cuda.memory_allocated() == 0
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        model.to("cuda")
    model.to_empty(device="cuda")
    assert model.weight.device == CUDA0
    assert torch.cuda.memory_allocated() == 16 * 16 * 4 + 512


def test_meta_tensors_stay_what_they_are(gpus: VirtualGPU) -> None:
    x = torch.empty(1024, 1024, device="meta")
    y = (x @ x).relu()
    assert y.is_meta
    assert torch.empty_like(y).is_meta
    assert torch.zeros(3, device="cuda").to("meta").is_meta
    assert torch.zeros(3, device="cuda").to(device=torch.device("meta")).is_meta
    assert torch.zeros_like(torch.zeros(3, device="cuda"), device="meta").is_meta
    assert torch.cuda.memory_allocated() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, device="cuda:2"),
        lambda: torch.zeros(3).cuda(7),
        lambda: torch.zeros(3).to("cuda:2"),
        lambda: torch.cuda.set_device(2),
        lambda: torch.cuda.Stream(2),
    ],
)
def test_a_gpu_that_is_not_there(gpus: VirtualGPU, make: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
        make()


def test_device_count_and_names(gpus: VirtualGPU) -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert torch.cuda.get_device_name(1) == "Tesla T4"
    assert torch.cuda.get_device_name("cuda:0") == "Tesla T4"
    assert torch.cuda.get_device_capability() == (7, 5)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)


def test_a_number_alone_is_a_gpu(gpus: VirtualGPU) -> None:
    assert torch.device(1) == CUDA1
    assert nn.Linear(2, 2).to(1).weight.device == CUDA1
    assert nn.Linear(2, 2).to(device=1).weight.device == CUDA1
    assert nn.Linear(2, 2, device=1).weight.device == CUDA1
    assert nn.Linear(2, 2).cuda(1).weight.device == CUDA1
    assert torch.zeros(3).to(device=1).device == CUDA1
    assert torch.zeros_like(torch.zeros(3), device=1).device == CUDA1
    with torch.device(1):
        assert torch.zeros(3).device == CUDA1


def test_types_of_older_programs(gpus: VirtualGPU) -> None:
    tensor_type = torch.cuda.FloatTensor
    made = tensor_type(2, 3)
    assert (made.device, made.dtype, made.shape) == (CUDA0, torch.float32, (2, 3))
    assert tensor_type([1.0, 2.0]).shape == (2,)
    assert tensor_type(torch.Size([4])).shape == (4,)
    assert tensor_type().shape == (0,)
    assert isinstance(made, torch.cuda.FloatTensor)
    assert not isinstance(made, torch.cuda.HalfTensor)
    assert not isinstance(torch.zeros(3), torch.cuda.FloatTensor)
    for wanted in ("torch.cuda.HalfTensor", torch.cuda.HalfTensor):
        half = torch.zeros(3).type(wanted)
        assert (half.device, half.dtype) == (CUDA0, torch.float16)
    back = half.type(torch.FloatTensor)
    assert (back.device.type, back.dtype) == ("cpu", torch.float32)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_default_tensor_type_of_older_programs(gpus: VirtualGPU) -> None:
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    try:
        made = torch.zeros(3)
        assert (made.device, made.dtype) == (CUDA0, torch.float16)
        # With torch.set_default_device it would be on the host.
        for made in (torch.Tensor([1.0]), torch.Tensor(2, 3), torch.Tensor(np.ones(2))):
            assert (made.device, made.dtype) == (CUDA0, torch.float16)
        assert torch.LongTensor([1]).device.type == "cpu"
        assert nn.Linear(2, 2).weight.device == CUDA0
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    for made in (torch.zeros(3), torch.Tensor([1.0])):
        assert (made.device.type, made.dtype) == ("cpu", torch.float32)


def test_a_shallow_copy_shares_the_storage(gpus: VirtualGPU) -> None:
    for tensor in (
        torch.zeros(1024, device="cuda", requires_grad=True),
        nn.Parameter(torch.zeros(1024, device="cuda")),
        torch.zeros(1024),
    ):
        before = torch.cuda.memory_allocated()
        same = copy.copy(tensor)
        assert type(same) is type(tensor)
        assert same is not tensor
        assert same.requires_grad == tensor.requires_grad
        assert same.data_ptr() == tensor.data_ptr()
        assert torch.cuda.memory_allocated() == before
