"""Offloading changes where bytes are, and nothing that is computed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vramlab import VirtualGPU
from vramlab.measure import record_transfers
from vramlab.programs.offloading import HostOptimizer, SavedOnHost, StreamedLayers
from vramlab_course.rules import RULES

WIDTH = 64
BATCH = 16
WEIGHT = 4 * WIDTH * WIDTH  # bytes in float32
ROWS = 4 * BATCH * WIDTH

pinned_or_not = pytest.mark.parametrize("pin_memory", [False, True], ids=["pageable", "pinned"])


def chain(layers: int) -> nn.Sequential:
    torch.manual_seed(layers)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()]
    return nn.Sequential(*parts)


def rows(step: int = 0) -> Tensor:
    torch.manual_seed(100 + step)
    return torch.randn(BATCH, WIDTH).to("cuda")


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.detach().cpu().clone() for p in model.parameters() if p.grad is not None]


# ---- Saved tensors ----


@pinned_or_not
def test_gradients_are_the_same_with_saved_tensors_on_the_host(pin_memory: bool) -> None:
    with VirtualGPU("T4", values=True):
        plain = chain(4).to("cuda")
        plain(rows()).square().mean().backward()
        offloaded = chain(4).to("cuda")
        with SavedOnHost(offloaded.parameters(), pin_memory=pin_memory):
            loss = offloaded(rows()).square().mean()
        loss.backward()
        assert len(gradients(plain)) == 4
        for expected, gradient in zip(gradients(plain), gradients(offloaded), strict=True):
            assert torch.equal(expected, gradient)


@pinned_or_not
@pytest.mark.parametrize("values", [False, True])
def test_each_tensor_moves_once_and_parameters_do_not(values: bool, pin_memory: bool) -> None:
    with VirtualGPU("T4", values=values):
        model, x = chain(4).to("cuda"), rows()
        with record_transfers() as transfers:
            with SavedOnHost(model.parameters(), pin_memory=pin_memory):
                loss = model(x).square().mean()
            loss.backward()
    # x and the four ReLU outputs, the last of which the loss saves too
    assert transfers.to_host_bytes == transfers.to_gpu_bytes == 5 * ROWS
    assert len(transfers.copies) == 2 * 5


def test_a_tensor_that_was_changed_in_between_is_another() -> None:
    with VirtualGPU("T4", values=True):
        x = torch.ones(8, device="cuda", requires_grad=True)
        plain = x * 2
        plain = plain.exp().add(plain.detach().mul_(1) * x)
        plain.sum().backward()
        assert x.grad is not None
        expected = x.grad.cpu().clone()
        x.grad = None
        with SavedOnHost():
            y = x * 2
            y = y.exp().add(y.detach().mul_(1) * x)
        y.sum().backward()
        assert torch.equal(expected, x.grad.cpu())


def test_small_tensors_can_stay() -> None:
    with VirtualGPU("T4"):
        model, x = chain(2).to("cuda"), rows()
        with record_transfers() as transfers, SavedOnHost(smallest_bytes=ROWS + 1):
            model(x)
    # Of 4096 B (rows) and 16384 B (the second layer's weight), the weight alone is large enough.
    assert [copy.size_bytes for copy in transfers.copies] == [WEIGHT]


def test_a_graph_without_a_backward_pass_is_let_go() -> None:
    with VirtualGPU("T4"):
        model, x = chain(2).to("cuda"), rows()
        model(x)  # cuBLAS's workspace
        before = torch.cuda.memory_allocated()
        with SavedOnHost(model.parameters(), smallest_bytes=ROWS + 1):
            model(x)
        assert torch.cuda.memory_allocated() == before


def test_a_graph_can_be_used_twice() -> None:
    with VirtualGPU("T4", values=True):
        model = chain(2).to("cuda")
        with SavedOnHost(model.parameters()):
            loss = model(rows()).square().mean()
        loss.backward(retain_graph=True)
        once = gradients(model)
        loss.backward()
        for first, both in zip(once, gradients(model), strict=True):
            assert torch.equal(2 * first, both)


def test_activations_are_not_on_the_gpu_between_forward_and_backward() -> None:
    with VirtualGPU("T4"):
        model, x = chain(8).to("cuda"), rows()
        with SavedOnHost(model.parameters()):
            model(x)  # cuBLAS's workspace
            before = torch.cuda.memory_allocated()
            y = model(x)
        assert torch.cuda.memory_allocated() - before == ROWS
        assert y.grad_fn is not None


# ---- The optimizer ----


def half_model() -> nn.Sequential:
    return chain(3).to(torch.bfloat16).to("cuda")


def train_on_gpu(steps: int) -> list[Tensor]:
    """Mixed precision with everything on the GPU: what HostOptimizer has to equal."""
    model = half_model()
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=0.01)
    for step in range(steps):
        model(rows(step).bfloat16()).float().square().mean().backward()
        for parameter, master in zip(model.parameters(), masters, strict=True):
            assert parameter.grad is not None
            master.grad, parameter.grad = parameter.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(model.parameters(), masters, strict=True):
                parameter.copy_(master)
    return [p.detach().cpu() for p in model.parameters()]


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


@pinned_or_not
@pytest.mark.parametrize("as_they_come", [False, True])
def test_training_is_the_same_with_the_optimizer_on_the_host(
    as_they_come: bool, pin_memory: bool
) -> None:
    with VirtualGPU("A100-40GB", values=True):
        expected = train_on_gpu(3)
        model = half_model()
        begin = [p.detach().cpu() for p in model.parameters()]
        optimizer = HostOptimizer(
            model.parameters(), adamw, as_they_come=as_they_come, pin_memory=pin_memory
        )
        for step in range(3):
            model(rows(step).bfloat16()).float().square().mean().backward()
            optimizer.step()
        for first, wanted, parameter in zip(begin, expected, model.parameters(), strict=True):
            assert torch.equal(wanted, parameter.detach().cpu())
            assert not torch.equal(first, wanted)


def test_micro_batches_add_up_on_the_host() -> None:
    with VirtualGPU("A100-40GB", values=True):
        model = half_model()
        optimizer = HostOptimizer(model.parameters(), adamw)
        halves = copy.deepcopy(model)
        sums = [torch.zeros_like(p, dtype=torch.float32) for p in halves.parameters()]
        for step in range(2):
            model(rows(step).bfloat16()).float().square().mean().backward()
            halves(rows(step).bfloat16()).float().square().mean().backward()
            for total, parameter in zip(sums, halves.parameters(), strict=True):
                assert parameter.grad is not None
                total += parameter.grad.float()
                parameter.grad = None
        optimizer._receive(0), optimizer._receive(1), optimizer._receive(2)
        for total, master in zip(sums, optimizer.masters, strict=True):
            assert master.grad is not None
            assert torch.equal(total.cpu(), master.grad)


@pytest.mark.parametrize("as_they_come", [False, True])
def test_two_bytes_per_parameter_each_way_and_nothing_of_adam_on_the_gpu(
    as_they_come: bool,
) -> None:
    with VirtualGPU("A100-40GB"):
        model = half_model()
        parameters_bytes = torch.cuda.memory_allocated()
        assert parameters_bytes == 3 * 2 * WIDTH * WIDTH
        optimizer = HostOptimizer(model.parameters(), adamw, as_they_come=as_they_come)
        x = rows().bfloat16()
        model(x).float().square().mean().backward()
        optimizer.step()
        before = torch.cuda.memory_allocated()
        with record_transfers() as transfers:
            model(x).float().square().mean().backward()
            gradients_bytes = torch.cuda.memory_allocated() - before
            optimizer.step()
        # bfloat16: 2 B for each of 3 x 64 x 64 parameters
        assert transfers.to_host_bytes == transfers.to_gpu_bytes == 2 * 3 * WIDTH * WIDTH
        assert gradients_bytes == (0 if as_they_come else parameters_bytes)
        assert torch.cuda.memory_allocated() == before


# ---- The parameters ----


def stages(pin: bool = False) -> list[nn.Module]:
    blocks: list[nn.Module] = [
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(4)
    ]
    if pin:
        for parameter in nn.ModuleList(blocks).parameters():
            parameter.data = parameter.data.pin_memory()
    return blocks


def train(model: nn.Module, steps: int = 3) -> list[Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        model(rows(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("prefetch", [False, True])
def test_training_is_the_same_with_streamed_parameters(prefetch: bool) -> None:
    make: Callable[[], list[nn.Module]] = lambda: stages(prefetch)  # noqa: E731
    with VirtualGPU("T4", values=True):
        torch.manual_seed(0)
        expected = train(nn.Sequential(*make()).to("cuda"))
        torch.manual_seed(0)
        model = StreamedLayers(make(), prefetch=prefetch)
        assert {p.device.type for p in model.parameters()} == {"cpu"}
        for wanted, learned in zip(expected, train(model), strict=True):
            # Adam rounds otherwise on the host: in the last bits of a step of 0.01
            assert torch.allclose(wanted, learned, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("prefetch", "layers_at_once"), [(False, 1), (True, 2)])
def test_the_gpu_holds_one_layer_or_two(prefetch: bool, layers_at_once: int) -> None:
    with VirtualGPU("T4", torch_version=RULES):
        model, x = StreamedLayers(stages(prefetch), prefetch=prefetch), rows()
        model(x).sum().backward()  # cuBLAS's workspaces
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        y = model(x)
        extra = torch.cuda.max_memory_allocated() - before
        # between layers: the inputs of three, and the output
        assert torch.cuda.memory_allocated() - before == 4 * ROWS
        # two weights and two biases a layer; in the last layer: the inputs of three, what Tanh
        # gets and gives, the second Linear's output
        layer = 2 * WEIGHT + 2 * 512
        assert layers_at_once * layer <= extra <= layers_at_once * layer + 6 * ROWS
        torch.cuda.reset_peak_memory_stats()
        y.sum().backward()
        extra = torch.cuda.max_memory_allocated() - before
        # and the gradient of one weight at a time: each goes to the host as soon as it is there
        assert extra <= layers_at_once * layer + WEIGHT + 9 * ROWS + 2 * 512


def test_parameters_travel_twice_and_gradients_once() -> None:
    with VirtualGPU("T4"):
        model, x = StreamedLayers(stages()), rows()
        parameters_bytes = sum(p.nbytes for p in model.parameters())
        with record_transfers() as transfers:
            model(x).square().mean().backward()
        assert transfers.to_gpu_bytes == 2 * parameters_bytes
        assert transfers.to_host_bytes == parameters_bytes


def test_prefetched_parameters_in_pinned_memory_are_not_waited_for() -> None:
    with VirtualGPU("T4", values=True):
        model, x = StreamedLayers(stages(pin=True)), rows()
        with record_transfers() as transfers:
            model(x)
        assert transfers.to_gpu_bytes > 0
        assert transfers.waited_for_bytes == 0
