"""Parameters, buffers, gradients and optimizer states are recognised in real training programs."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch import nn

from vramlab.gpu import VirtualGPU
from vramlab.measure import Category
from vramlab.report.evidence.attribution import category_of
from vramlab.report.evidence.peak import LiveBlocks
from vramlab.report.evidence.watch import Watch

SIDE = 64
WEIGHT_BYTES = SIDE * SIDE * 4  # a square float32 matrix: 16 KiB


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Watch(gpu := VirtualGPU("A100-40GB", torch_version="1.13")) as watch, gpu:
        yield watch


def linear() -> nn.Linear:
    return nn.Linear(SIDE, SIDE, bias=False)


def batch() -> torch.Tensor:
    return torch.empty(SIDE, SIDE, device="cuda")


def weights(watch: Watch, live: LiveBlocks | None = None) -> dict[str, int]:
    """How many blocks of the size of a weight each category has."""
    blocks = (live or watch.devices[0].now()).blocks
    return dict(
        Counter(str(category_of(block)) for block in blocks if block.size_bytes == WEIGHT_BYTES)
    )


def test_modules_on_the_gpu_by_any_way_are_parameters(watch: Watch) -> None:
    kept = [linear().cuda(), linear().to("cuda"), nn.Linear(SIDE, SIDE, bias=False, device="cuda")]
    assert weights(watch) == {"parameters": 3}
    kept.append(copy.deepcopy(kept[0]))
    stack = nn.Sequential(*kept)
    stack(batch())
    watch._owners.look_everywhere()
    assert weights(watch)["parameters"] == 4


class KeepsCopies(torch.optim.SGD):
    """Updates copies of its parameters, which it keeps itself."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, 0.1)
        self.copies = [p.detach().clone() for p in self.param_groups[0]["params"]]


def test_copies_of_an_optimizer_are_its_states(watch: Watch) -> None:
    model = nn.Sequential(linear(), linear()).cuda()
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizers = KeepsCopies(model.parameters()), torch.optim.SGD(masters, 0.1)
    for p in masters:
        p.grad = torch.zeros_like(p)
    for optimizer in optimizers:
        optimizer.step()
    # of 2 weights: the weights, 2 copies of each by the optimizers, and gradients of one copy
    assert weights(watch) == {"parameters": 2, "optimizer states": 4, "gradients": 2}


def test_what_is_trained_without_a_module_is_a_parameter(watch: Watch) -> None:
    frozen, image = linear().cuda(), torch.ones(SIDE * 2, SIDE, device="cuda", requires_grad=True)
    image.grad = torch.zeros_like(image)
    optimizer = torch.optim.SGD([image], 0.1, momentum=0.9)
    optimizer.step()
    categories = Counter(str(category_of(block)) for block in watch.devices[0].now().blocks)
    assert frozen.weight.is_cuda
    assert categories == {"parameters": 2, "gradients": 1, "optimizer states": 1}


def test_a_training_step_without_an_optimizer(watch: Watch) -> None:
    model = linear().cuda()
    x = batch()
    model(x).sum().backward()
    assert weights(watch) == {"parameters": 1, "inputs": 1, "gradients": 1}


def test_parameters_without_a_module_belong_to_the_optimizer(watch: Watch) -> None:
    weight = torch.zeros(SIDE, SIDE, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    (weight * 2).sum().backward()
    optimizer.step()
    assert weights(watch) == {"parameters": 1, "gradients": 1, "optimizer states": 2}


def test_gradients_that_are_gone_after_each_step_were_gradients(watch: Watch) -> None:
    model = linear().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step_at_once(parameter: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    model.weight.register_post_accumulate_grad_hook(step_at_once)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.extend(weights(watch)))
    model(batch()).sum().backward()
    assert model.weight.grad is None
    assert "gradients" in seen


def test_activations_are_what_the_backward_pass_waits_for(watch: Watch) -> None:
    model = nn.Sequential(linear(), nn.ReLU(), linear()).cuda()
    y = model(batch())
    loss = y.sum()
    # The graph has not been read yet: it is when the backward pass begins, or at the end.
    assert weights(watch) == {"parameters": 2, "inputs": 1, "temporaries": 2}
    live = watch.devices[0].now()
    del y
    loss.backward()
    # The result of relu was waited for, y was not. (The first product was not saved: relu's
    # backward needs its result only.)
    expected = {"parameters": 2, "inputs": 1, "activations": 1, "temporaries": 1}
    assert weights(watch, live) == expected
    assert weights(watch)["gradients"] == 2


def test_optimizer_states_are_known_in_the_middle_of_the_first_step() -> None:
    with Watch(gpu := VirtualGPU("T4", torch_version="1.13")) as watch, gpu:
        weight = torch.zeros(2**30, device="cuda", requires_grad=True)  # 4 GiB
        weight.grad = torch.zeros_like(weight)
        with pytest.raises(torch.OutOfMemoryError):  # 4 times 4 GiB do not fit into 14.74 GiB
            torch.optim.Adam([weight]).step()
    failed = watch.devices[0].last_out_of_memory
    assert failed is not None
    assert sorted(category_of(block) for block in failed.live.blocks) == [
        Category.GRADIENTS,
        Category.OPTIMIZER_STATES,
        Category.PARAMETERS,
    ]
