"""Rules of what a CUDA kernel takes from the caching allocator inside one op."""

from __future__ import annotations

from vramlab.kernels.registry import (
    CUBLAS,
    CUBLASLT,
    OUTPUTS,
    TABLE,
    Allocates,
    Call,
    Give,
    GPUModel,
    Launch,
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
    "Launch",
    "Marker",
    "Output",
    "Rule",
    "Status",
    "Step",
    "Table",
    "Take",
    "replay",
    "rule",
]
