"""The graph that backward walks, and what each of its ops keeps in memory for that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramlab.measure import Category
from vramlab.measure.autograd_graph import AutogradGraph, GraphOp, SavedPart
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Box, Diagram
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_MOST = 24
_PER_ROW = 6
_OP_HEIGHT_IN = 0.46
_PART_HEIGHT_IN = 0.42
_GAP_IN = 0.07
_ROW_GAP_IN = 0.5
_MARGIN_IN = 0.45
_ARC_IN = 0.35
"""What an arrow over one op needs above the first row."""

Held = tuple[Category, bool, tuple[SavedPart, ...]]
"""What one op saves of one category: whether another op has saved it already, and the tensors."""


def draw_autograd(graph: AutogradGraph, *, title: str = "") -> Picture:
    """Draw the ops of a graph in the order of the forward pass, and below each what it saves.

    For example `draw_autograd(autograd_graph(model(x).sum(), model=model, inputs=x))`. Orange is
    kept alive for backward alone; inputs and parameters live anyway. A dashed box is a tensor that
    an op before has saved already. Of long graphs, ops that save nothing are left out.

    Args:
        graph: from `vramlab.measure.autograd_graph`.
        title: what is to be seen; the default says what forward keeps.

    Raises:
        ValueError: the graph has more ops than can be read in a picture.
    """
    title = title or _finding(graph)
    ops = _shown(graph).ops
    per_row = -(-len(ops) // -(-len(ops) // _PER_ROW))  # as full as each other, nearly
    rows = [ops[first : first + per_row] for first in range(0, len(ops), per_row)]
    headroom = _ARC_IN if any(n - 2 in op.sources for n, op in enumerate(rows[0])) else 0.0
    diagram = Diagram(sum(map(_height, rows)) + 0.3 + headroom, title)
    pitch = min((WIDTH_IN - 2 * _MARGIN_IN + 0.35) / max(map(len, rows)), 2.0)
    boxes: list[Box] = []
    y = diagram.height_in - headroom + _ROW_GAP_IN - 0.15
    for row in rows:
        y -= _ROW_GAP_IN + _OP_HEIGHT_IN
        for column, op in enumerate(row):
            boxes.append(_draw_op(diagram, op, len(boxes), _MARGIN_IN + column * pitch, y, pitch))
        y -= _height(row) - _ROW_GAP_IN - _OP_HEIGHT_IN
    for number, op in enumerate(ops):
        for source in op.sources:
            _join(diagram, boxes, source, number)
    shown = {category for op in ops for category, _, _ in _held(op)}
    diagram.key(
        {words: CATEGORY_LOOKS[what] for what, words in _MEANINGS.items() if what in shown},
        _MARGIN_IN,
    )
    return diagram.finish(describe_autograd(graph, title=title))


_MEANINGS = {
    Category.ACTIVATIONS: "activations: kept for backward alone",
    Category.INPUTS: "inputs: live anyway",
    Category.PARAMETERS: "parameters: live anyway",
}


def describe_autograd(graph: AutogradGraph, *, title: str = "") -> str:
    """Describe what `draw_autograd` draws."""
    ops = _shown(graph).ops
    told = " ".join(
        f"{number}, {_name(op)}: {_saved_text(op)}." for number, op in enumerate(ops, 1)
    )
    return f"{title or _finding(graph)}. {len(ops)} ops in the order of forward. {told}"


def _shown(graph: AutogradGraph) -> AutogradGraph:
    if len(graph.ops) > _PER_ROW:
        graph = graph.folded()
    if len(graph.ops) > _MOST:
        raise ValueError(
            f"{len(graph.ops)} ops save something; at most {_MOST} can be drawn: take one layer"
        )
    return graph


def _finding(graph: AutogradGraph) -> str:
    return f"Forward keeps {short_size(graph.kept_bytes)} of activations for backward"


def _saved_text(op: GraphOp) -> str:
    held = [f"{_words(op, parts)} ({category})" for category, _, parts in _held(op)]
    return "saves " + ", ".join(held).replace("\n", " ") if held else "saves nothing"


def _name(op: GraphOp) -> str:
    """Return the op in words: 'NativeLayerNorm' is 'Layer Norm', and 'Addmm' a 'Linear' layer."""
    name = op.name.removeprefix("Native").removeprefix("ScaledDotProduct")
    if _is_linear(op):
        return "Linear"
    return _CALLED.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


def _is_linear(op: GraphOp) -> bool:
    """Whether it is what a Linear layer does; without a bias, that is a product with a weight."""
    has_weight = any(part.category is Category.PARAMETERS for part in op.saved)
    return op.name == "Addmm" or (op.name == "Mm" and has_weight)


_CALLED = {"Mm": "matmul", "Bmm": "matmul", "Gelu": "GELU", "Relu": "ReLU"}
"""What people call an op in their programs, where autograd's node is named after something else."""

