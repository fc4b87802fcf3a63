"""What autograd saves and what it frees: saved tensors, gradients, hooks, checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB

K = 4096
"""Bytes of 1024 float32."""


def allocated() -> int:
    return torch.cuda.memory_allocated()


def peak() -> int:
    return torch.cuda.max_memory_allocated()


def leaf(numel: int = 1024) -> Tensor:
    return torch.zeros(numel, device="cuda", requires_grad=True)


def test_ops_keep_what_their_gradient_needs(gpu: VirtualGPU) -> None:
    x = leaf()
    y = x + 1  # keeps nothing
    assert allocated() == 2 * K
    y = y.exp()  # keeps its result; x + 1 is gone
    assert allocated() == 2 * K
    y = y.sin()  # keeps its operand, the exp
    assert allocated() == 3 * K
    y = y * y  # keeps both operands, one tensor
    assert allocated() == 4 * K
    del y
    assert allocated() == K


def test_no_grad_keeps_nothing(gpu: VirtualGPU) -> None:
    x = leaf()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            y = x.exp().sin()
            y = y * y
        assert allocated() == 2 * K
        del y
    frozen = leaf().requires_grad_(False)
    z = frozen.exp().sin()
    assert allocated() == 3 * K
    z = (x.detach().exp() * 2).sin()
    assert allocated() == 3 * K
    del z


def test_backward_frees_the_graph(gpu: VirtualGPU) -> None:
    x = leaf()
    loss = x.exp().sin().sum()
    assert allocated() == 2 * K + 512  # x, exp (sin's operand), loss; sin's result is not needed
    loss.backward()
    assert allocated() == 2 * K + 512  # x, its gradient, loss
    del loss
    assert allocated() == 2 * K


def test_retain_graph_keeps_it(gpu: VirtualGPU) -> None:
    x = leaf()
    loss = x.exp().sin().sum()
    before = allocated()
    loss.backward(retain_graph=True)
    assert allocated() == before + K
    loss.backward()
    assert allocated() == before  # the gradient came, exp went
    del loss


def test_the_first_gradient_is_stolen(gpu: VirtualGPU) -> None:
    x = leaf()
    loss = (x * 2).sum()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    # the gradient of x * 2 becomes x.grad itself: never two of them. The sum's is expanded from 1.
    assert peak() <= 3 * K
    assert allocated() == 2 * K + 512
    (x * 2).sum().backward()  # accumulated in place
    assert allocated() == 2 * K + 512
    del loss


def test_a_shared_gradient_is_cloned(gpu: VirtualGPU) -> None:
    x, y = leaf(), leaf()
    (x + y).backward(torch.ones(1024, device="cuda"))
    # both would take the same incoming tensor: each clones it
    assert allocated() == 4 * K
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.data_ptr() != y.grad.data_ptr()


def test_zero_grad(gpu: VirtualGPU) -> None:
    model = nn.Linear(32, 32, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.weight.grad = torch.zeros_like(model.weight)
    optimizer.zero_grad(set_to_none=False)
    assert allocated() == 2 * K
    optimizer.zero_grad()
    assert allocated() == K
    model.weight.grad = torch.zeros_like(model.weight)
    model.zero_grad()
    assert allocated() == K


def test_a_training_step_to_the_byte(no_workspaces: VirtualGPU) -> None:
    # Linear(128, 256) -> ReLU -> Linear(256, 64), batch 32, float32
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    weights = 128 * 256 * 4 + 256 * 4 + 256 * 64 * 4 + 512  # biases: 1024, and 256 -> 512
    assert allocated() == weights == 198_144
    x = torch.randn(32, 128, device="cuda")
    inputs = 32 * 128 * 4
    assert allocated() == weights + inputs
    y = model(x)
    # the first linear's result goes with the ReLU's, which autograd keeps; the second's is y
    activations = 32 * 256 * 4 + 32 * 64 * 4
    assert allocated() == weights + inputs + activations
    loss = y.pow(2).mean()
    assert allocated() == weights + inputs + activations + 512
    loss.backward()
    assert allocated() == 2 * weights + inputs + 32 * 64 * 4 + 512
    del x, y, loss
    assert allocated() == 2 * weights


def test_hooks_see_gradients_and_may_drop_them(gpu: VirtualGPU) -> None:
    x = leaf()
    seen: list[torch.device] = []
    x.register_hook(lambda grad: seen.append(grad.device))
    x.register_post_accumulate_grad_hook(lambda tensor: setattr(tensor, "grad", None))
    (x * 2).sum().backward()
    assert seen == [torch.device("cuda:0")]
    assert x.grad is None
    assert allocated() == K


def test_double_backward(gpu: VirtualGPU) -> None:
    x = leaf()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    assert g.requires_grad
    g.sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "cuda"
    del g
    assert allocated() == 2 * K


def test_autograd_grad_and_functional(gpu: VirtualGPU) -> None:
    x = leaf(16)
    grads = torch.autograd.grad(x.exp().sum(), [x])
    assert x.grad is None
    assert grads[0].device.type == "cuda"
    jacobian = torch.autograd.functional.jacobian(lambda t: t.exp(), x)
    assert jacobian.shape == (16, 16)
    assert jacobian.device.type == "cuda"
    hessian = torch.autograd.functional.hessian(lambda t: t.exp().sum(), x)
    assert hessian.device.type == "cuda"


class Square(torch.autograd.Function):
    """Keeps its operand, and notes where its backward runs."""

    seen: list[torch.device] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = torch.ones(1, device=x.device)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        Square.seen += [x.device, grad.device, torch.empty(1, device=x.device).device]
        return 2 * x * grad * ctx.scale


def test_custom_functions(gpu: VirtualGPU) -> None:
    Square.seen.clear()
    x = leaf()
    y = Square.apply(x)
    assert allocated() == 2 * K + 512
    y.sum().backward()
    assert set(Square.seen) == {torch.device("cuda:0")}
    del y
    assert allocated() == 2 * K


def test_in_place_on_the_graph(gpu: VirtualGPU) -> None:
    x = leaf()
    y = x * 2  # 4 KiB; then changed in place
    y.add_(1)
    y[:10] = 0
    y.relu_()
    assert allocated() == 2 * K
    y.sum().backward()
    assert x.grad is not None


def blocks(count: int = 4) -> nn.Sequential:
    """Blocks that keep two activations of 64 KiB each: the linear layer's and the tanh's."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Sigmoid()) for _ in range(count))
    ).cuda()


