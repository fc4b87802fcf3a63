"""Memory-efficient attention where values are computed: its memory, and the numbers it gives.

The kernel exists on CUDA only. What it allocates and frees is said by its rule
(`vramlab.kernels.attention`), as without values; its numbers come from the formula, a few heads or
queries at a time: what is made of them stays in a core's cache, and the host has no square of the
length.

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

_SCORES_AT_A_TIME = 2**18
"""1 MiB in float32."""


@handler("aten._scaled_dot_product_efficient_attention.default")
def forward(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Attend: output, logarithms of the sums, and the random state, of which there is none."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if dispatcher.backing_device.type == "meta" or device_index is None:
        return dispatcher.run_plain(func, args, kwargs)
    query, key, value, bias, wants_sums, *rest = args
    is_causal = bool(rest[1:] and rest[1])  # after the probability of dropout
    scale = _scale(query, kwargs)
    result = _laid_out(func(*map(_on_meta, args), **kwargs))
    key, value = (_for_each_head(each, query) for each in (key, value))
    output, log_sums, *_ = result
    for heads, queries, keys in _pieces(query, key, is_causal):
        at = (*heads, queries)
        scores = _scores(query, key, bias, scale, heads, queries, keys, is_causal)
        largest = _finite(scores.amax(-1, keepdim=True))
        weights = scores.sub_(largest).exp_()
        sums = weights.sum(-1, keepdim=True)
        # The largest counts 1, so that a sum below 1 is that of a query that may see no key.
        attended = (weights @ value[(*heads, keys)].float()).div_(sums.clamp(min=1))
        output[at] = attended.to(output.dtype)
        if wants_sums:
            log_sums[at] = largest.add_(sums.log_()).squeeze(-1)
    dispatcher.count_call(func, device_index)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


@handler("aten._scaled_dot_product_efficient_attention_backward.default")
def backward(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Compute gradients of query, key, value and, if it is asked for, of the mask."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    gradient, query, key, value, bias, output, log_sums, *rest = args
    if device_index is None:
        return dispatcher.run_plain(func, args, kwargs)
    if dispatcher.backing_device.type == "meta":
        if query.size(1) == key.size(1):
            return dispatcher.run_plain(func, args, kwargs)
        result = _gradients_on_meta(func, args, kwargs)
        dispatcher.count_call(func, device_index)
        dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
        return result
    is_causal = bool(rest[4:] and rest[4])  # after seed, offset, dropout, and what is asked for
    scale = _scale(query, kwargs)
    result = _laid_out(_gradients_on_meta(func, args, kwargs))
    of_query, of_key, of_value, of_bias = result
    key, value = (_for_each_head(each, query) for each in (key, value))
    # Each part of the queries adds to them: in float32, as the kernel does.
    key_sums, value_sums = (torch.zeros(each.shape) for each in (key, value))
    for heads, queries, keys in _pieces(query, key, is_causal):
        at, read = (*heads, queries), (*heads, keys)
        scores = _scores(query, key, bias, scale, heads, queries, keys, is_causal)
        weights = scores.sub_(_finite(log_sums[at].unsqueeze(-1))).exp_()
        of_output = gradient[at].float()
        shared = (of_output * output[at].float()).sum(-1, keepdim=True)
        of_weights = of_output @ value[read].float().transpose(-2, -1)
        of_scores = of_weights.sub_(shared).mul_(weights)
        of_query[at] = (of_scores @ key[read].float()).mul_(scale).to(of_query.dtype)
        key_sums[read] += (of_scores.transpose(-2, -1) @ query[at].float()).mul_(scale)
        value_sums[read] += weights.transpose(-2, -1) @ of_output
        if of_bias is not None and of_bias.numel():
            of_bias[(*at, keys)] = of_scores.to(of_bias.dtype)
    for of_shared, sums in ((of_key, key_sums), (of_value, value_sums)):
        of_shared.copy_(sums.unflatten(1, (of_shared.size(1), -1)).sum(2))
    dispatcher.count_call(func, device_index)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


def _scale(query: torch.Tensor, kwargs: Any) -> float:
    scale = kwargs.get("scale")
    return float(query.size(-1) ** -0.5 if scale is None else scale)


def _for_each_head(tensor: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Repeat keys or values that several heads of the query share."""
    return tensor.repeat_interleave(query.size(1) // tensor.size(1), 1)


def _on_meta(arg: Any) -> Any:
    if not isinstance(arg, torch.Tensor):
        return arg
    return torch.empty_strided(arg.size(), arg.stride(), dtype=arg.dtype, device="meta")


def _gradients_on_meta(func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Make gradients without values, of shared keys and values one: before 2.14, one per head."""
    gradients = list(func(*map(_on_meta, args), **kwargs))
    for index, operand in ((1, args[2]), (2, args[3])):
        if gradients[index].shape != operand.shape:
            gradients[index] = torch.empty_permuted(
                operand.shape, (0, 2, 1, 3), dtype=operand.dtype, device="meta"
            )
    return tuple(gradients)


def _laid_out(shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make the kernel's results, of the layout that they have on CUDA, to be filled in."""
    return tuple(
        None
        if each is None
        else torch.empty_strided(each.size(), each.stride(), dtype=each.dtype).zero_()
        for each in shapes
    )


def _pieces(
    query: torch.Tensor, key: torch.Tensor, is_causal: bool
) -> Iterator[tuple[tuple[int, slice], slice, slice]]:
    """Go through batch and heads, queries, and the keys that those may see."""
    length, read = query.size(-2), key.size(-2)
    heads_at_a_time = max(1, _SCORES_AT_A_TIME // max(1, length * read))
    at_a_time = max(1, min(length, _SCORES_AT_A_TIME // max(1, read)))
    for text in range(query.size(0)):
        for head in range(0, query.size(1), heads_at_a_time):
            for first in range(0, length, at_a_time):
                queries = slice(first, min(first + at_a_time, length))
                keys = slice(0, min(queries.stop, read) if is_causal else read)
                yield (text, slice(head, head + heads_at_a_time)), queries, keys


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
    heads: tuple[int, slice],
    queries: slice,
    keys: slice,
    is_causal: bool,
) -> torch.Tensor:
    asked = query[(*heads, queries)].float() * scale
    scores = asked @ key[(*heads, keys)].float().transpose(-2, -1)
    if bias is not None:
        scores += bias[(*heads, queries, keys)]
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu_(1 + queries.start)
        scores.masked_fill_(future, float("-inf"))
    return scores


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Return 0 for what is -inf, so that the weights of a query that may see no key are 0."""
    return values.masked_fill(values.eq(float("-inf")), 0)
