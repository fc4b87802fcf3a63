"""What the picture of a graph shows."""

from __future__ import annotations

import pytest

from vramlab.measure import AutogradGraph, Category, GraphOp, SavedPart
from vramlab.units import MIB
from vramlab_course.plots import describe_autograd, draw_autograd

X = SavedPart("self", 40 * MIB, Category.INPUTS, "input")
HIDDEN = SavedPart("result", 40 * MIB, Category.ACTIVATIONS, "")
AGAIN = SavedPart("self", 40 * MIB, Category.ACTIVATIONS, "", again=True)
GRAPH = AutogradGraph(
    (GraphOp("Mm", (), (X,)), GraphOp("Relu", (0,), (HIDDEN,)), GraphOp("Mm", (1,), (AGAIN,)))
)


def test_each_tensor_has_its_bytes_once() -> None:
    texts = [text.get_text() for text in draw_autograd(GRAPH).axes[0].texts]
    assert [text for text in texts if "MiB" in text] == ["input\n40 MiB", "output\n40 MiB"]
    assert "factor\nthe same tensor" in texts


def test_the_title_is_the_finding() -> None:
    assert describe_autograd(GRAPH) == (
        "Forward keeps 40 MiB of activations for backward. 3 ops in the order of forward. 1, "
        "matmul: saves input 40 MiB (inputs). 2, ReLU: saves output 40 MiB (activations). 3, "
        "matmul: saves factor the same tensor (activations)."
    )
    assert draw_autograd(GRAPH, title="Look").alt.startswith("Look. 3 ops")


def test_a_whole_model_is_too_much() -> None:
    ops = tuple(GraphOp("Relu", (n - 1,) if n else (), (HIDDEN,)) for n in range(25))
    with pytest.raises(ValueError, match="25 ops save something; at most 24 can be drawn"):
        draw_autograd(AutogradGraph(ops))


def test_a_linear_layer_is_called_so_and_named_after_its_module() -> None:
    def parts(weight: str) -> tuple[SavedPart, ...]:
        kept = SavedPart("mat1", 40 * MIB, Category.ACTIVATIONS, "")
        return (kept, SavedPart("mat2", 4 * MIB, Category.PARAMETERS, weight))

    ops = (
        GraphOp("Addmm", (), parts("attention.self.query.weight")),
        GraphOp("Mm", (0,), parts("0.weight")),
    )
    texts = [text.get_text() for text in draw_autograd(AutogradGraph(ops)).axes[0].texts]
    assert [text for text in texts if text in ("Linear", "query", "attention.query", "0")] == [
        "Linear",
        "attention.query",
        "Linear",  # in a Sequential, modules are but numbered
    ]
    assert [text for text in texts if "MiB" in text] == ["input\n40 MiB", "weight\n4 MiB"] * 2
