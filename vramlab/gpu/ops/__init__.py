"""What single ops need on a virtual GPU: copies, values, indexing, attention, autocast.

A family a file. Importing this package fills the table of ops (`vramlab.gpu.core.op_table`).
"""

import importlib

import torch

from vramlab.gpu.core.op_table import OPS
from vramlab.gpu.ops import (
    autocast,
    backward_paths,
    copies,
    counts,
    cuda_paths,
    data_dependent,
    embedding_bags,
    indexing,
    inplace_backward,
    layouts,
    made_of,
    missing_meta,
    operand_checks,
    scaled_mm,
    sparse,
    values,
)
from vramlab.gpu.ops.attention import attention_values, transformer_layers
from vramlab.gpu.ops.recurrent import cudnn_rnn, fused_cells, packed_sequence

__all__ = [
    "attention_values",
    "autocast",
    "backward_paths",
    "copies",
    "counts",
    "cuda_paths",
    "cudnn_rnn",
    "data_dependent",
    "embedding_bags",
    "fused_cells",
    "indexing",
    "inplace_backward",
    "layouts",
    "made_of",
    "missing_meta",
    "missing_ops",
    "operand_checks",
    "packed_sequence",
    "scaled_mm",
    "sparse",
    "transformer_layers",
    "values",
]

if torch.distributed.is_available():  # not in every build of PyTorch
    from vramlab.gpu.ops import collectives

    __all__ += ["collectives"]


def missing_ops() -> list[str]:
    """Name the ops of the table that the installed PyTorch does not have: they are never met.

    Not for each attach: it imports a module of PyTorch's that takes a while.
    """
    if torch.distributed.is_available():  # it defines ops of its own, in Python
        importlib.import_module("torch.distributed._functional_collectives")
    return OPS.missing()