_FACTORS = ("Mm", "Bmm", "Mul", "Div")
_PARTS = {"self": "input", "mat1": "input", "result": "output", "result1": "mask"}
"""What a saved tensor is to its op; of products, all are factors."""


def _role(op: GraphOp, part: SavedPart) -> str:
    if part.name:
        return part.name.rpartition(".")[2]
    if op.name in _FACTORS and not _is_linear(op):
        return "factor"
    return _PARTS.get(part.saved_as, part.saved_as)


def _module(op: GraphOp, width_in: float) -> str:
    """Return the module whose weight an op has, shortened to fit; '' without a named one."""
    named = next((p.name for p in op.saved if p.category is Category.PARAMETERS and p.name), "")
    path = [part for part in named.split(".")[:-1] if part != "self"]
    tails = (".".join(path[place:]) for place in range(len(path)))
    tail = next((tail for tail in tails if style.text_width_in(tail) < width_in), "")
    is_said = tail.replace("_", "").lower() == _name(op).replace(" ", "").lower()
    return "" if is_said or tail.isdecimal() else tail


def _held(op: GraphOp) -> list[Held]:
    """Return boxes of what an op saves, by category and whether it existed; activations first."""
    groups: dict[tuple[Category, bool], list[SavedPart]] = {}
    for part in op.saved:
        groups.setdefault((part.category, part.again), []).append(part)
    order = list(_MEANINGS)
    return [
        (category, again, tuple(parts))
        for (category, again), parts in sorted(
            groups.items(), key=lambda group: (order.index(group[0][0]), group[0][1])
        )
    ]


def _words(op: GraphOp, parts: tuple[SavedPart, ...]) -> str:
    names = [_role(op, part) for part in parts]
    name = names[0] if len(names) == 1 else f"{len(names)} tensors"
    if len(names) > 1 and len(set(names)) == 1:
        name = f"{len(names)} {names[0]}s"
    what = "the same tensor" if parts[0].again else size_label(sum(p.size_bytes for p in parts))
    return f"{name}\n{what}"


def _height(row: tuple[GraphOp, ...]) -> float:
    most = max([1, *(len(_held(op)) for op in row)])
    return _ROW_GAP_IN + _OP_HEIGHT_IN + most * (_PART_HEIGHT_IN + _GAP_IN)


def _draw_op(diagram: Diagram, op: GraphOp, number: int, x: float, y: float, pitch: float) -> Box:
    width = pitch - 0.35
    lines = list(_wrapped(_name(op).split(), width))
    module = _module(op, width) if len(lines) == 1 else ""
    box = diagram.box(x, y, width, _OP_HEIGHT_IN, "" if module else "\n".join(lines), bold=True)
    if module:
        diagram.write(*_above(box, 0.09), lines[0], bold=True)
        diagram.write(*_above(box, -0.1), module, color=style.FAINT)
    diagram.write(x, y + _OP_HEIGHT_IN + 0.09, f"{number + 1}", color=style.FAINT, ha="left")
    for place, (category, again, parts) in enumerate(_held(op), start=1):
        below = y - place * (_PART_HEIGHT_IN + _GAP_IN)
        look = CATEGORY_LOOKS[category]
        diagram.box(x, below, width, _PART_HEIGHT_IN, _words(op, parts), look, dashed=again)
    if not op.saved:
        diagram.write(x + width / 2, y - 0.17, "saves nothing", color=style.FAINT)
    return box


def _above(box: Box, inches: float) -> tuple[float, float]:
    """Return a point so far above a box's middle."""
    return box.x + box.width / 2, box.y + box.height / 2 + inches


def _wrapped(words: list[str], width_in: float) -> Iterator[str]:
    line = ""
    for word in words:
        if line and style.text_width_in(f"{line} {word}") > width_in:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def _join(diagram: Diagram, boxes: list[Box], source: int, target: int) -> None:
    start, end = boxes[source], boxes[target]
    if start.y == end.y and target == source + 1:
        diagram.arrow(start.right, end.left)
    elif start.y == end.y and target == source + 2:
        diagram.arrow(start.top, end.top, bend=-0.22)
    elif target == source + 1:
        right, left, between = WIDTH_IN - 0.2, 0.2, end.y + _OP_HEIGHT_IN + 0.27
        diagram.path(
            start.right,
            (right, start.right[1]),
            (right, between),
            (left, between),
            (left, end.left[1]),
            end.left,
        )
    else:
        place = end.top[0], end.top[1] + 0.09
        diagram.write(*place, f"and from {source + 1}", color=style.FAINT)
