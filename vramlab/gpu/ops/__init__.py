"""What ops do on a virtual GPU, a family a file. Importing them fills the table of ops."""

import torch

from vramlab.gpu.ops import (
    attention_values,
    autocast,
    copies,
    cuda_paths,
    data_dependent,
    fast_meta,
    indexing,
    inplace_backward,
    known_values,
    layouts,
    missing_meta,
    operand_checks,
    packed_sequence,
    values,
)

__all__ = [
    "attention_values",
    "autocast",
    "copies",
    "cuda_paths",
    "data_dependent",
    "fast_meta",
    "indexing",
    "inplace_backward",
    "known_values",
    "layouts",
    "missing_meta",
    "operand_checks",
    "packed_sequence",
    "values",
]

if torch.distributed.is_available():  # not in every build of PyTorch
    from vramlab.gpu.ops import collectives

    __all__ += ["collectives"]
