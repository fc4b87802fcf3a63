"""VirtualGPU(..., values=True): values are PyTorch's own, and memory is as without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.cuda import memory
from torch.utils.checkpoint import checkpoint

from vramlab.gpu import VirtualGPU
from vramlab.units import MIB

Trace = list[tuple[str, int, int]]


def trace_of(program: Callable[[], object], *, values: bool) -> Trace:
    """What the allocator was asked, in order: (action, address, size)."""
    with VirtualGPU("T4", values=values):
        memory._record_memory_history(context=None)
        program()
        (trace,) = memory._snapshot()["device_traces"]
        memory._record_memory_history(enabled=None)
    return [(entry["action"], entry["addr"], entry["size"]) for entry in trace]


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, width),
    "no bias": lambda width: nn.Linear(width, width, bias=False),
    "relu": lambda width: nn.ReLU(),
    "relu in place": lambda width: nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True)),
    "gelu": lambda width: nn.GELU(),
    "tanh": lambda width: nn.Tanh(),
    "norm": lambda width: nn.LayerNorm(width),
    "dropout": lambda width: nn.Dropout(0.5),
    "softmax": lambda width: nn.Softmax(-1),
}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adam": lambda ps: torch.optim.Adam(ps),
    "adam in a loop": lambda ps: torch.optim.Adam(ps, foreach=False),
    "fused adamw": lambda ps: torch.optim.AdamW(ps, fused=True),
}


@settings(deadline=None, max_examples=15)
@given(
    names=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4),
    width=st.sampled_from([3, 16, 130]),
    batch=st.integers(1, 40),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    autocast=st.booleans(),
    checkpointed=st.booleans(),
)
def test_memory_is_the_same_with_and_without_values(
    names: list[str], width: int, batch: int, optimizer: str, autocast: bool, checkpointed: bool
) -> None:
    # The CPU has no softmax that reads float16 and writes float32, as CUDA has: it makes a copy.
    assume(not (autocast and "softmax" in names))

    def program() -> None:
        model = nn.Sequential(nn.Linear(width, width), *(LAYERS[n](width) for n in names)).cuda()
        steps = OPTIMIZERS[optimizer](model.parameters())
        for _ in range(2):
            x = torch.randn(batch, width, device="cuda", requires_grad=True)
            with torch.autocast("cuda", torch.float16, enabled=autocast):
                y = checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)
                loss = y.float().pow(2).mean()
            loss.backward()
            steps.step()
            steps.zero_grad()

    assert trace_of(program, values=False) == trace_of(program, values=True)


def step_of(device: str) -> tuple[float, list[Tensor], list[Tensor]]:
    """One training step from a fixed start: loss, gradients and parameters, on the host."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)
    )
    x, target = torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 2])
    model, x, target = model.to(device), x.to(device), target.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    optimizer.step()
    return loss.item(), gradients, [p.detach().cpu() for p in model.parameters()]


def test_a_training_step_has_pytorchs_values() -> None:
    loss, gradients, parameters = step_of("cpu")
    with VirtualGPU("T4", values=True):
        assert torch.cuda.is_available()
        loss_there, gradients_there, parameters_there = step_of("cuda")
    assert loss_there == loss
    for here, there in zip(
        [*gradients, *parameters], [*gradients_there, *parameters_there], strict=True
    ):
        assert torch.equal(here, there)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_gradients_are_equal(values_gpu: VirtualGPU, use_reentrant: bool) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4)).cuda()
    x = torch.randn(8, 16, device="cuda", requires_grad=True)
    gradients = []
    for run in (block, lambda x: checkpoint(block, x, use_reentrant=use_reentrant)):
        torch.manual_seed(1)  # the same dropout
        run(x).pow(2).sum().backward()
        gradients.append([x.grad.clone(), *(p.grad.clone() for p in block.parameters())])  # type: ignore[union-attr]
        x.grad = None
        block.zero_grad()
    assert all(map(torch.equal, *gradients))
    assert all(g.abs().sum() > 0 for g in gradients[0])


