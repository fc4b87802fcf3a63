"""Rules of what a CUDA kernel takes from the caching allocator inside one op.

`TABLE` holds them; `replay` carries one out; `classify` says what is known of an op; `describe`
lists the table. The rules are grouped by what they are about, one small file each.
"""

from __future__ import annotations

from vramlab.kernels import (
    attention,
    collectives,
    convolution,
    embedding,
    gradients,
    grouped_products,
    indexing,
    losses,
    matmul,
    normalization,
    pooling,
    reductions,
    scalars,
    sorting,
)
from vramlab.kernels.classify import Knowledge, classify
from vramlab.kernels.describe import Line, describe
from vramlab.kernels.registry import (
    CUBLAS,
    CUBLASLT,
    OUTPUTS,
    TABLE,
    Allocates,
    Call,
    Give,
    GPUModel,
    KernelContext,
    Marker,
    Output,
    Rule,
    Status,
    Step,
    Table,
    Take,
    replay,
    rule,
)

__all__ = [
    "CUBLAS",
    "CUBLASLT",
    "OUTPUTS",
    "TABLE",
    "Allocates",
    "Call",
    "GPUModel",
    "Give",
    "KernelContext",
    "Knowledge",
    "Line",
    "Marker",
    "Output",
    "Rule",
    "Status",
    "Step",
    "Table",
    "Take",
    "attention",
    "classify",
    "collectives",
    "convolution",
    "describe",
    "embedding",
    "gradients",
    "grouped_products",
    "indexing",
    "losses",
    "matmul",
    "normalization",
    "pooling",
    "reductions",
    "replay",
    "rule",
    "scalars",
    "sorting",
]
