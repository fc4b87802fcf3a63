"""What each op of a graph saves, read from real programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import Category, SavedPart, autograd_graph
from vramlab.units import MIB


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def test_each_op_has_what_it_saves() -> None:
    model = nn.Sequential(
        nn.Linear(1024, 512, bias=False), nn.ReLU(), nn.Linear(512, 512, bias=False)
    ).to("cuda")
    x = torch.zeros(2048, 1024, device="cuda")
    graph = autograd_graph(model(x).sum(), model=model, inputs=x)
    hidden = 2048 * 512 * 4
    assert [(op.name, op.sources, set(op.saved)) for op in graph.ops] == [
        ("Mm", (), {SavedPart("self", 8 * MIB, Category.INPUTS, "input")}),
        ("Relu", (0,), {SavedPart("result", hidden, Category.ACTIVATIONS, "")}),
        (
            "Mm",
            (1,),
            {
                SavedPart("self", hidden, Category.ACTIVATIONS, "", again=True),
                SavedPart("mat2", MIB, Category.PARAMETERS, "2.weight"),
            },
        ),
        ("Sum", (2,), set()),
    ]
    assert graph.kept_bytes == hidden == 4 * MIB


def test_views_around_a_batched_product_are_passed_over() -> None:
    x = torch.zeros(2, 8, 4, device="cuda", requires_grad=True)
    graph = autograd_graph((x @ x.transpose(-2, -1)).softmax(-1), inputs=x)
    # matmul expands both factors, multiplies them, and gives the product its shape
    assert [(op.name, op.sources) for op in graph.ops] == [("Bmm", ()), ("Softmax", (0,))]


def test_what_saves_nothing_between_two_ops_is_folded() -> None:
    weight = torch.zeros(8, 8, device="cuda", requires_grad=True)
    graph = autograd_graph((weight.exp().clone() + weight.sin()).clone().sum())
    assert [op.name for op in graph.ops] == ["Exp", "Clone", "Sin", "Add", "Clone", "Sum"]
    folded = graph.folded()
    assert [(op.name, op.sources) for op in folded.ops] == [
        ("Exp", ()),
        ("Sin", ()),
        ("Add", (0, 1)),
        ("Sum", (2,)),
    ]
    assert folded.kept_bytes == graph.kept_bytes
