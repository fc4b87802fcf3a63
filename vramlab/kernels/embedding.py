"""Rule of the gradient of an embedding's weight: sort the tokens, then sum the rows of each."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from vramlab.kernels.cub import radix_sort_bytes, scan_bytes, unique_by_key_bytes
from vramlab.kernels.operands import accumulate_bytes, contiguous
from vramlab.kernels.registry import OUTPUTS, Call, Give, Step, Take, rule

_ONE_KERNEL_UP_TO = 3072  # indices
_ROWS_PER_THREAD = 10


def partial_rows(index_count: int, weight_rows: int) -> int:
    """How many rows of partial sums there can be: one per token, and one per 10 repetitions."""
    return index_count // _ROWS_PER_THREAD + min(index_count, weight_rows)


@rule(
    "aten.embedding_dense_backward.default",
    takes="beyond 3072 indices: sorted indices and their places, the sort's storage, and a float32 "
    "row for each different token and for each 10 indices",
    source="aten/src/ATen/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu, PyTorch 2.13",
)
def embedding_dense_backward(
    call: Call,
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Iterable[Step]:
    """Known limitation: the storage of the two scans of `scale_grad_by_freq` is not counted."""
    count, width, index_bytes = indices.numel(), grad_output.shape[-1], indices.element_size()
    model = call.launch.model
    yield from contiguous(indices, "the indices")
    yield from contiguous(grad_output, "the gradient")
    if count <= _ONE_KERNEL_UP_TO and not scale_grad_by_freq:
        yield OUTPUTS
        return

    yield Take(count * index_bytes, "sorted indices")
    yield Take(count * index_bytes, "their places before")
    yield Take(count * index_bytes, "places in order")
    yield Take(radix_sort_bytes(count, index_bytes, index_bytes, model), "storage of the sort")
    yield Give("storage of the sort")
    yield Give("places in order")
    if scale_grad_by_freq:
        yield Take(count * index_bytes, "how often each index is there")

    yield OUTPUTS
    yield Take(count * index_bytes, "where each token begins")
    yield Take(8, "number of tokens")
    yield Take(count * index_bytes, "different tokens")
    yield Take(unique_by_key_bytes(count, model), "storage of the selection")
    yield Give("storage of the selection")
    yield Give("different tokens")

    tokens = min(count, num_weights)
    yield Take(tokens * index_bytes, "partial sums of each token")
    yield Take(tokens * index_bytes, "where they begin")
    yield Take(scan_bytes(tokens, index_bytes), "storage of the scan")
    yield Give("storage of the scan")
    yield Take(8, "number of partial sums")
    rows = partial_rows(count, num_weights)
    yield Take(rows * index_bytes, "indices of each partial sum")
    yield Take(rows * width * accumulate_bytes(grad_output.dtype), "partial sums")
