"""The gradient of embeddings that are summed up in bags: an op that calls another one on CUDA."""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.torch_internals import OpOverload

aten = torch.ops.aten


@handler("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> torch.Tensor:
    """Run the kernel for a dense gradient, whose rule says what it takes.

    Source: `_embedding_bag_backward` in aten/src/ATen/native/EmbeddingBag.cpp, PyTorch 2.13.
    """
    gradient, indices, _, bags, sizes, largest, words, scales, mode, is_sparse, *rest = args
    if is_sparse:
        return dispatcher.run_plain(func, args, kwargs)
    operands = (gradient, indices, bags, sizes, largest, words, scales, mode, *rest)
    result: torch.Tensor = dispatcher.run(
        aten._embedding_bag_dense_backward.default, operands, kwargs
    )
    return result
