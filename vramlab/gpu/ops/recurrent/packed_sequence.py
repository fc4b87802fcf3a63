"""Sequences of different lengths. The lengths stay on the host, so most are known.

Source: `_pack_padded_sequence` in aten/src/ATen/native/PackedSequence.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import device_name
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import has_values, record_of
from vramlab.gpu.torch_internals import OpOverload
from vramlab.kernels.losses import CTC_LISTS

aten = torch.ops.aten


@handler("aten._pack_padded_sequence.default")
def pack_padded_sequence(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Cut the padding: (sum of lengths, ...) on the GPU, and the batch at each step on the host."""
    padded, lengths, batch_first = args
    if record_of(padded) is None or device_name(lengths) != "cpu":
        packed: tuple[Tensor, Tensor] = dispatcher.run_plain(func, args, kwargs)
        return packed

    def run(op: OpOverload, *args: Any) -> Tensor:
        result: Tensor = dispatcher.run(op, args, {})
        return result

    steps = run(aten.transpose.int, padded, 0, 1) if batch_first else padded  # (T, B, ...)
    remaining = _lengths(dispatcher, lengths, steps)
    pieces, batches, start = [], [], 0
    while remaining:
        end, batch = remaining[-1], len(remaining)
        piece = run(aten.slice.Tensor, run(aten.slice.Tensor, steps, 0, start, end), 1, 0, batch)
        if not piece.is_contiguous():
            piece = dispatcher.run(
                aten.clone.default, (piece,), {"memory_format": torch.contiguous_format}
            )
        pieces.append(run(aten.view.default, piece, [(end - start) * batch, *padded.shape[2:]]))
        batches += [batch] * (end - start)
        start = end
        while remaining and remaining[-1] == end:
            remaining.pop()
    return run(aten.cat.default, pieces), torch.tensor(batches, device="cpu")


def _lengths(dispatcher: Dispatcher, lengths: Tensor, steps: Tensor) -> list[int]:
    """List the lengths, longest first. Those that a GPU has computed are taken to be longest."""
    if has_values(lengths):
        return [int(length) for length in lengths]
    dispatcher.values.assume_all("pack_padded_sequence()", lengths)
    return [steps.size(0)] * lengths.numel()


@handler("aten._ctc_loss_backward.default")
def ctc_loss_backward(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Make the gradient of CTC loss, which has no meta kernel: as large as the log probabilities.

    The kernel has lists of lengths and places, as the forward one, fills a table of backward
    variables like the forward ones, and gives all back.
    Source: `ctc_loss_backward_gpu_template` in aten/src/ATen/native/cuda/LossCTC.cu, PyTorch 2.13.
    """
    log_probs, log_alpha = args[1], args[6]
    if not log_probs.is_meta:
        plain: Tensor = dispatcher.run_plain(func, args, kwargs)
        return plain
    like, whole = (log_probs, [log_probs.size(1)]), {"dtype": torch.int64}
    lists = [dispatcher.run(aten.new_empty.default, like, whole) for _ in range(CTC_LISTS)]
    log_beta = dispatcher.run(aten.empty_like.default, (log_alpha,), {})
    gradient: Tensor = dispatcher.run(aten.empty_like.default, (log_probs,), {})
    del log_beta, lists
    return gradient
