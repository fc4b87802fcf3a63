"""What the picture of a graph shows."""

from __future__ import annotations

from vramlab.measure import AutogradGraph, Category, GraphOp, SavedPart
from vramlab.units import MIB
from vramlab_course.plots import draw_autograd

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
