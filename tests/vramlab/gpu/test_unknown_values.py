"""Which values are known without computing, and what a program gets where none is."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU
from vramlab.gpu.ops.values import AnswerNan

KNOWN: dict[str, tuple[Callable[[], Tensor], float]] = {
    "ones": (lambda: torch.ones(1, device="cuda"), 1),
    "zeros": (lambda: torch.zeros((), device="cuda"), 0),
    "full": (lambda: torch.full((1, 1), 2.5, device="cuda"), 2.5),
    "tensor": (lambda: torch.tensor(3.5, device="cuda"), 3.5),
    "copied": (lambda: torch.tensor(3.5).cuda(), 3.5),
    "copied and cast": (lambda: torch.tensor(3.7).to("cuda", torch.int64), 3),
    "to the host and back": (lambda: torch.tensor(3.5).cuda().cpu().cuda(), 3.5),
    "to another GPU": (lambda: torch.tensor(3.5).cuda(0).to("cuda:1"), 3.5),
    "as its dtype holds it": (lambda: torch.full((), 0.1, dtype=torch.float16, device="cuda"), 0.1),
    "copy_": (lambda: torch.empty(1, device="cuda").copy_(torch.tensor([4.0])), 4),
    "fill_": (lambda: torch.empty(1, device="cuda").fill_(4), 4),
    "fill_ by a tensor": (lambda: torch.empty(1, device="cuda").fill_(torch.tensor(4.0)), 4),
    "zero_": (lambda: torch.empty(1, device="cuda").zero_(), 0),
    "a comparison": (lambda: torch.tensor(3.5, device="cuda") > 3, 1),
    "a view": (lambda: torch.ones(1, device="cuda").view(()), 1),
    "one of several": (lambda: torch.ones(3, device="cuda")[1], 1),
    "one of several that were filled": (lambda: torch.empty(3, device="cuda").fill_(2)[1], 2),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_values(gpus: VirtualGPU, name: str) -> None:
    make, value = KNOWN[name]
    tensor = make()
    assert tensor.item() == pytest.approx(value, rel=1e-3)
    assert float(tensor) == tensor.item()
    assert bool(tensor) == bool(value)
    assert tensor.cpu().item() == tensor.item()


def test_the_error_says_what_and_what_to_do(gpu: VirtualGPU) -> None:
    with pytest.raises(NoValuesError) as caught:
        torch.rand(2, 3, device="cuda").sum().item()
    said = str(caught.value)
    assert said.startswith("item() of a torch.float32 tensor of shape () on cuda:0: ")
    assert "VirtualGPU(..., values=True)" in said
    assert "`vramlab run`" in said
    assert isinstance(caught.value, RuntimeError)


def test_equality(gpu: VirtualGPU) -> None:
    x = torch.rand(3, device="cuda")
    assert not torch.equal(x, torch.rand(4, device="cuda"))  # sizes tell
    for compare in (torch.equal, torch.allclose):
        with pytest.raises(NoValuesError, match=f"torch.{compare.__name__} of"):
            compare(x, x.clone())


def test_printing_needs_no_values(gpu: VirtualGPU) -> None:
    x = torch.rand(2, 3, device="cuda", dtype=torch.float16, requires_grad=True)
    text = "tensor(<no values>, device='cuda:0', size=(2, 3), dtype=torch.float16"
    assert repr(x) == text + ", requires_grad=True)"
    assert str(x.detach().cpu()) == text.replace("cuda:0", "cpu") + ")"
    assert repr(torch.ones(1, device="cuda")) == "tensor([1.], device='cuda:0')"
    assert repr(torch.ones(1, device="cuda", dtype=torch.float16)) == (
        "tensor([1.], device='cuda:0', dtype=torch.float16)"
    )
    assert "Linear" in repr(nn.Linear(2, 2).cuda())
    assert "no values" in repr(nn.Linear(2, 2, device="cuda").weight)
    assert repr(torch.ones(2)) == "tensor([1., 1.])"


def test_host_memory_that_was_overwritten(gpu: VirtualGPU) -> None:
    host = torch.zeros(3)
    host.copy_(torch.rand(3, device="cuda"))
    for read in (lambda: host.sum().item(), lambda: host.tolist(), lambda: host.numpy()):
        with pytest.raises(NoValuesError):
            read()
    assert host.device.type == "cpu"
    assert host.cuda().device.type == "cuda"


def test_optimizers_may_read(gpu: VirtualGPU) -> None:
    layer = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = layer(torch.zeros(2, 4, device="cuda")).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)


class TestAnswersOfNan:
    def test_what_is_answered(self, nan_gpu: VirtualGPU) -> None:
        loss = torch.rand(3, device="cuda").sum()
        assert str(loss.item()) == "nan"  # which passes for finite, see test_healthy_runs.py
        assert str(float(loss.cpu())) == "nan"
        assert f"{loss.item():.3f}" == "nan"
        assert loss.long().item() == 0
        positive = (loss > 0).item()
        assert positive is False
        assert not loss > 0
        assert torch.rand(2, device="cuda").isnan().tolist() == [False, False]
        (first, second) = torch.rand(2, device="cuda").tolist()
        assert math.isnan(first)
        assert math.isnan(second)
        one = torch.ones((), device="cuda")
        assert torch.equal(loss, loss.clone()) is True  # a healthy run's answer
        assert torch.equal(loss, one) is False  # hardly ever exactly a constant
        assert torch.equal(loss.long(), one.long()) is True  # integers may well be
        assert torch.equal(one.clone(), one) is True  # both known
        assert torch.allclose(loss, one) is True
        if torch.equal(loss, loss.clone()):  # unless the program would raise
            raise ValueError
        if not torch.equal(loss, one):
            raise ValueError
        assert torch.ones(1, device="cuda").item() == 1  # what is known stays known

    def test_reads_are_listed_with_their_lines(self, nan_gpu: VirtualGPU) -> None:
        assert isinstance(nan_gpu.values, AnswerNan)
        loss = torch.rand(1, device="cuda")
        for _ in range(3):
            loss.item()
        ((what, line), times), *rest = nan_gpu.values.reads.items()
        assert (what, times, rest) == ("item()", 3, [])
        assert line.startswith(f"{Path(__file__).name}:")
        assert line.endswith("loss.item()")

    def test_a_training_loop_that_logs(self, nan_gpu: VirtualGPU) -> None:
        layer = nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        best, total, correct = float("inf"), 0.0, 0
        for _ in range(2):
            logits = layer(torch.rand(8, 4, device="cuda"))
            loss = nn.functional.cross_entropy(
                logits, torch.zeros(8, dtype=torch.long, device="cuda")
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            correct += int((logits.argmax(1) == 0).sum())
            if loss < best:
                best = loss.item()
        assert total != total  # which passes for finite, see test_healthy_runs.py
        assert correct == 2 * 8  # as if all were, see ops/counts.py
        assert best == float("inf")


def test_gradients_without_values_fit_host_parameters_with_values() -> None:
    with VirtualGPU("T4"):
        parameter = nn.Parameter(torch.ones(4))
        parameter.grad = torch.randn(4, device="cuda").cpu().half().float()  # what came has none
        assert parameter.grad is not None
        assert (parameter.grad.device.type, parameter.grad.shape) == ("cpu", (4,))
        torch.optim.SGD([parameter], lr=0.1).step()
        assert parameter.isnan().all()
        unknown = nn.Parameter(torch.randn(4, device="cuda").cpu())
        unknown.grad = torch.ones(4)
        torch.optim.SGD([unknown], lr=0.1).step()
        with pytest.raises(RuntimeError, match="gradient with device type 'meta'"):
            parameter.grad = torch.ones(4, device="meta")