def test_values_can_be_read(values_gpu: VirtualGPU) -> None:
    x = torch.tensor([3.0, 1.0, 2.0], device="cuda")
    assert x.sum().item() == 6
    assert x.tolist() == [3, 1, 2]
    assert float(x.max()) == 3
    assert bool((x > 0).all())
    assert f"{x.mean():.1f}" == "2.0"
    assert x.cpu().numpy().tolist() == [3, 1, 2]
    assert x[x > 1].tolist() == [3, 2]
    assert x.nonzero().flatten().tolist() == [0, 1, 2]
    assert x.sort().values.tolist() == [1, 2, 3]
    assert torch.equal(x, x.clone())
    assert torch.allclose(x, x.clone())
    assert x.unique().tolist() == [1, 2, 3]
    assert len(x) == 3
    assert [int(i) for i in x] == [3, 1, 2]
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
        x.numpy()


def test_devices_and_books_are_those_of_a_gpu(values_gpu: VirtualGPU) -> None:
    x = torch.zeros(1024, device="cuda")
    host = x.cpu()
    assert (x.device.type, host.device.type) == ("cuda", "cpu")
    assert torch.cuda.memory_allocated() == 4096
    assert host.data_ptr() != x.data_ptr()
    x += 1
    assert host.sum().item() == 0  # a copy, not the same memory
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu"):
        x + host
    y = x[x > 0]
    assert torch.cuda.memory_allocated() == 2 * 4096
    del y
    torch.cuda.set_per_process_memory_fraction(0.001)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")


def test_gradients_stay_on_the_gpu(values_gpu: VirtualGPU) -> None:
    for program in (
        lambda w: w.sum(),
        lambda w: w.half().float().sum(),
        lambda w: w.t().sum(0).sum(),
        lambda w: torch.stack(w.unbind()[:1]).sum(),
        lambda w: w.expand(3, 4, 4).mean(),
        lambda w: w[0].clone().sum(),
    ):
        w = torch.ones(4, 4, device="cuda", requires_grad=True)
        program(w).backward()
        assert w.grad is not None
        assert w.grad.device.type == "cuda"
        assert torch.cuda.memory_allocated() == 2 * 512


def test_the_host_stays_the_host(values_gpu: VirtualGPU) -> None:
    x = torch.zeros(8, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "cpu"
    there = torch.zeros(8, device="cuda")
    assert torch.zeros_like(there, device="cpu").device.type == "cpu"
    assert there.new_zeros(3, device="cpu").device.type == "cpu"
    assert there.to("cpu", torch.float64).device.type == "cpu"
    assert torch.cuda.memory_allocated() == 512


MADE_BY_TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    # From C++: it makes tensors of its own by the options of an operand.
    "one_hot": lambda x: nn.functional.one_hot(x.long()),
    "one_hot, all classes": lambda x: nn.functional.one_hot(x.long(), 9),
    "combinations": torch.combinations,
    "quantile": lambda x: x.quantile(0.25),
    "matrix_rank": lambda x: torch.linalg.matrix_rank(torch.outer(x, x)),
    # From Python: it asks an operand for its device.
    "fractional pooling": lambda x: (
        nn.functional.fractional_max_pool2d(x.repeat(4).view(1, 1, 4, 4), 2, output_size=2)
        .sum(dtype=torch.float64)
        .ge(0)
    ),
}


@pytest.mark.parametrize("name", MADE_BY_TORCH)
def test_what_torch_makes_for_itself_lies_where_the_operands_do(name: str) -> None:
    program, x = MADE_BY_TORCH[name], torch.tensor([3.0, 0.0, 2.0, 1.0])
    expected = program(x)
    with VirtualGPU("T4", values=True):
        result = program(x.cuda())
        assert result.is_cuda
        assert result.cpu().equal(expected)