A = 256 * 64 * 4
"""Bytes of one activation of a batch of 256."""


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_keep_only_their_inputs(no_workspaces: VirtualGPU, use_reentrant: bool) -> None:
    model = blocks()
    x = torch.randn(256, 64, device="cuda", requires_grad=True)
    before = allocated()
    y = model(x)
    assert allocated() - before == 4 * 2 * A  # each block keeps tanh's and sigmoid's results
    del y
    y = x
    for block in model:
        y = checkpoint(block, y, use_reentrant=use_reentrant)
    # three inputs of later blocks and the last result; nothing between
    states = allocated() - before
    assert states - 4 * A in range(4 * 8192)  # the CPU's and GPU's states of random numbers
    y.sum().backward()
    assert x.grad is not None
    assert all(p.grad is not None for p in model.parameters())
    del y
    parameters = 4 * (64 * 64 * 4 + 512)
    assert allocated() == 2 * (parameters + A)  # with gradients


def test_checkpoints_with_dropout_restore_the_generators(gpu: VirtualGPU) -> None:
    block = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).cuda()
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    for use_reentrant in (True, False):
        checkpoint(block, x, use_reentrant=use_reentrant, preserve_rng_state=True).sum().backward()
    assert x.grad is not None


def test_saved_tensors_hooks(gpu: VirtualGPU) -> None:
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.half()

    x = leaf()
    with saved_tensors_hooks(pack, lambda tensor: tensor.float()):
        y = x.exp()
    assert [t.device.type for t in packed] == ["cuda"]
    packed.clear()
    assert allocated() == 2 * K + K // 2  # the result, and half of it kept in its place
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("pin_memory", [True, False])
def test_save_on_cpu(gpu: VirtualGPU, pin_memory: bool) -> None:
    x = leaf(MIB)
    with save_on_cpu(pin_memory=pin_memory):
        y = x.exp().exp().exp()
    assert allocated() == 2 * 4 * MIB  # x and y; what exp keeps is on the host
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "cuda"


def test_a_gradient_crosses_to_the_host_and_back(gpu: VirtualGPU) -> None:
    weight = torch.zeros(1024, requires_grad=True)
    (weight.cuda() * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.device.type == "cpu"
    assert allocated() == 0
    on_gpu = leaf()
    (on_gpu.cpu() * 2).sum().backward()
    assert on_gpu.grad is not None
    assert on_gpu.grad.device.type == "cuda"
    assert allocated() == 2 * K


def test_gradients_of_large_host_tensors_hold_no_values(gpu: VirtualGPU) -> None:
    weight = torch.zeros(8 * MIB, requires_grad=True)  # 32 MiB
    (weight.cuda() * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.device.type == "cpu"
    assert "no values" in repr(weight.grad)
    small = torch.zeros(2, requires_grad=True)
    (small.cuda() * 2).sum().backward()
    assert small.grad is not None
    assert small.grad.tolist() == [2, 2]  # a host tensor with values has a gradient with values
    unknown = torch.zeros(2, requires_grad=True)
    (unknown.cuda() * torch.rand(2, device="cuda")).sum().backward()
    assert unknown.grad is not None
    assert unknown.grad.isnan().all()
