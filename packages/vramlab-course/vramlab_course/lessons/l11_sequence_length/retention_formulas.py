"""What retention (RetNet) saves, in each of its three forms.

Source: arXiv 2307.08621 §2.1 for the forms; what each op saves, tools/autograd/derivatives.yaml of
PyTorch 2.13, for `vramlab_course.lessons.l11_sequence_length.retention_experiment`, in float32.

Letters of shapes: B batch, H heads, S sequence, D head size, C tokens in a chunk.
"""

from __future__ import annotations

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes


def parallel_bytes(batch: int, heads: int, length: int, head_size: int) -> int:
    """Return what the parallel form saves besides query, key and value, including its output.

    Weights (B, H, S, S) for the product with the values, decays (H, S, S) for the weights'
    gradient: as attention, it grows with the square of the length.
    """
    weights_bytes = block_bytes(tensor_bytes((batch, heads, length, length)))
    decays_bytes = block_bytes(tensor_bytes((heads, length, length)))
    output_bytes = block_bytes(tensor_bytes((batch, heads, length, head_size)))
    return weights_bytes + decays_bytes + output_bytes


def state_bytes(batch: int, heads: int, head_size: int) -> int:
    """Return the state of the recurrent form (B, H, D, D), which is all that generation keeps."""
    return block_bytes(tensor_bytes((batch, heads, head_size, head_size)))


def chunkwise_bytes(batch: int, heads: int, length: int, head_size: int, chunk: int) -> int:
    """Return what the chunkwise form saves besides query, key and value: output and state too.

    For each chunk: weights (B, H, C, C), the decayed query and the decayed key (B, H, C, D), and a
    state (B, H, D, D). Once for all: decays within a chunk (H, C, C), to its begin (H, C, 1), to
    its end (H, C, 1) and over it (H, 1, 1). The first chunk finds a state of zeros, which needs no
    gradient, and so its decayed query is not kept.
    """
    if length % chunk:
        raise ValueError(f"{length} tokens are no whole number of chunks of {chunk}")
    chunks = length // chunk
    part_bytes = block_bytes(tensor_bytes((batch, heads, chunk, head_size)))
    weights_bytes = block_bytes(tensor_bytes((batch, heads, chunk, chunk)))
    one_state_bytes = state_bytes(batch, heads, head_size)
    shared_bytes = (
        block_bytes(tensor_bytes((heads, chunk, chunk)))
        + 2 * block_bytes(tensor_bytes((heads, chunk)))
        + block_bytes(tensor_bytes((heads,)))
    )
    return (
        chunks * (weights_bytes + part_bytes)
        + (chunks - 1) * part_bytes
        + (chunks + 1) * one_state_bytes
        + shared_bytes
        + block_bytes(tensor_bytes((batch, heads, length, head_size)))
    )
