"""Gradient accumulation over a chain of Linear layers: the peak of a micro-batch.

The program is that of `training`, run for one micro-batch after the other without setting the
gradients to None between them:

    for x in micro_batches:
        y = model(x); loss = y.sum(); loss.backward()

Source: as in `training`; and torch/csrc/autograd/functions/accumulate_grad.h, PyTorch 2.13: the
first gradient is stored as it is; every later one is added to it in place and then freed.
"""

from __future__ import annotations

from vramlab_course.formulas.training import LinearChain, SumBuffers


def later_moments(chain: LinearChain, sum_buffers_bytes: SumBuffers) -> dict[str, int]:
    """Return `chain.backward_moments` of all micro-batches but the first, when gradients exist.

    A new gradient is still made beside the old one. So a moment holds what it holds without
    accumulation, and besides the gradients that it would not have made yet.

    Args:
        chain: with the size of a micro-batch as `batch`.
        sum_buffers_bytes: what a sum over rows takes while it runs; see `reductions`.
    """
    last = len(chain.widths) - 1
    moments = chain.backward_moments(sum_buffers_bytes)
    for layer in range(last, 0, -1):
        to_come_bytes = sum(
            chain.weight_bytes(other) + chain.bias_bytes(other) for other in range(layer, 0, -1)
        )
        for name in (f"clone {layer}", f"bias {layer}"):
            moments[name] += to_come_bytes
    return moments


def micro_batch_peak_bytes(
    chain: LinearChain, sum_buffers_bytes: SumBuffers, *, accumulated: bool
) -> int:
    """Return the peak of one micro-batch's backward pass, without workspaces and optimizer states.

    Args:
        chain: with the size of a micro-batch as `batch`.
        sum_buffers_bytes: what a sum over rows takes while it runs; see `reductions`.
        accumulated: whether an earlier micro-batch has left its gradients.
    """
    if accumulated:
        return max(later_moments(chain, sum_buffers_bytes).values())
    return max(chain.backward_moments(sum_buffers_bytes).values())
