"""What is kept for the backward pass, asked of autograd through its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vramlab import VirtualGPU
from vramlab.measure.saved_tensors import Whose, record_saved_tensors, saved_by


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def leaf(*shape: int) -> Tensor:
    return torch.zeros(*shape, device="cuda", requires_grad=True)


def test_relu_keeps_its_output_and_gelu_its_input() -> None:
    x = leaf(1024)
    (relu,) = saved_by(lambda: torch.relu(x), inputs=x).tensors
    assert (relu.op, relu.saved_as, relu.whose) == ("ReluBackward0", "result", Whose.OUTPUT)
    assert relu.kept_bytes == 1024 * 4
    (gelu,) = saved_by(lambda: functional.gelu(x), inputs=x).tensors
    assert (gelu.op, gelu.saved_as, gelu.whose) == ("GeluBackward0", "self", Whose.INPUT)
    assert gelu.kept_bytes == 0


def test_a_storage_is_counted_once() -> None:
    x = leaf(256)

    def program() -> Tensor:
        middle = x * 2
        return middle.sin() + middle.view(16, 16).cos().sum()

    saved = saved_by(program, inputs=x)
    assert [(tensor.op, tensor.whose, tensor.name) for tensor in saved.tensors] == [
        ("SinBackward0", Whose.NEW, ""),
        ("CosBackward0", Whose.EARLIER, "number 1"),
    ]
    assert saved.kept_bytes == 256 * 4


def test_parameters_and_inputs_are_told_apart() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)).cuda()
    x = leaf(32, 8)
    saved = saved_by(lambda: model(x), model, inputs=x)
    assert {(t.module, t.saved_as, t.whose, t.name) for t in saved.tensors} == {
        ("0", "mat1", Whose.INPUT, "input"),
        ("0", "mat2", Whose.PARAMETER, "0.weight"),
        ("1", "mat1", Whose.NEW, ""),
        ("1", "mat2", Whose.PARAMETER, "1.weight"),
    }
    assert saved.kept_bytes == 32 * 16 * 4
    assert saved.kept_bytes_by(lambda tensor: tensor.module) == {"0": 0, "1": 32 * 16 * 4}


def test_what_is_kept_is_what_the_gpu_holds() -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Dropout(), nn.Linear(512, 512)).cuda()
    x = torch.zeros(1024, 512, device="cuda")
    model(x)  # takes cuBLAS's workspace
    before_bytes = torch.cuda.memory_allocated()
    with record_saved_tensors(model, inputs=x) as recording:
        y = model(x)
    grown_bytes = torch.cuda.memory_allocated() - before_bytes
    saved = recording.saved(y)
    # GELU's input and the second Linear's input 2 MiB each, the mask 0.5 MiB
    assert saved.kept_bytes == 2 * 1024 * 512 * 4 + 1024 * 512
    # and the output, which no op saves
    assert grown_bytes == saved.kept_bytes + 1024 * 512 * 4


def test_a_part_keeps_its_whole_storage() -> None:
    x = leaf(1000)
    saved = saved_by(lambda: (x * 1.0)[:10].sin())
    (sine,) = saved.tensors
    assert (sine.tensor_bytes, sine.storage_bytes) == (10 * 4, 1000 * 4)
    assert saved.kept_bytes == 1000 * 4


def test_nothing_is_kept_after_backward_nor_by_the_recording() -> None:
    x = leaf(4096)
    before_bytes = torch.cuda.memory_allocated()
    with record_saved_tensors(inputs=x) as recording:
        loss = torch.relu(x).sin().sum()
    assert len(recording.saved(loss).tensors) == 2
    loss.backward()
    assert recording.saved(loss).tensors == ()
    x.grad = None
    del loss
    assert torch.cuda.memory_allocated() == before_bytes


def test_a_graph_that_is_dropped_keeps_nothing() -> None:
    x = leaf(4096)
    with record_saved_tensors(inputs=x) as recording:
        torch.relu(x)
    assert recording.saved().tensors == ()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x > 0)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


def test_a_function_in_python_is_named() -> None:
    x = leaf(64)
    saved = saved_by(lambda: Double.apply(x), inputs=x)  # type: ignore[no-untyped-call]
    assert [(t.op, t.saved_as, t.whose) for t in saved.tensors] == [
        ("DoubleBackward", "saved_tensors", Whose.INPUT),
        ("DoubleBackward", "saved_tensors", Whose.NEW),
    ]
    assert saved.kept_bytes == 64  # one byte for each bool


def test_a_checkpoint_keeps_its_input() -> None:
    x = leaf(64)
    with record_saved_tensors(inputs=x) as recording:
        y = checkpoint(lambda t: t.sin().cos().tanh(), x * 1.0, use_reentrant=False)
    # the product, and nothing of what lies between it and y
    assert recording.saved(y).kept_bytes == 64 * 4


def test_a_saved_tensor_that_was_written_to_is_noticed_as_without_hooks() -> None:
    x = leaf(64)
    with record_saved_tensors(inputs=x) as recording:
        y = torch.relu_(torch.sigmoid(x))
    recording.saved(y)
    message = (
        r"modified by an inplace operation: \(64,\), saved by SigmoidBackward0, is at version 1"
    )
    with pytest.raises(RuntimeError, match=message):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.relu_(torch.sigmoid(x)).sum().backward()


def test_the_table_numbers_what_others_refer_to() -> None:
    x = leaf(16, 16)
    saved = saved_by(lambda: torch.relu(x), inputs=x)
    table = saved.table()
    assert table.caption == "1 saved tensor keeps 0.0010 MiB (1,024 B)"
    assert table.rows == (
        (
            "1",
            "ReluBackward0\nresult",
            "16 x 16",
            "float32",
            "1,024",
            "output: output",
            "1,024",
        ),
    )
    assert str(saved) == str(table)
