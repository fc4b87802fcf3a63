"""Operands on different devices refuse each other, in torch's words and torch's order."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab.gpu import VirtualGPU


def found(common: str, other: str) -> str:
    """TensorIterator's words: the first device that is no CPU, then the first that is another."""
    return (
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{common} and {other}!"
    )


def got(name: str, other: str, common: str, method: str) -> str:
    """The words of the wrappers that torchgen writes: `common` is the first argument's device."""
    return (
        f"Expected all tensors to be on the same device, but got {name} is on {other}, different "
        f"from other tensors on {common} (when checking argument in method {method})"
    )


def mixes() -> dict[str, Callable[[Tensor, Tensor], object]]:
    return {
        "alone": lambda x, y: x + 1,
        "with another": lambda x, y: y @ x,
        "in place": lambda x, y: x.mul_(2),
        "view": lambda x, y: x.view(-1),
        "copied into": lambda x, y: x.copy_(y),
        "copied from": lambda x, y: y.copy_(x),
        "of another dtype": lambda x, y: x.half(),
        "concatenated": lambda x, y: torch.cat([y, x]),
        "alike": lambda x, y: torch.empty_like(x),
        "known values": lambda x, y: torch.where(x > 0, y, y),
    }


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("name", mixes())
def test_tensors_of_two_virtual_gpus_do_not_mix(name: str, values: bool) -> None:
    with VirtualGPU("T4", values=values) as first:
        x = torch.ones(8, 8, device="cuda")
        before = first.machine.devices[0].allocator.allocated_bytes
        with VirtualGPU("A100-40GB", values=values):
            y = torch.ones(8, 8, device="cuda")
            held = torch.cuda.memory_allocated()
            with pytest.raises(RuntimeError, match=r"'T4'\) is used while VirtualGPU\('A100-40GB'"):
                mixes()[name](x, y)
            assert torch.cuda.memory_allocated() == held
            moved = x.cpu().cuda() + y  # over the host, as between two machines
            assert torch.cuda.memory_allocated() == held + 512
            del moved, y
            assert first.machine.devices[0].allocator.allocated_bytes == before
        assert (x + 1).is_cuda  # the first one is awake again


def test_a_backward_pass_belongs_to_the_gpu_of_its_forward_pass() -> None:
    with VirtualGPU("T4"):
        loss = torch.ones(8, 8, device="cuda", requires_grad=True).sin().sum()
        with VirtualGPU("L4"), pytest.raises(RuntimeError, match="copy the tensor with"):
            loss.backward()


def test_tensors_of_a_gpu_that_is_gone_do_not_mix_either() -> None:
    with VirtualGPU("T4"):
        x = torch.ones(8, device="cuda")
    with VirtualGPU("A100-40GB"), pytest.raises(RuntimeError, match="copy the tensor with"):
        x + 1


C, G, H = "cpu", "cuda:0", "cuda:1"

