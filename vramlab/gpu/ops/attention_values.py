"""Memory-efficient attention where values are computed: its memory, and the numbers it gives.

The kernel exists on CUDA only. What it takes and gives back is said by its rule
(`vramlab.kernels.attention`), as without values; its numbers come from the formula, a few heads at
a time, so that computing them takes the host no square of the length for all heads at once.

Source of the formula: `_scaled_dot_product_attention_math` in
aten/src/ATen/native/transformers/attention.cpp, and its derivative by the logarithm of the sums, as
in kernel_backward.h of mem_eff_attention, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.torch_internals import OpOverload

_SCORES_AT_A_TIME = 2**24
"""64 MiB in float32."""


@handler("aten._scaled_dot_product_efficient_attention.default")
def forward(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Attend: output, logarithms of the sums, and the random state, of which there is none."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if dispatcher.backing_device.type == "meta" or device_index is None:
        return dispatcher.run_plain(func, args, kwargs)
    query, key, value, bias, wants_sums, *rest = args
    is_causal = bool(rest[1:] and rest[1])  # after the probability of dropout
    scale = _scale(query, kwargs)
    result = _laid_out(func, args, kwargs)
    output, sums, *_ = result
    for at in _heads(query, key):
        scores = _scores(query[at], key[at], None if bias is None else bias[at], scale, is_causal)
        log_sums = scores.logsumexp(-1)
        output[at] = (_weights(scores, log_sums) @ value[at].float()).to(output.dtype)
        if wants_sums:
            sums[at][..., : query.size(-2)] = log_sums
    dispatcher.count_call(func, device_index)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


@handler("aten._scaled_dot_product_efficient_attention_backward.default")
def backward(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Compute gradients of query, key, value and, if it is asked for, of the mask."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if dispatcher.backing_device.type == "meta" or device_index is None:
        return dispatcher.run_plain(func, args, kwargs)
    gradient, query, key, value, bias, output, sums, *rest = args
    is_causal = bool(rest[4:] and rest[4])  # after seed, offset, dropout, and what is asked for
    scale = _scale(query, kwargs)
    result = _laid_out(func, args, kwargs)
    for at in _heads(query, key):
        scores = _scores(query[at], key[at], None if bias is None else bias[at], scale, is_causal)
        weights = _weights(scores, sums[at][..., : query.size(-2)])
        of_output = gradient[at].float()
        of_weights = of_output @ value[at].float().transpose(-2, -1)
        shared = (of_output * output[at].float()).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - shared)
        gradients = (
            of_scores @ key[at].float() * scale,
            of_scores.transpose(-2, -1) @ query[at].float() * scale,
            weights.transpose(-2, -1) @ of_output,
            of_scores,
        )
        for target, computed in zip(result, gradients, strict=True):
            if target is not None and target.numel():
                target[at] = computed.to(target.dtype)
    dispatcher.count_call(func, device_index)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


def _scale(query: torch.Tensor, kwargs: Any) -> float:
    scale = kwargs.get("scale")
    return float(query.size(-1) ** -0.5 if scale is None else scale)


def _laid_out(func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Make the kernel's results, of the layout that they have on CUDA, to be filled in."""

    def on_meta(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        return torch.empty_strided(arg.size(), arg.stride(), dtype=arg.dtype, device="meta")

    shapes = func(*map(on_meta, args), **kwargs)
    return tuple(
        None
        if each is None
        else torch.empty_strided(each.size(), each.stride(), dtype=each.dtype).zero_()
        for each in shapes
    )


def _heads(query: torch.Tensor, key: torch.Tensor) -> Iterator[tuple[int, slice]]:
    """Go through batch and heads, so many heads at a time as is meant."""
    at_a_time = max(1, _SCORES_AT_A_TIME // max(1, query.size(-2) * key.size(-2)))
    for text in range(query.size(0)):
        for first in range(0, query.size(1), at_a_time):
            yield text, slice(first, first + at_a_time)


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
    is_causal: bool,
) -> torch.Tensor:
    scores = query.float() @ key.float().transpose(-2, -1) * scale
    if bias is not None:
        scores += bias
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu_(1)
        scores.masked_fill_(future, float("-inf"))
    return scores


def _weights(scores: torch.Tensor, log_sums: torch.Tensor) -> torch.Tensor:
    """The softmax; 0 for a query that may see no key."""
    weights = scores.sub_(log_sums.unsqueeze(-1)).exp_()
    return weights.masked_fill_(log_sums.eq(float("-inf")).unsqueeze(-1), 0)
