"""Tensor parallelism, with and without sequence parallelism: memory and traffic of a rank.

The layer is the transformer layer that arXiv 2205.05198 §4 counts, in 16 bit with dropout: norms in
front, attention step by step, GELU, a feed-forward layer of four times the width. It is cut as in
arXiv 1909.08053 (Megatron-LM): query, key, value and the first feed-forward layer by columns, the
attention's output and the second feed-forward layer by rows.

    whole      one GPU has all of it
    tensor     matrices are cut; norms, dropout and what goes from block to block are on every rank
    sequence   matrices are cut, and between them each rank has a part of every sequence

Twice: as the paper counts, and as PyTorch 2.13 does it with torch.distributed.tensor.parallel, to
the byte. Letters of shapes: B batch, S sequence, W width, H heads, N ranks. N divides S and H.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.collectives import Kind, interconnects_of, link_seconds, ring_sent_bytes
from vramlab.cuda_rules.durations import compute_seconds
from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes, tensor_bytes
from vramlab.programs.divisions import DIVISIONS as DIVISIONS
from vramlab.programs.divisions import ORDERS as ORDERS
from vramlab.programs.divisions import Cut as Cut
from vramlab.programs.divisions import Division as Division
from vramlab.programs.divisions import Order as Order
from vramlab.programs.transformer_memory import paper_layer_terms

Call = tuple[Kind, int]
"""A collective, and the bytes of the whole tensor."""

_OUTSIDE = (
    "attention norm: input",
    "attention: input",
    "attention: dropout mask",
    "feed-forward norm: input",
    "feed-forward: input",
    "feed-forward: dropout mask",
)
"""Terms of a layer that lie outside of the matrices: tensor parallelism alone does not cut them."""

_GATHERED = ("attention: input", "feed-forward: input")
"""Of these, what has to be whole for the matrices cut by columns."""

_TENSORS = {"attention: query, key, value": 3}
"""Terms that are several tensors."""


# ---- As the paper counts ----


def paper_kept_bytes(
    batch: int, sequence: int, width: int, heads: int, ranks: int, division: Division = "tensor"
) -> int:
    """Return the activations of one layer on each rank, by arXiv 2205.05198.

    Whole: sbh (34 + 5 as/h), equation 1. Tensor: sbh (10 + 24/t + 5 as/(ht)), equation 2. Sequence:
    sbh/t (34 + 5 as/h), equation 4.
    """
    terms = paper_layer_terms(batch, sequence, width, heads)
    return sum(size // (ranks if _is_cut(name, division) else 1) for name, size in terms.items())


def _is_cut(name: str, division: Division) -> bool:
    return division == "sequence" or (division == "tensor" and name not in _OUTSIDE)


# ---- As PyTorch does it ----


def kept_terms(
    batch: int,
    sequence: int,
    width: int,
    heads: int,
    ranks: int = 1,
    division: Division = "whole",
    *,
    dropout: bool = True,
) -> Mapping[str, int]:
    """Return what the forward pass of one layer in 16 bits saves on each rank, in blocks.

    It differs from the paper in two things. Norms keep float32 statistics of each row, which the
    paper neglects. And with the sequence cut, the paper keeps only a rank's own part of what comes
    into the matrices and gathers it again in the backward pass; PyTorch keeps what it has
    gathered, because autograd saves a Linear layer's input.
    """
    kept = {}
    for name, size in paper_layer_terms(batch, sequence, width, heads).items():
        gathered = division == "sequence" and name in _GATHERED
        part = size if gathered or not _is_cut(name, division) else size // ranks
        tensors = _TENSORS.get(name, 1)
        kept[name] = tensors * block_bytes(part // tensors)
    if not dropout:
        kept = {name: size for name, size in kept.items() if "dropout mask" not in name}
        # Softmax saves its result, and the product the same tensor.
        del kept["attention: softmax as the product's operand"]
    rows = batch * sequence // (ranks if division == "sequence" else 1)
    for norm in ("attention norm", "feed-forward norm"):
        kept[f"{norm}: statistics"] = 2 * block_bytes(4 * rows)
    return kept


def kept_bytes(
    batch: int,
    sequence: int,
    width: int,
    heads: int,
    ranks: int = 1,
    division: Division = "whole",
    *,
    dropout: bool = True,
) -> int:
    """Return the sum of `kept_terms`."""
    terms = kept_terms(batch, sequence, width, heads, ranks, division, dropout=dropout)
    return sum(terms.values())


def kept_parts(
    batch: int,
    sequence: int,
    width: int,
    heads: int,
    ranks: int = 1,
    division: Division = "whole",
) -> dict[str, int]:
    """Return the sums of `kept_terms` by place: outside the matrices, attention, feed-forward."""
    parts = {"norms, inputs, last masks": 0, "inside attention": 0, "inside feed-forward": 0}
    outside, attention, feed_forward = parts
    for name, size in kept_terms(batch, sequence, width, heads, ranks, division).items():
        if name in _OUTSIDE or "statistics" in name:
            parts[outside] += size
        else:
            parts[attention if name.startswith("attention") else feed_forward] += size
    return parts


def parameter_shapes(width: int, ranks: int = 1) -> list[tuple[int, ...]]:
    """Return the shapes of a layer's parameters on each rank, in the order of `parameters()`.

    Weights are (outputs, inputs), as nn.Linear stores them. A bias goes with the outputs: it is cut
    with columns. Behind rows, and in norms, every rank has all of it.
    """
    part, inner = width // ranks, 4 * width // ranks
    norm: list[tuple[int, ...]] = [(width,), (width,)]
    column: list[tuple[int, ...]] = [(part, width), (part,)]
    return [
        *norm,
        *(3 * column),
        *((width, part), (width,)),
        *norm,
        *((inner, width), (inner,)),
        *((width, inner), (width,)),
    ]


def parameters(width: int, ranks: int = 1) -> int:
    """Return the parameters of a layer on each rank: 12 W^2 / N + 7 W / N + 6 W."""
    return sum(tensor_bytes(shape, "int8") for shape in parameter_shapes(width, ranks))


def parameters_bytes(width: int, ranks: int = 1, dtype: str = "float16") -> int:
    """Return a rank's parameters in blocks; gradients and each of Adam's states are as large."""
    return sum(block_bytes(tensor_bytes(shape, dtype)) for shape in parameter_shapes(width, ranks))


# ---- What is sent ----


def layer_calls(
    batch: int,
    sequence: int,
    width: int,
    division: Division,
    *,
    backward: bool = False,
    shared_input: bool = True,
    dtype: str = "float16",
) -> list[Call]:
    """Return the collectives of one layer in the forward pass, or in the backward pass.

    All are of the tensor (B, S, W) that goes from block to block. Tensor: an all-reduce at the end
    of attention and one at the end of feed-forward; in backward one at the beginning of each.
    Sequence: an all-gather in front of each and a reduce-scatter behind, both ways.

    Args:
        batch: sequences.
        sequence: tokens of each.
        width: of the layer.
        division: see the module.
        backward: which pass.
        shared_input: whether query, key and value take their input as one distributed tensor. If
            each makes its own, its gradient is reduced three times.
        dtype: of activations.
    """
    whole_bytes = tensor_bytes((batch, sequence, width), dtype)
    if division == "whole":
        return []
    if division == "sequence":
        return [("all-gather", whole_bytes), ("reduce-scatter", whole_bytes)] * 2
    return [("all-reduce", whole_bytes)] * (4 if backward and not shared_input else 2)


def sent_bytes(calls: list[Call], ranks: int) -> int:
    """Return what a rank sends in collectives around a ring."""
    return sum(ring_sent_bytes(kind, whole_bytes, ranks) for kind, whole_bytes in calls)


def layer_flops(batch: int, sequence: int, width: int, ranks: int = 1) -> int:
    """Return the FLOPs of a layer's matrix products on each rank, forward and backward.

    Forward: 24 W^2 for each token, and 4 S W for its scores and their use; backward twice that.
    """
    tokens = batch * sequence
    return 3 * tokens * (24 * width**2 + 4 * sequence * width) // ranks


def modelled_times(
    card: GPUModel,
    *,
    utilization: float,
    ranks: int = 8,
    batch: int = 2,
    sequence: int = 2048,
    width: int = 4096,
) -> dict[str, float]:
    """Return the seconds of a divided layer's arithmetic, and of its all-reduces by each link.

    Args:
        card: the GPU whose rates count; links at their peak.
        utilization: the fraction of its peak that arithmetic reaches.
        ranks: that divide the layer.
        batch: sequences in a step.
        sequence: tokens of each.
        width: the hidden size.
    """
    calls = [
        call
        for backward in (False, True)
        for call in layer_calls(batch, sequence, width, "tensor", backward=backward)
    ]
    sent = sent_bytes(calls, ranks)
    flops = layer_flops(batch, sequence, width, ranks)
    times = {"arithmetic": compute_seconds(flops, card, "float16") / utilization}
    return times | {link: link_seconds(sent, card, link) for link in interconnects_of(card)}


def logits_kept_bytes(rows: int, vocabulary: int, ranks: int, dtype: str = "float16") -> int:
    """Return what cross entropy saves of sharded logits: the output of log-softmax."""
    return block_bytes(rows * vocabulary // ranks * ITEM_BYTES[dtype])
