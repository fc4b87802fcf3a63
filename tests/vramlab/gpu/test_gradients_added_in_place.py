"""The engine adds up the gradients of a tensor that was used twice, in place since PyTorch 2.0."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import profiler
from torch.utils.checkpoint import checkpoint

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU, assumptions, attached
from vramlab.gpu.core import dispatch_mode
from vramlab.gpu.ops import inplace_backward
from vramlab.measure import record_timeline
from vramlab.report.evidence.origins import Origins

SIZE_BYTES = 4_000_000


def made_in_backward(
    program: Callable[[Tensor], Tensor], torch_version: str = "2.13", values: bool = False
) -> int:
    """How many tensors of the parameter's size the backward pass makes."""
    with VirtualGPU("T4", torch_version=torch_version, values=values):
        weight = torch.ones(1000, 1000, device="cuda", requires_grad=True)
        loss = program(weight)
        with record_timeline() as recording:
            loss.backward()
        made = [b for b in recording.timeline.blocks if b.born >= 0]
        return sum(block.requested_bytes == SIZE_BYTES for block in made)


def used_twice(weight: Tensor) -> Tensor:
    y = weight * 2
    return (y.tanh() + y.sigmoid()).sum()


def own_backward(weight: Tensor) -> Tensor:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return gradient + gradient

    return Doubled.apply(weight * 2).mul(2).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("values", [False, True])
def test_gradients_are_added_into_the_first_of_them(values: bool) -> None:
    # Of sigmoid, of tanh, of the product; before 2.0 their sum, too.
    assert made_in_backward(used_twice, values=values) == 3
    assert made_in_backward(used_twice, "1.13", values=values) == 4


def test_a_backward_pass_in_python_adds_as_it_says() -> None:
    # Of the product, of the sum, of the first product.
    assert made_in_backward(own_backward) == 3


def test_gradients_that_are_added_are_right() -> None:
    with VirtualGPU("T4", values=True):
        weight = torch.full((4, 4), 0.5, device="cuda", requires_grad=True)
        used_twice(weight).backward()
        on_host = torch.full((4, 4), 0.5, requires_grad=True)
        used_twice(on_host).backward()
        assert torch.equal(weight.grad.cpu(), on_host.grad)


# What the engine itself does, on the CPU, decides: with no mode on, it adds as it does for CUDA.

Program = Callable[[Tensor, list[Any]], Tensor]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient + gradient


