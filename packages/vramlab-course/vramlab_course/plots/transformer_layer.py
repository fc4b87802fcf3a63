"""A transformer layer with its two residual connections, and what it saves for backward where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from matplotlib.patches import Rectangle

from vramlab.measure import Category
from vramlab.measure.saved_tensors import SavedTensor, SavedTensors, Whose
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Box, Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

ACTIVATIONS = CATEGORY_LOOKS[Category.ACTIVATIONS]
CASTS = ACTIVATIONS.paler(0.4)

LONGEST_IN = 0.8
"""Width of the bar of the largest tensor."""
BAR_IN = 0.13
_PITCH_IN = 0.43
_BOX_IN = 0.29
_HALVES_IN = (0.1, 4.6)
_OPS_IN, _OPS_WIDTH_IN = 0.5, 1.5
_BARS_IN = 2.22
_TOP_IN = 4.95

LABELS = {
    "input": "input",
    "input casts": "casts of the input",
    "statistics 1": "mean, scale",
    "qkv input": "output",
    "qkv casts": "casts of weights",
    "qkv": "Q, K and V",
    "softmax": "softmax",
    "softmax mask": "mask",
    "product input": "copy for @ V",
    "logsumexp": "logsumexp",
    "context": "context",
    "project casts": "cast of the weight",
    "mask 1": "mask",
    "sum 1": "sum",
    "statistics 2": "mean, scale",
    "up input": "output",
    "up casts": "cast of the weight",
    "GELU input": "GELU's input",
    "GELU output": "GELU's output",
    "down casts": "cast of the weight",
    "mask 2": "mask",
    "sum 2": "sum",
}
"""What each part is called beside its bar, in the order of the forward pass."""


@dataclass(frozen=True)
class LayerKept:
    """What one transformer layer saves for its backward pass, by place."""

    parts: Mapping[str, int]
    """Bytes by a name in `LABELS`. The input is counted although the layer before puts it out,
    and the layer's own output is not."""
    norm_first: bool
    """Whether the norms come before attention and feed-forward, as in GPT-2; else as in BERT."""
    kernel: str
    """The fused attention kernel, such as 'memory-efficient'; '' for attention step by step."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that the layer saves for its backward pass, its input included."""
        return sum(self.parts.values())


def layer_kept(saved: SavedTensors) -> LayerKept:
    """Sort the saved tensors of one transformer layer by their place in it.

    Works for layers of four or six Linear layers with GELU: BERT's in transformers, and
    `vramlab.programs.transformer.TransformerLayer`.

    Raises:
        ValueError: an op in the list is no part of such a layer.
    """
    tensors = saved.tensors
    norm_first = bool(tensors) and tensors[0].op.startswith("NativeLayerNorm")
    parts = dict.fromkeys(LABELS, 0)
    for tensor, place in zip(tensors, _places(tensors, norm_first), strict=True):
        parts[place] += tensor.kept_bytes
        if tensor.whose is Whose.INPUT:
            parts["input"] = max(parts["input"], tensor.tensor_bytes)
    kernels = [name for tensor in tensors for op, name in _KERNELS.items() if tensor.op == op]
    return LayerKept(
        {name: size for name, size in parts.items() if size},
        norm_first,
        kernels[0] if kernels else "",
    )


_KERNELS = {
    "ScaledDotProductFlashAttentionBackward0": "flash",
    "ScaledDotProductEfficientAttentionBackward0": "memory-efficient",
    "ScaledDotProductCudnnAttentionBackward0": "cuDNN",
}