def test_what_hooks_make_is_where_the_program_says() -> None:
    places = []

    def look(value: Tensor) -> Tensor:
        places.append(torch.zeros(1, device="cpu").device.type)
        return value

    with VirtualGPU("T4", values=True):
        weight = torch.ones(2, 2, device="cuda", requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(look, look):
            y = nn.functional.linear(weight, weight)  # saves both, from within C++
        y.register_hook(look)
        y.sum().backward()
    assert places == ["cpu"] * 5


DRAWING: dict[str, Callable[[], Tensor]] = {
    "dropout": lambda: nn.functional.dropout(torch.ones(64, device="cuda"), 0.5),
    "rand": lambda: torch.rand(64, device="cuda"),
    "normal_": lambda: torch.empty(64, device="cuda").normal_(),
    "randperm": lambda: torch.randperm(64, device="cuda"),
    "multinomial": lambda: torch.ones(64, device="cuda").multinomial(8),
}


@pytest.mark.parametrize("name", DRAWING)
def test_ops_draw_from_the_generator_of_their_gpu(name: str) -> None:
    draw = DRAWING[name]
    with VirtualGPU("T4", count=2, values=True):
        host, other = torch.get_rng_state(), torch.cuda.get_rng_state(1)
        state = torch.cuda.get_rng_state()
        first, second = draw(), draw()
        assert not first.equal(second)
        torch.cuda.set_rng_state(state)
        assert draw().equal(first)
        assert torch.get_rng_state().equal(host)
        assert torch.cuda.get_rng_state(1).equal(other)


def test_a_seed_is_that_of_all_generators_whenever_it_is_set() -> None:
    torch.manual_seed(3)
    with VirtualGPU("T4", values=True):
        assert torch.cuda.initial_seed() == 3
        first = torch.rand(4, device="cuda")
        torch.manual_seed(3)
        torch.rand(4)  # draws from the CPU's
        assert torch.rand(4, device="cuda").equal(first)


def test_the_first_draw_has_the_seed_and_the_second_goes_on() -> None:
    """The seed waits until the GPU is used, which the first draw is: it must not be set again."""
    torch.manual_seed(1)
    expected = [torch.rand(3), torch.rand(3)]
    for _ in range(2):  # the second GPU begins with the seed that it is given again
        with VirtualGPU("T4", values=True):
            torch.manual_seed(1)
            found = [torch.rand(3, device="cuda").cpu() for _ in range(2)]
        assert all(map(torch.equal, found, expected))


def test_what_hooks_of_torch_pin_is_on_the_host() -> None:
    """ReLU saves its output of 4 MiB: in pinned memory it is not the GPU's."""
    with VirtualGPU("T4", values=True):
        x = torch.ones(2**20, device="cuda", requires_grad=True)
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            y = torch.relu(x).relu()
        assert torch.cuda.memory_allocated() == 2 * 2**22  # x and y
        y.sum().backward()
        assert x.grad is not None


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda x: x.norm(),
    "1-norm": lambda x: torch.linalg.vector_norm(x, 1),
    "norms of rows": lambda x: x.view(4, -1).norm(dim=1).norm(),
    "norms of a list": lambda x: torch._foreach_norm([x])[0],
    "norm of gradients": lambda x: nn.utils.get_total_norm([x]),
    "dot product": lambda x: x @ x,
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_many_numbers_are_as_exact_as_a_gpus(name: str) -> None:
    """PyTorch's CPU kernels add one by one, and are off by 4e-4 to 4e-2 here."""
    with VirtualGPU("T4", values=True):
        x = torch.full((2**22,), 0.1, device="cuda")
        total = SUMS[name](x)
        assert (total.dtype, total.device.type) == (torch.float32, "cuda")
        # The root of 2**22 numbers of 0.01, or their sums: float32's 0.1 is off by 1.5e-8 of it.
        right = {"1-norm": 0.1 * 2**22, "dot product": 0.01 * 2**22}.get(name, 0.1 * 2**11)
        assert float(total) == pytest.approx(right, rel=2e-7)


@pytest.mark.parametrize("name", SUMS)
def test_exact_sums_take_what_others_do(name: str) -> None:
    def program() -> None:
        SUMS[name](torch.full((2**22,), 0.1, device="cuda"))

    assert trace_of(program, values=True) == trace_of(program, values=False)
