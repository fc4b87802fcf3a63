"""What attention saves for backward, kernel by kernel, and BERT's growth with sequence length.

Letters of shapes: B batch, H heads, S sequence, D head size, W width. Scores are (B, H, S, S).

Source: what each op saves, in tools/autograd/derivatives.yaml; the math path,
`_scaled_dot_product_attention_math` in aten/src/ATen/native/transformers/attention.cpp; what the
fused kernels return, aten/src/ATen/native/transformers/cuda/attention.cu. PyTorch 2.13.
"""

from __future__ import annotations

from typing import Literal, get_args

from vramlab.cuda_rules.rounding import round_up
from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes, tensor_bytes
from vramlab_course.formulas.bert import Attention, Bert

AttentionKind = Literal["step by step", "math", "memory-efficient", "flash", "cuDNN"]
"""Step by step: as transformers' "eager". The others are backends of PyTorch's SDPA."""

KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
FUSED = ("memory-efficient", "flash", "cuDNN")

_EFFICIENT_ALIGNMENT = 32
_RANDOM_STATE_BLOCKS = 2
"""Seed and offset of the random numbers: two small tensors on the GPU."""


def score_bytes(kind: AttentionKind, dtype: str = "float32", dropout: bool = False) -> int:
    """Return the bytes saved per attention score, that is per pair of tokens in each head.

    The softmax keeps its result. Dropout keeps a mask of one byte, and its own result is kept by
    the product with the values. The math path computes in float32, whatever it is given.
    """
    if kind in FUSED:
        return 0
    item_bytes = 4 if kind == "math" else ITEM_BYTES[dtype]
    return 2 * item_bytes + 1 if dropout else item_bytes


def kept_bytes(
    kind: AttentionKind,
    batch: int,
    heads: int,
    length: int,
    head_size: int,
    dtype: str = "float32",
    dropout: bool = False,
) -> int:
    """Return what attention saves for backward besides query, key and value, including its output.

    Queries and keys are equally long, and nothing is masked. Head sizes that are no multiple of 8
    are padded by flash attention, which then keeps padded copies of all three: not counted here.
    """
    one = batch * heads * length * head_size  # elements of the query
    scores = batch * heads * length * length
    output_bytes = block_bytes(one * ITEM_BYTES[dtype])
    rows = batch * heads * length
    if kind == "memory-efficient":  # the logsumexp of each row, rows of a head filled up
        aligned = round_up(length, _EFFICIENT_ALIGNMENT)
        return output_bytes + block_bytes(4 * batch * heads * aligned)
    if kind in ("flash", "cuDNN"):
        return output_bytes + block_bytes(4 * rows) + _RANDOM_STATE_BLOCKS * block_bytes(8)
    item_bytes = 4 if kind == "math" else ITEM_BYTES[dtype]
    total_bytes = output_bytes + block_bytes(item_bytes * scores)  # the softmax
    if dropout:
        total_bytes += block_bytes(scores) + block_bytes(item_bytes * scores)
    if kind == "math":  # query and key, each scaled; and a float32 copy of the values
        copies = 2 if dtype == "float32" else 3
        total_bytes += copies * block_bytes(item_bytes * one)
    return total_bytes


def quadratic_bytes(
    layers: int, heads: int, dtype: str = "float32", dropout: bool = True, batch: int = 1
) -> int:
    """Return the bytes per squared token that a stack of layers saves with eager attention.

    For BERT-base in train mode 12 x 12 x (4 + 1 + 4) B = 1296 B, which is 0.00124 MiB.
    """
    return batch * layers * heads * score_bytes("step by step", dtype, dropout)


def bert_held_bytes(
    sizes: Bert, batch: int, sequence: int, training: bool, fused: bool = False
) -> int:
    """Return allocated memory after a forward pass: model, input and saved tensors.

    Without workspaces and unsplit remainders.

    Args:
        sizes: of the model.
        batch: texts.
        sequence: tokens of each.
        training: train mode, with dropout; else eval mode.
        fused: memory-efficient attention, which keeps a logsumexp instead of the scores and of
            what dropout makes of them.
    """
    model_bytes = sum(map(block_bytes, sizes.model_requests_bytes()))
    input_bytes = block_bytes(tensor_bytes((batch, sequence), "int64"))
    attention: Attention = "efficient" if fused else "eager"
    forward_bytes = sizes.forward_bytes(batch, sequence, train=training, attention=attention)
    return model_bytes + input_bytes + forward_bytes