# op(host, gpu 0, gpu 1, host indices) -> what it says
REFUSALS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor, Tensor], object], str]] = {
    "add, host first": (lambda c, g, h, i: c + g, found(G, C)),
    "add, GPU first": (lambda c, g, h, i: g + c, found(G, C)),
    "add, two GPUs": (lambda c, g, h, i: h + g, found(H, G)),
    "add to the host": (lambda c, g, h, i: c.add_(g), found(G, C)),
    "add to a host scalar": (lambda c, g, h, i: torch.tensor(0.0).add_(g.sum()), found(G, C)),
    "a GPU's scalar is no CPU scalar": (lambda c, g, h, i: h * g.sum(), found(H, G)),
    "out=": (lambda c, g, h, i: torch.add(g, g, out=torch.empty(3, 3)), found(G, C)),
    "where": (lambda c, g, h, i: torch.where(c > 0, g, g), found(G, C)),
    "masked_fill": (lambda c, g, h, i: g.masked_fill(c > 0, 0.0), found(G, C)),
    "mse_loss": (lambda c, g, h, i: functional.mse_loss(g, c), found(G, C)),
    "foreach": (lambda c, g, h, i: torch._foreach_add([g], [c]), found(G, C)),
    "mm": (lambda c, g, h, i: g @ c, got("mat2", C, G, "wrapper_CUDA_mm")),
    "mm, host first": (lambda c, g, h, i: c @ g, got("mat2", G, C, "wrapper_CUDA_mm")),
    "mm, two GPUs": (lambda c, g, h, i: h @ g, got("mat2", G, H, "wrapper_CUDA_mm")),
    "mm, out=": (
        lambda c, g, h, i: torch.mm(g, g, out=torch.empty(3, 3)),
        got("self", G, C, "wrapper_CUDA_mm_out_out"),
    ),
    "bmm": (lambda c, g, h, i: torch.bmm(g[None], c[None]), got("mat2", C, G, "wrapper_CUDA_bmm")),
    "input left on the host": (
        lambda c, g, h, i: nn.Linear(3, 3).cuda()(c),
        got("mat1", C, G, "wrapper_CUDA_addmm"),
    ),
    "model left on the host": (
        lambda c, g, h, i: nn.Linear(3, 3)(g),
        got("mat1", G, C, "wrapper_CUDA_addmm"),
    ),
    "tokens left on the host": (
        lambda c, g, h, i: nn.Embedding(3, 3).cuda()(i),
        got("index", C, G, "wrapper_CUDA__index_select"),
    ),
    "embedding left on the host": (
        lambda c, g, h, i: nn.Embedding(3, 3)(i.cuda()),
        got("index", G, C, "wrapper_CUDA__index_select"),
    ),
    "targets left on the host": (
        lambda c, g, h, i: functional.cross_entropy(g, i),
        got("target", C, G, "wrapper_CUDA_nll_loss_forward"),
    ),
    "cat": (lambda c, g, h, i: torch.cat([g, c]), got("tensors", C, G, "wrapper_CUDA_cat")),
    "stack": (lambda c, g, h, i: torch.stack([g, c]), got("tensors", C, G, "wrapper_CUDA_cat")),
    "gather": (
        lambda c, g, h, i: g.gather(0, i[:, None]),
        got("index", C, G, "wrapper_CUDA_gather"),
    ),
    "layer norm": (
        lambda c, g, h, i: nn.LayerNorm(3).cuda()(c),
        got("weight", G, C, "wrapper_CUDA__native_layer_norm"),
    ),
    "convolution, input left on the host": (
        lambda c, g, h, i: nn.Conv2d(1, 1, 1).cuda()(c[None, None]),
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the "
        "same",
    ),
    "convolution, model left on the host": (
        lambda c, g, h, i: nn.Conv2d(1, 1, 1)(g[None, None]),
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the "
        "same",
    ),
    "convolution, bias left on the host": (
        lambda c, g, h, i: functional.conv2d(g[None, None], g[None, None], torch.zeros(1)),
        "Input type (torch.cuda.FloatTensor) and bias type (torch.FloatTensor) should be the same",
    ),
    "lstm, input left on the host": (
        lambda c, g, h, i: nn.LSTM(3, 3).cuda()(c),
        "Input and parameter tensors are not at the same device, found input tensor at cpu and "
        "parameter tensor at cuda:0",
    ),
    "lstm, state left on the host": (
        lambda c, g, h, i: nn.LSTM(3, 3).cuda()(g, (torch.zeros(1, 3), torch.zeros(1, 3))),
        "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and "
        "hidden tensor at cpu",
    ),
    "index of another GPU": (
        lambda c, g, h, i: g[i.cuda(1)],
        "indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
    ),
    "index of the host by a GPU": (
        lambda c, g, h, i: c[i.cuda()],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    "gradient of the wrong kind": (
        lambda c, g, h, i: (g.requires_grad_() * 2).backward(c),
        "invalid gradient at index 0 - expected device cuda:0 but got cpu",
    ),
    "assigned gradient on the host": (
        lambda c, g, h, i: setattr(g, "grad", c),
        "attempting to assign a gradient with device type 'cpu' to a tensor with device type "
        "'cuda'. Please ensure that the gradient and the tensor are on the same device",
    ),
    "assigned gradient on another GPU": (
        lambda c, g, h, i: setattr(g, "grad", h),
        "attempting to assign a gradient located on device with index '1' to a tensor located on "
        "device with index '0'. Please ensure that the gradient and the tensor are on the same "
        "device",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(gpus: VirtualGPU, name: str) -> None:
    operation, words = REFUSALS[name]
    host, first, second = torch.ones(3, 3), torch.ones(3, 3).cuda(0), torch.ones(3, 3).cuda(1)
    before = torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)
    with pytest.raises(RuntimeError, match=re.escape(words)):
        operation(host, first, second, torch.zeros(3, dtype=torch.long))
    assert (torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)) == before


def test_host_tensors_without_values_refuse_alike(gpus: VirtualGPU) -> None:
    large = torch.zeros(8 * 2**20)  # 32 MiB: holds no values
    with pytest.raises(RuntimeError, match=re.escape(found(G, C))):
        large + torch.ones(1, device="cuda")


@pytest.mark.parametrize(
    "operation",
    [
        lambda s, g: s * g,
        lambda s, g: g / s,
        lambda s, g: torch.maximum(g, s),
        lambda s, g: torch.where(g > 0, g, s),
        lambda s, g: g.add_(s),
        lambda s, g: g.masked_fill(g > 0, s),
        lambda s, g: g.fill_(s),
        lambda s, g: torch._foreach_mul([g, g], s)[0],
    ],
)
def test_a_cpu_scalar_goes_with_any_gpu(
    gpus: VirtualGPU, operation: Callable[[Tensor, Tensor], Tensor]
) -> None:
    result = operation(torch.tensor(2.0), torch.ones(3, device="cuda:1"))
    assert result.device == torch.device("cuda:1")
