"""Blocks are booked on the line they come from, in the forward and in the backward pass."""

from __future__ import annotations

import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from vramlab.gpu import VirtualGPU
from vramlab.measure import Category
from vramlab.report.evidence.peak import LiveBlock
from vramlab.report.evidence.watch import Watch


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Watch(gpu := VirtualGPU("A100-40GB")) as watch, gpu:
        yield watch


def block_of(watch: Watch, tensor: torch.Tensor) -> LiveBlock:
    block = watch.devices[0].block_at(tensor.untyped_storage().data_ptr())
    assert block is not None
    return block


def function_of(watch: Watch, tensor: torch.Tensor) -> str:
    line = block_of(watch, tensor).origin.line
    assert line is not None
    assert line.filename == __file__
    return line.function.rpartition(".")[2]


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def front(x: torch.Tensor) -> torch.Tensor:
    return x[:2]


def leaf(*size: int) -> torch.Tensor:
    return torch.empty(*size, device="cuda", requires_grad=True)


def test_the_forward_pass_is_booked_where_it_runs(watch: Watch) -> None:
    x = leaf(4)
    y = double(x)
    assert function_of(watch, x) == "leaf"
    assert function_of(watch, y) == "double"


def test_the_backward_pass_is_booked_on_the_forward_line(watch: Watch) -> None:
    x = leaf(4)
    double(x).sum().backward()
    assert x.grad is not None
    assert function_of(watch, x.grad) == "double"
    assert block_of(watch, x.grad).origin.in_backward


def doubling_in(filename: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return `double` as if a file of that name had it."""
    names: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    exec(compile("def double(x):\n    return x * 2\n", filename, "exec"), names)
    return names["double"]


@pytest.mark.parametrize("package", ["torchvision", "torchmetrics", "torch_geometric"])
def test_packages_whose_names_begin_with_torch_have_lines(watch: Watch, package: str) -> None:
    filename = str(Path(sysconfig.get_path("purelib"), package, "models", "resnet.py"))
    origin = block_of(watch, doubling_in(filename)(leaf(4))).origin
    assert origin.line is not None
    assert origin.line.filename == filename
    assert origin.caller is not None
    assert origin.caller.filename == __file__


def test_views_have_lines_of_their_own(watch: Watch) -> None:
    x = leaf(4)
    front(x).sum().backward()
    assert x.grad is not None
    # The gradient of the slice is expanded from a scalar; the whole gradient comes of the slicing.
    assert function_of(watch, x.grad) == "front"


def test_code_that_the_engine_calls_is_booked_where_it_runs(watch: Watch) -> None:
    kept = []

    def keep_a_copy(grad: torch.Tensor) -> None:
        kept.append(grad.clone())

    x = leaf(4)
    x.register_hook(keep_a_copy)
    double(x).sum().backward()
    assert function_of(watch, kept[0]) == "keep_a_copy"
    assert block_of(watch, kept[0]).origin.in_backward


def test_recomputed_activations_are_of_the_backward_pass(watch: Watch) -> None:
    seen: list[LiveBlock] = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        y = double(x).exp()
        seen.append(block_of(watch, y))
        return y * y

    x = leaf(4)
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    first, again = seen
    assert not first.origin.in_backward
    assert again.origin.in_backward
    assert (first.owner, again.owner) == (None, Category.ACTIVATIONS)
    assert first.origin.line == again.origin.line


def test_threads_number_their_nodes_apart(watch: Watch) -> None:
    x = leaf(4)
    double(x)
    results: list[torch.Tensor] = []

    def work() -> None:
        y = leaf(4)
        front(y).sum().backward()
        assert y.grad is not None
        results.append(y.grad)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert function_of(watch, results[0]) == "front"


def test_data_and_workspaces_are_known_by_their_allocation(watch: Watch) -> None:
    made = torch.randn(64, 64, device="cuda")
    copied = torch.randn(64, 64).cuda()
    cast = copied.half()
    product = copied @ made
    assert block_of(watch, made).owner is Category.INPUTS
    assert block_of(watch, copied).owner is Category.INPUTS
    assert block_of(watch, cast).owner is None
    assert block_of(watch, torch.zeros_like(made)).owner is None
    assert block_of(watch, product).owner is None
    owners = [block.owner for block in watch.devices[0].now().blocks]
    is_kept = torch.__version__ < (2, 15)  # later ones free it after each product
    assert owners.count(Category.WORKSPACES) == is_kept
