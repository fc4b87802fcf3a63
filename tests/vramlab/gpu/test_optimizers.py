"""torch.optim on a virtual GPU: what states take, and what a step takes besides, to the byte."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from vramlab.gpu import VirtualGPU

W = 1024 * 64 * 4
"""Bytes of the weight, 256 KiB."""

B = 512
"""Bytes of the bias: 64 float32 = 256 B, rounded."""

P = W + B
"""Both parameters."""

STEPS = 2 * 512
"""A step counter for each parameter, where they are on the GPU."""

HAS_FUSED_ADAGRAD = torch.__version__ >= (2, 12)
"""Before, torch.optim refuses it on CUDA."""


def parameters() -> list[Tensor]:
    made = [nn.Parameter(torch.zeros(1024, 64, device="cuda"))]
    made.append(nn.Parameter(torch.zeros(64, device="cuda")))
    for parameter in made:
        parameter.grad = torch.zeros_like(parameter)
    return made


def growth(make: Callable[[list[Tensor]], Any]) -> tuple[int, int]:
    """Bytes that the first step leaves, and that it has taken at its peak (with the states)."""
    params = parameters()
    before = torch.cuda.memory_allocated()
    optimizer = make(params)
    torch.cuda.reset_peak_memory_stats()
    optimizer.step()
    left = torch.cuda.memory_allocated() - before
    peak = torch.cuda.max_memory_allocated() - before
    for _ in range(2):  # later steps leave nothing
        optimizer.step()
    assert torch.cuda.memory_allocated() - before == left
    return left, peak


# name -> (optimizer and options, bytes of states, bytes at the peak of the first step)
STEPS_TO_THE_BYTE: dict[str, tuple[Callable[[list[Tensor]], Any], int, int]] = {
    # plain SGD: p.add_(grad, alpha=-lr), nothing else
    "sgd": (lambda ps: optim.SGD(ps, lr=0.1), 0, 0),
    "sgd, loop": (lambda ps: optim.SGD(ps, lr=0.1, foreach=False), 0, 0),
    "sgd, fused": (lambda ps: optim.SGD(ps, lr=0.1, fused=True), 0, 0),
    # the momentum buffer is a clone of the gradient
    "sgd, momentum": (lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9), P, P),
    # grad.add(p, alpha=decay) for all parameters at once
    "sgd, decay": (lambda ps: optim.SGD(ps, lr=0.1, weight_decay=0.1), 0, P),
    "sgd, decay, loop": (lambda ps: optim.SGD(ps, lr=0.1, weight_decay=0.1, foreach=False), 0, W),
    # two moments; then sqrt(second moment) for all parameters at once
    "adam": (lambda ps: optim.Adam(ps), 2 * P, 3 * P),
    # in a loop: sqrt(second moment), divided by the bias correction: two of the largest parameter
    "adam, loop": (lambda ps: optim.Adam(ps, foreach=False), 2 * P, 2 * P + 2 * W),
    # one kernel; the step counters are on the GPU
    "adam, fused": (lambda ps: optim.Adam(ps, fused=True), 2 * P + STEPS, 2 * P + STEPS),
    # the largest second moment as well
    "adam, amsgrad": (lambda ps: optim.Adam(ps, amsgrad=True), 3 * P, 4 * P),
    "adamw": (lambda ps: optim.AdamW(ps), 2 * P, 3 * P),
    "adamw, fused": (lambda ps: optim.AdamW(ps, fused=True), 2 * P + STEPS, 2 * P + STEPS),
    "rmsprop": (lambda ps: optim.RMSprop(ps), P, 2 * P),
    "rmsprop, momentum": (lambda ps: optim.RMSprop(ps, momentum=0.9), 2 * P, 3 * P),
    "adagrad": (lambda ps: optim.Adagrad(ps), P, 3 * P),
    "adagrad, fused": (lambda ps: optim.Adagrad(ps, fused=True), P + STEPS, P + STEPS),
    "adamax": (lambda ps: optim.Adamax(ps), 2 * P, 3 * P),
    "nadam": (lambda ps: optim.NAdam(ps), 2 * P, 3 * P),
    "radam": (lambda ps: optim.RAdam(ps), 2 * P, 3 * P),
    "adadelta": (lambda ps: optim.Adadelta(ps), 2 * P, 4 * P),
}


@pytest.mark.parametrize("name", STEPS_TO_THE_BYTE)
def test_a_step_to_the_byte(no_workspaces: VirtualGPU, name: str) -> None:
    make, states, peak = STEPS_TO_THE_BYTE[name]
    if name == "adagrad, fused" and not HAS_FUSED_ADAGRAD:
        with pytest.raises(RuntimeError, match="`fused=True` requires all the params to be"):
            growth(make)
        return
    assert growth(make) == (states, peak)


def test_adafactor_factors_the_second_moment(no_workspaces: VirtualGPU) -> None:
    states, _ = growth(lambda ps: optim.Adafactor(ps))
    # of the weight a row (1024 x 4) and a column (64 x 4 -> 512); of the bias all (256 -> 512)
    assert states == 4096 + 512 + 512


def test_asgd_keeps_averages_and_counters(gpu: VirtualGPU) -> None:
    states, _ = growth(lambda ps: optim.ASGD(ps, foreach=False))
    assert states == P + 2 * 3 * 512  # the average; eta, mu and step of each parameter


def test_muon_keeps_momentum(no_workspaces: VirtualGPU) -> None:
    states, _ = growth(lambda ps: optim.Muon(ps[:1], momentum=0.9))
    assert states == W


OPTIMIZERS = sorted(
    name
    for name, each in vars(optim).items()
    if inspect.isclass(each) and issubclass(each, optim.Optimizer) and each is not optim.Optimizer
)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains(gpu: VirtualGPU, name: str, options: dict[str, bool]) -> None:
    known = inspect.signature(getattr(optim, name).__init__).parameters
    if set(options) - set(known):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            getattr(optim, name)([torch.zeros(1)], **options)
        return
    if name == "SparseAdam":
        layer: nn.Module = nn.Embedding(8, 4, sparse=True).cuda()
        inputs = torch.zeros(2, dtype=torch.long, device="cuda")
    else:
        layer = nn.Linear(8, 4, bias=name != "Muon").cuda()
        inputs = torch.zeros(2, 8, device="cuda")
    optimizer = getattr(optim, name)(layer.parameters(), **options)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = layer(inputs).sum()
        loss.backward()
        return loss

    if name == "Adagrad" and "fused" in options and not HAS_FUSED_ADAGRAD:
        closure()
        with pytest.raises(RuntimeError, match="`fused=True` requires all the params to be"):
            optimizer.step()
        return
    for _ in range(2):
        closure()
        if name == "LBFGS":
            optimizer.step(closure)
        else:
            optimizer.step()
    states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
    assert all(state.device.type == "cuda" for state in states if state.numel() > 1)


def test_parameters_on_two_gpus(gpus: VirtualGPU) -> None:
    # foreach kernels run per device: torch sorts the parameters by device and dtype first
    layers = [nn.Linear(128, 128, bias=False).to(f"cuda:{index}") for index in range(2)]
    layers.append(nn.Linear(128, 128, bias=False).to("cuda:1", torch.float64))
    ps = [layer.weight for layer in layers]
    for p in ps:
        p.grad = torch.zeros_like(p)
    before = [torch.cuda.memory_allocated(index) for index in range(2)]
    for foreach in (True, False):
        optimizer = optim.Adam(ps, foreach=foreach)
        optimizer.step()
        after = [torch.cuda.memory_allocated(index) for index in range(2)]
        one = 128 * 128 * 4
        assert after[0] - before[0] == 2 * one
        assert after[1] - before[1] == 2 * (one + 2 * one)
        del optimizer
    nn.utils.clip_grad_norm_(ps, 1.0)
    nn.utils.clip_grad_value_(ps, 1.0)


def test_a_state_dict_shares_and_loading_copies(gpu: VirtualGPU) -> None:
    ps = parameters()
    optimizer = optim.Adam(ps)
    optimizer.step()
    before = torch.cuda.memory_allocated()
    state = optimizer.state_dict()
    assert torch.cuda.memory_allocated() == before
    other = optim.Adam(ps)
    other.load_state_dict(state)  # tensors of equal dtype and device are taken as they are
    assert torch.cuda.memory_allocated() == before
    saved = copy.deepcopy(state)
    assert torch.cuda.memory_allocated() == before + 2 * P
    del saved
