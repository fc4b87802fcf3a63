"""Long context: logits, layers' inputs, and the traffic of context parallelism.

Source: arXiv 2310.01889 (Ring Attention) §3; arXiv 2309.14509 (Ulysses) §3.2.
"""

from __future__ import annotations


def logits_bytes(tokens: int, vocabulary: int, item_bytes: int = 2) -> int:
    """Return the bytes of the logits: one number for each token and vocabulary entry."""
    return tokens * vocabulary * item_bytes


def checkpoints_bytes(tokens: int, width: int, layers: int, item_bytes: int = 2) -> int:
    """Return the inputs of all layers, which stay if each layer is recomputed."""
    return layers * tokens * width * item_bytes


def ring_sent_bytes(ranks: int, block_bytes: int) -> int:
    """Return what a rank sends in the forward pass: its keys and values, in all turns but one.

    Args:
        ranks: that share the text.
        block_bytes: keys and values of one rank's part.
    """
    return (ranks - 1) * block_bytes


def least_block(flops_per_s: float, sent_bytes_per_s: float) -> float:
    """Return the smallest block, in tokens, whose attention takes as long as sending it.

    4 d c^2 FLOPs and 4 c d bytes, for a block of c tokens of width d (arXiv 2310.01889 §3).
    """
    return flops_per_s / sent_bytes_per_s