def _places(tensors: tuple[SavedTensor, ...], norm_first: bool) -> Iterator[str]:
    """Name the place in the layer of each tensor."""
    linears = list(dict.fromkeys(t.module for t in tensors if t.op == "AddmmBackward0"))
    norms = list(dict.fromkeys(t.module for t in tensors if t.op.startswith("NativeLayerNorm")))
    of_linear = dict(zip(linears[-3:], ("project", "up", "down"), strict=False))
    of_qkv = "qkv input" if norm_first else "input casts"
    inputs = {"qkv": of_qkv, "project": "context", "up": "up input", "down": "GELU output"}
    of_norm = ("input", "sum 1") if norm_first else ("sum 1", "sum 2")
    masks: list[str] = []
    for tensor in tensors:
        op = tensor.op.removesuffix("Backward0")
        if op == "Addmm":
            linear = of_linear.get(tensor.module, "qkv")
            yield inputs[linear] if tensor.saved_as == "mat1" else f"{linear} casts"
        elif op == "NativeLayerNorm":
            number = norms.index(tensor.module)
            yield of_norm[number] if tensor.saved_as == "input" else f"statistics {number + 1}"
        elif op == "NativeDropout" and len(tensor.shape) == 4:
            yield "softmax mask"
        elif op == "NativeDropout":
            masks.append(f"mask {len(masks) + 1}")
            yield masks[-1]
        elif op == "Bmm":
            is_weights = tensor.shape[-1] == tensor.shape[-2] and tensor.saved_as == "self"
            yield "product input" if is_weights else "qkv"
        elif op in ("Softmax", "Gelu"):
            yield {"Softmax": "softmax", "Gelu": "GELU input"}[op]
        elif tensor.op in _KERNELS:
            kinds = {"query": "qkv", "key": "qkv", "value": "qkv", "output": "context"}
            yield kinds.get(tensor.saved_as, "logsumexp")
        else:
            raise ValueError(
                f"{tensor.op} saves a tensor of {tensor.module or 'the layer'}: the picture knows "
                "layers of Linear layers, softmax attention, dropout, GELU and LayerNorm"
            )


def bar_width_in(size_bytes: int, longest_bytes: int) -> float:
    """Return the width of a bar: in proportion to its bytes, as all bars are equally high."""
    return LONGEST_IN * size_bytes / longest_bytes


def draw_layer(
    saved: SavedTensors, *, title: str = "", recomputed: bool = False, longest_bytes: int = 0
) -> Picture:
    """Draw a transformer layer, and beside each op what is saved of its result.

    The left half is attention, with its fork of query, key and value; the right half is
    feed-forward. The grey lines are the two residual connections. Bars are in proportion to bytes.

    Args:
        saved: what `vramlab.measure.saved_by` lists for the layer, its input named.
        title: what is to be seen; the default says what the layer keeps.
        recomputed: the layer is checkpointed: the forward pass keeps its input alone, and all other
            bars are dashed, because they live only while this layer is in its backward pass.
        longest_bytes: what the longest bar stands for, to compare two pictures; the largest part
            if 0.

    Raises:
        ValueError: see `layer_kept`.
    """
    kept = layer_kept(saved)
    title = title or _finding(kept, recomputed)
    diagram = Diagram(_TOP_IN - 0.1, title)
    longest_bytes = longest_bytes or max([*kept.parts.values(), 1])
    layer = _Layer(diagram, kept, recomputed, longest_bytes)
    layer.draw_attention()
    layer.draw_feed_forward()
    looks = {"saved for backward; area in proportion to bytes": ACTIVATIONS}
    if any(name.endswith("casts") for name in kept.parts):
        looks["cast by autocast, saved for backward"] = CASTS
    diagram.key(looks)
    if recomputed:
        words = "dashed: recomputed in backward, and only then in memory"
        diagram.write(8.9, 0.15, words, ha="right")
    return diagram.finish(describe_layer(saved, title=title, recomputed=recomputed))


def describe_layer(saved: SavedTensors, *, title: str = "", recomputed: bool = False) -> str:
    """Describe what `draw_layer` draws."""
    kept = layer_kept(saved)
    parts = ", ".join(f"{LABELS[name]} {short_size(size)}" for name, size in kept.parts.items())
    attention = f"by the {kept.kernel} kernel" if kept.kernel else "step by step"
    norms = "in front of" if kept.norm_first else "behind"
    when = "Recomputed in backward" if recomputed else "Saved for backward"
    return (
        f"{title or _finding(kept, recomputed)}. A transformer layer with norms {norms} its two "
        f"halves, a residual connection around each, and attention {attention}. {when}: {parts}."
    )