def twice(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return y.tanh() + y.sigmoid()


def three_times(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return y.tanh() + y.sigmoid() + y.exp()


def by_two_nodes(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return (y.tanh() + (y.sigmoid() + y)) * 3


def by_one_node_twice(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return (y + y) * 3


def by_one_node_with_itself(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return y * y


def kept(first: bool, second: bool) -> Program:
    def program(x: Tensor, keep: list[Any]) -> Tensor:
        y = x * 2
        a, b = y.tanh(), y.sigmoid()
        for tensor, is_kept in ((b, first), (a, second)):  # the younger node runs first
            if is_kept:
                tensor.grad_fn.register_hook(lambda gradients, _: keep.append(gradients[0]))
        return a + b

    return program


def looked_at(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    a, b = y.tanh(), y.sigmoid()
    for tensor in (a, b):
        tensor.grad_fn.register_hook(lambda gradients, _: None)
    y.register_hook(lambda gradient: None)
    return a + b


def retained(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    y.retain_grad()
    keep.append(y)
    return y.tanh() + y.sigmoid()


def a_view_is_kept(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    a, b = y.tanh(), y.sigmoid()
    b.grad_fn.register_hook(lambda gradients, _: keep.append(gradients[0][:2]))  # type: ignore[union-attr]
    return a + b


def with_an_own_function(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return Doubled.apply(y) + y.tanh() + Doubled.apply(y)  # type: ignore[no-any-return]


def expanded(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return y.sum() + y.mean() + y.tanh().sum()


def with_sums_of_a_nodes_own(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    deviation, mean = torch.std_mean(y)
    return torch.atan2(y, x.detach() + 3) + y.tanh() + (y - mean) / deviation


def checkpointed(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return checkpoint(lambda y: y.tanh() + y, y, use_reentrant=False) + y.sigmoid()


def checkpointed_in_a_nested_pass(x: Tensor, keep: list[Any]) -> Tensor:
    y = x * 2
    return checkpoint(lambda y: y.tanh() + y.exp(), y, use_reentrant=True) + y.sigmoid()


def of_random_operators(seed: int) -> Program:
    def program(x: Tensor, keep: list[Any]) -> Tensor:
        choose = random.Random(seed)
        tensors = [x * 2]
        for _ in range(12):
            a, b = choose.choices(tensors, k=2)
            made: Tensor = choose.choice(
                [
                    lambda a, b: a + b,
                    lambda a, b: a - b,
                    lambda a, b: a * b,
                    lambda a, b: a.tanh(),
                    lambda a, b: a.neg() + b.sigmoid(),
                    lambda a, b: a.view(2, -1).t().reshape(-1),
                    lambda a, b: torch.cat([a[:3], b[3:]]),
                ]
            )(a, b)
            if choose.random() < 0.2:
                made.grad_fn.register_hook(lambda gradients, _: keep.append(gradients))  # type: ignore[union-attr]
            tensors.append(made)
        return torch.stack(choose.choices(tensors, k=4)).sum(0)

    return program


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        twice,
        three_times,
        by_two_nodes,
        by_one_node_twice,
        by_one_node_with_itself,
        looked_at,
        retained,
        a_view_is_kept,
        with_an_own_function,
        expanded,
        with_sums_of_a_nodes_own,
        checkpointed,
        checkpointed_in_a_nested_pass,
    )
} | {
    "first kept": kept(True, False),
    "second kept": kept(False, True),
    "both kept": kept(True, True),
    **{f"random {seed}": of_random_operators(seed) for seed in range(20)},
}


def on_the_host(program: Program) -> tuple[list[str], Tensor, list[Any]]:
    """The sums of a backward pass, the gradient, and what the program kept."""
    x, keep = torch.linspace(-1, 1, 8, requires_grad=True), list[Any]()
    output = program(x, keep).sum()
    with profiler.profile() as profile:
        output.backward()
    names = [event.name for event in profile.function_events]
    assert x.grad is not None
    return [name for name in names if name in ("aten::add", "aten::add_")], x.grad, keep


@pytest.mark.filterwarnings("ignore:.*use_reentrant:UserWarning")
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_are_those_of_the_engine(name: str, values: bool, observed: bool) -> None:
    sums, gradient, kept_on_host = on_the_host(PROGRAMS[name])
    gpu = VirtualGPU("T4", values=values)
    if observed:  # as `vramlab run` does
        gpu.machine.add_observer(Origins())
    with gpu:
        x, keep = torch.linspace(-1, 1, 8).cuda().requires_grad_(), list[Any]()
        output = PROGRAMS[name](x, keep).sum()
        gpu.dispatcher.seen.clear()
        output.backward()
        seen = gpu.dispatcher.seen
        found = (
            seen.get(torch.ops.aten.add.Tensor, 0),
            seen.get(torch.ops.aten.add_.Tensor, 0),
        )
        assert found == (sums.count("aten::add"), sums.count("aten::add_"))
        if values:
            assert x.grad is not None
            torch.testing.assert_close(x.grad.cpu(), gradient)
            torch.testing.assert_close(flat(keep), flat(kept_on_host))


def flat(kept: list[Any]) -> list[Tensor]:
    tensors = [t for each in kept for t in (each if isinstance(each, tuple) else (each,))]
    return [tensor.detach().cpu() for tensor in tensors if tensor is not None]


class TestAssumptions:
    """They are tried when the first GPU is attached; a failure is reported before any change."""

    @pytest.fixture(autouse=True)
    def as_in_a_new_process(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(assumptions, "check", assumptions.check.__wrapped__)
        monkeypatch.setattr(inplace_backward._only_engine, "numbers", None)

    def test_they_hold(self) -> None:
        for _ in range(2):
            with VirtualGPU("T4"):
                pass

    @pytest.mark.parametrize("count", ["references", "uses", "uses_of_storage"])
    def test_a_count_that_says_nothing_is_told(
        self, count: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where a CPython borrowed what this one counts."""
        honest = inplace_backward.Holders.of
        always_one = staticmethod(lambda tensor: honest(tensor)._replace(**{count: 1}))
        monkeypatch.setattr(inplace_backward.Holders, "of", always_one)
        with pytest.raises(UnsupportedOnVirtualGPU, match=r"Python 3\S+ with PyTorch 2\.1\d"):
            VirtualGPU("T4").attach()
        assert attached() is None
        assert not torch.cuda.is_available()

    def test_an_engine_that_is_called_from_elsewhere_is_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dispatch_mode, "ENGINE", on_the_host.__code__)
        with pytest.raises(UnsupportedOnVirtualGPU, match=r"used twice .*in_place=1.*in_place=0"):
            VirtualGPU("T4").attach()

    @pytest.mark.parametrize(
        "inside",
        [
            torch.no_grad,
            torch.inference_mode,
            torch.autograd.detect_anomaly,
            lambda: torch.device("meta"),
            lambda: torch.autocast("cpu"),
            lambda: torch.autograd.graph.save_on_cpu(),
            FakeTensorMode,
        ],
    )
    @pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
    def test_whatever_the_thread_is_in(self, inside: Callable[[], Any]) -> None:
        with inside():
            assumptions.check()
