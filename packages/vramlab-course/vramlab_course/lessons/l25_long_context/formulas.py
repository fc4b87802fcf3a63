"""Long texts: logits, layers' inputs, and what ranks send that share a text.

Source: arXiv 2310.01889 (Ring Attention) §3; arXiv 2309.14509 (Ulysses) §3.2.
"""

from __future__ import annotations


def logits_bytes(tokens: int, vocabulary: int, item_bytes: int = 2) -> int:
    """Give a number for each token and each word of the vocabulary."""
    return tokens * vocabulary * item_bytes


def checkpoints_bytes(tokens: int, width: int, layers: int, item_bytes: int = 2) -> int:
    """Give the inputs of all layers: what stays when each of them is recomputed."""
    return layers * tokens * width * item_bytes


def ring_sent_bytes(ranks: int, block_bytes: int) -> int:
    """Give what a rank sends forward: a block of keys and values in each turn but the last.

    Args:
        ranks: that share the text.
        block_bytes: keys and values of one rank's part.
    """
    return (ranks - 1) * block_bytes


def ulysses_sent_bytes(ranks: int, query_bytes: int, block_bytes: int) -> int:
    """Give what a rank sends forward: of query, key, value and output all but its own share.

    Args:
        ranks: that share the text.
        query_bytes: the query of one rank's part; its output has as many.
        block_bytes: keys and values of one rank's part.
    """
    return (ranks - 1) * (2 * query_bytes + block_bytes) // ranks


def least_block(flops_per_s: float, sent_bytes_per_s: float) -> float:
    """Give the tokens of a block from which on sending it takes no longer than attending to it.

    4 d c^2 FLOPs and 4 c d bytes, for a block of c tokens of width d (arXiv 2310.01889 §3).
    """
    return flops_per_s / sent_bytes_per_s