def _finding(kept: LayerKept, recomputed: bool) -> str:
    if recomputed:
        return f"A checkpointed layer keeps its input, {short_size(kept.parts.get('input', 0))}"
    return f"One layer keeps {short_size(kept.kept_bytes)} for backward"


class _Layer:
    """The drawing, from top to bottom in each half."""

    def __init__(
        self, diagram: Diagram, kept: LayerKept, recomputed: bool, longest_bytes: int
    ) -> None:
        self.diagram, self.kept = diagram, kept
        self.recomputed, self.longest_bytes = recomputed, longest_bytes
        self.left, self.y = _HALVES_IN[0], _TOP_IN
        self.between = Box(0, 0, 0, 0)
        """Where attention ends."""

    def draw_attention(self) -> None:
        """Draw the input, its fork into query, key and value, and the way back to one tensor."""
        source = self.op("layer's input", plain=True)
        self.bars("input", "input casts", solid=True)
        road = source
        if self.kept.norm_first:
            source = self.op("Layer Norm", source)
            self.bars("qkv input", "statistics 1")
        forked = self.fork(source)
        joined = self.fused(forked) if self.kept.kernel else self.step_by_step(forked)
        self.bars("context")
        last = self.op("Linear", joined)
        self.bars("project casts", otherwise="not kept")
        last = self.finish_half(last, road, "1")
        if not self.kept.norm_first:
            last = self.op("Layer Norm", last)
            self.bars("up input", "statistics 1")
        self.between = last

    def draw_feed_forward(self) -> None:
        """Draw the second half, which begins where the first ended."""
        first = self.between
        self.left, self.y = _HALVES_IN[1], _TOP_IN
        source = self.op("from attention", plain=True)
        turn = _HALVES_IN[1] - 0.12
        self.diagram.path(
            first.bottom,
            (first.bottom[0], first.bottom[1] - 0.1),
            (turn, first.bottom[1] - 0.1),
            (turn, source.left[1]),
            source.left,
        )
        road = source
        if self.kept.norm_first:
            source = self.op("Layer Norm", source)
            self.bars("up input", "statistics 2")
        last = self.op("Linear, up", source)
        self.bars("GELU input", "up casts")
        last = self.op("GELU", last)
        self.bars("GELU output")
        last = self.op("Linear, down", last)
        self.bars("down casts", otherwise="not kept")
        last = self.finish_half(last, road, "2")
        if self.kept.norm_first:
            self.say("the next layer keeps it")
        else:
            last = self.op("Layer Norm", last)
            self.bars("statistics 2")
        end = last.bottom
        self.diagram.arrow(end, (end[0], end[1] - 0.25))

    def finish_half(self, last: Box, road: Box, number: str) -> Box:
        """Dropout, and the sum with the residual connection."""
        if f"mask {number}" in self.kept.parts:
            last = self.op("Dropout", last)
            self.bars(f"mask {number}")
        added = self.op("+", last)
        side = self.left + 0.2
        self.diagram.path(
            road.left, (side, road.left[1]), (side, added.left[1]), added.left, color="#999999"
        )
        self.diagram.write(
            side + 0.07, added.left[1] + 0.1, "residual", color=style.FAINT, ha="left"
        )
        self.bars(f"sum {number}")
        return added

    def fork(self, source: Box) -> list[Box]:
        """Return the three Linear layers beside each other."""
        self.y -= _PITCH_IN
        width = (_OPS_WIDTH_IN - 0.16) / 3
        boxes = []
        for place, name in enumerate(("Q", "K", "V")):
            x = self.left + _OPS_IN + place * (width + 0.08)
            boxes.append(self.diagram.box(x, self.y, width, _BOX_IN, name, bold=True))
            self.diagram.arrow(source.bottom, boxes[-1].top)
        self.bars("qkv", "qkv casts")
        return boxes

    def step_by_step(self, forked: list[Box]) -> Box:
        """Scores, softmax, dropout and the product with the values, each an op of its own."""
        query, key, value = forked
        last = self.op("Q @ K.T, scaled")
        for box in (query, key):
            x = min(box.bottom[0], last.x + last.width)
            self.diagram.arrow(box.bottom, (x, last.top[1]))
        self.say("scores: not kept")
        last = self.op("softmax", last)
        self.bars("softmax")
        if "softmax mask" in self.kept.parts:
            last = self.op("Dropout", last)
            self.bars("softmax mask", "product input")
        else:
            self.bars("product input")
        last = self.op("@ V", last)
        side = self.left + _OPS_IN + _OPS_WIDTH_IN + 0.1
        start = value.right[0], value.right[1]
        self.diagram.path(start, (side, start[1]), (side, last.right[1]), last.right)
        return last

    def fused(self, forked: list[Box]) -> Box:
        """One kernel for all of that."""
        rows = 3
        self.y -= rows * _PITCH_IN
        height = _BOX_IN + (rows - 1) * _PITCH_IN
        words = (
            f"{self.kept.kernel}\nattention kernel:\nscores, softmax,\ndropout and @ V\nin tiles"
        )
        box = self.diagram.box(
            self.left + _OPS_IN, self.y, _OPS_WIDTH_IN, height, words, bold=False
        )
        for source in forked:
            self.diagram.arrow(source.bottom, (source.bottom[0], self.y + height))
        if sums := self.kept.parts.get("logsumexp"):
            self.bar("logsumexp", sums, _PITCH_IN + _BOX_IN / 2)
        return box

    def op(self, name: str, source: Box | None = None, *, plain: bool = False) -> Box:
        """Draw the next box below, with an arrow from the one before it."""
        self.y -= _PITCH_IN
        width = 0.4 if name == "+" else _OPS_WIDTH_IN
        x = self.left + _OPS_IN + (_OPS_WIDTH_IN - width) / 2
        box = self.diagram.box(x, self.y, width, _BOX_IN, name, bold=not plain, dashed=plain)
        if source is not None:
            self.diagram.arrow((box.top[0], source.y), box.top)
        return box

    def bars(self, *names: str, otherwise: str = "", solid: bool = False) -> None:
        """Draw a bar for each of these parts that the layer keeps, beside the last op."""
        kept = [name for name in names if self.kept.parts.get(name)]
        if not kept and otherwise:
            self.say(otherwise)
        for place, name in enumerate(kept, start=1):
            middle_in = _BOX_IN / 2 + 0.17 * ((len(kept) + 1) / 2 - place)
            self.bar(name, self.kept.parts[name], middle_in, solid=solid)

    def bar(self, name: str, size_bytes: int, above_in: float, *, solid: bool = False) -> None:
        """Draw one bar, its middle so far above the lower edge of the last op."""
        x, y = self.left + _BARS_IN, self.y + above_in
        width = bar_width_in(size_bytes, self.longest_bytes)
        look = CASTS if name.endswith("casts") else ACTIVATIONS
        if self.recomputed and not solid:
            edge = Rectangle((x, y - BAR_IN / 2), width, BAR_IN, fill=False, linestyle=(0, (2, 1)))
            self.diagram.axes.add_patch(edge)
        else:
            self.diagram.area(x, y - BAR_IN / 2, width, BAR_IN, look, edged=width > 0.05)
        words = f"{LABELS[name]} {size_label(size_bytes)}"
        self.diagram.write(x + width + 0.06, y, words, ha="left")

    def say(self, words: str) -> None:
        """Write beside the last op that it keeps nothing."""
        middle = self.y + _BOX_IN / 2
        self.diagram.write(self.left + _BARS_IN, middle, words, color=style.FAINT, ha="left")
