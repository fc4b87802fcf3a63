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
    assert [text for text in texts if "MiB" in text] == ["input\n40 MiB", "result\n40 MiB"]
    assert "self\nthe same tensor" in texts


def test_the_title_is_the_finding() -> None:
    assert describe_autograd(GRAPH) == (
        "Forward keeps 40 MiB of activations for backward. 3 ops in the order of forward. 1, Mm: "
        "saves input 40 MiB (inputs). 2, Relu: saves result 40 MiB (activations). 3, Mm: saves "
        "self the same tensor (activations)."
    )
    assert draw_autograd(GRAPH, title="Look").alt.startswith("Look. 3 ops")


def test_a_whole_model_is_too_much() -> None:
    ops = tuple(GraphOp("Relu", (n - 1,) if n else (), (HIDDEN,)) for n in range(25))
    with pytest.raises(ValueError, match="25 ops save something; at most 24 can be drawn"):
        draw_autograd(AutogradGraph(ops))
