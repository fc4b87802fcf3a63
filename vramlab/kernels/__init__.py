"""Rules of what a CUDA kernel takes from the caching allocator inside one op.

`TABLE` holds them; `replay` carries one out; `classify` says what is known of an op. The rules are
grouped by what they are about, one file each; below them are calls that ask a real GPU (`calls`).
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
    sharding,
    sorting,
    sparse,
)
from vramlab.kernels.calls import calls_of, rules_called
from vramlab.kernels.classify import Knowledge, classify
from vramlab.kernels.registry import (
    CUBLAS,
    CUBLASLT,
    OUTPUTS,
    TABLE,
    Allocates,
    Call,
    Give,
    KernelContext,
    Marker,
    Output,
    Rule,
    RuleTable,
    Status,
    Step,
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
    "Give",
    "KernelContext",
    "Knowledge",
    "Marker",
    "Output",
    "Rule",
    "RuleTable",
    "Status",
    "Step",
    "Take",
    "attention",
    "calls_of",
    "classify",
    "collectives",
    "convolution",
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
    "rules_called",
    "scalars",
    "sharding",
    "sorting",
    "sparse",
]
