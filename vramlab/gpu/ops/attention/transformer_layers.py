"""The ops behind the fast path of attention and encoder layers of `torch.nn`.

Letters of shapes: B batch, H heads, L length, E head size, D width.

Known limitation: nested tensors are not modelled.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import HOST
from vramlab.gpu.ops.attention.sdpa import AttentionCall, choose_backend
from vramlab.gpu.ops.made_of import allocates_as
from vramlab.gpu.torch_internals import OpOverload

aten = torch.ops.aten

_OPERANDS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_MATH = int(SDPBackend.MATH.value)
_MOST_ELEMENTS_OF_FUSED_SOFTMAX = 1024
_MOST_BYTES_OF_FUSED_SOFTMAX = 4096
_SQUARE_MASK, _PADDING_MASK = 0, 1


@handler("aten._fused_sdp_choice.default")
def choice(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> int:
    """Return the code of the backend of attention that CUDA chooses.

    Source: `_fused_sdp_choice_cuda` in aten/src/ATen/native/transformers/cuda/attention.cu,
    PyTorch 2.13.
    """
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if device_index is None or device_index == HOST:
        return int(func(*args, **kwargs))
    given = dict(zip(_OPERANDS, args, strict=False)) | kwargs
    call = AttentionCall(
        query=given["query"],
        key=given["key"],
        value=given["value"],
        mask=given.get("attn_mask"),
        dropout_p=given.get("dropout_p", 0.0),
        is_causal=given.get("is_causal", False),
        enable_gqa=given.get("enable_gqa", False),
        capability=dispatcher.machine.device(device_index).model.compute_capability,
        torch_version=dispatcher.machine.torch_version,
    )
    return int(choose_backend(call).value)


@allocates_as("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Attend, then run the two linear layers; each is added to its input, in place.

    Source: `transformer_encoder_layer_forward` in
    aten/src/ATen/native/transformers/transformer.cpp, PyTorch 2.13.
    """
    if src.numel() == 0:
        return aten.clone(src)
    x = src
    if norm_first:
        x = aten.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps, True)
    attention = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias)
    x = aten._native_multi_head_attention(x, x, x, *attention, mask, False, True, mask_type)[0]
    aten.add_.Tensor(x, src)
    if not norm_first:
        x = aten.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps, True)
    before = x
    if norm_first:
        x = aten.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps, True)
    wide = aten._addmm_activation(
        ffn_bias_1, aten.view(x, [-1, x.size(-1)]), aten.t(ffn_weight_1), use_gelu=use_gelu
    )
    narrow = aten.addmm(ffn_bias_2, wide, aten.t(ffn_weight_2))
    del wide
    x = aten.view(narrow, list(src.shape))
    del narrow
    aten.add_.Tensor(x, before)
    if not norm_first:
        x = aten.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps, True)
    return x


@allocates_as("aten._native_multi_head_attention.default")
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attend in a fused kernel where nothing but its result is asked for, else step by step.

    Source: `native_multi_head_attention_cuda` in
    aten/src/ATen/native/transformers/cuda/attention.cu, PyTorch 2.13.

    Raises:
        RuntimeError: the query's last dimension is not `embed_dim`; torch's words.
    """
    if query.size(-1) != embed_dim:
        raise RuntimeError(
            f"passed-in embed_dim {embed_dim} didn't match last dim of query {query.size(-1)}"
        )
    is_self = query is key and key is value
    if is_self and mask is None and not need_weights:
        heads = _in_heads(query, num_head)
        if aten._fused_sdp_choice(heads, heads, heads) != _MATH:
            qkv = aten.linear(query, qkv_weight, qkv_bias)
            q, k, v = (_in_heads(part, num_head) for part in aten.chunk(qkv, 3, -1))
            attended = aten.scaled_dot_product_attention(q, k, v)
            joined = aten.reshape(aten.transpose(attended, 1, 2), list(query.shape))
            return aten.linear(joined, proj_weight, proj_bias), None
    qkv = _project(query, key, value, embed_dim, qkv_weight)
    if qkv.numel() == 0:
        return aten.empty_like(query), None
    q, k, v = aten._transform_bias_rescale_qkv(qkv, qkv_bias, num_head)
    del qkv
    flat_q, flat_k, flat_v = (aten.flatten(each, 0, 1) for each in (q, k, v))
    scores = aten.bmm(flat_q, aten.transpose(flat_k, 1, 2))
    weights = aten.view(scores, [*q.shape[:-1], k.size(-2)])
    del scores
    if mask is None:
        aten._softmax.out(weights, -1, False, out=weights)
    else:
        of_bools = mask if mask.dtype == torch.bool else aten._to_copy(mask, dtype=torch.bool)
        weights = aten._masked_softmax(weights, of_bools, weights.dim() - 1, mask_type)
        del of_bools
    aten.bmm.out(aten.flatten(weights, 0, 1), flat_v, out=flat_q)  # the queries are done with
    returned = weights if need_weights else None
    del weights
    joined = aten.contiguous(aten.permute(q, [0, 2, 1, 3]))
    out = aten.linear(aten.view(joined, [-1, embed_dim]), proj_weight, proj_bias)
    del joined
    if returned is not None and average_attn_weights:
        returned = aten.sum.dim_IntList(returned, [1])
        aten.div_.Scalar(returned, num_head)
    return aten.view(out, list(query.shape)), returned


def _in_heads(tensor: Tensor, num_head: int) -> Tensor:
    """Take (B, L, D) as (B, H, L, E)."""
    batch, length, width = tensor.shape
    return aten.transpose(aten.view(tensor, [batch, length, num_head, width // num_head]), 1, 2)


def _project(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, qkv_weight: Tensor
) -> Tensor:
    """Multiply with the weights, of whichever are the same tensor in one go.

    Source: `qkv_projection` in aten/src/ATen/native/transformers/attention.cpp, PyTorch 2.13.
    """
    if key is not value:
        weights = aten.chunk(qkv_weight, 3, 0)
        inputs = [query, key, value]
    elif query is not key:
        weights = aten.split_with_sizes(qkv_weight, [embed_dim, 2 * embed_dim], 0)
        inputs = [query, key]
    else:
        return aten.matmul(query, aten.t(qkv_weight))
    parts = [aten.matmul(x, aten.t(w)) for x, w in zip(inputs, weights, strict=True)]
    return aten.cat(parts, 2)


@allocates_as("aten._transform_bias_rescale_qkv.default")
def transform_bias_rescale_qkv(
    qkv: Tensor, qkv_bias: Tensor, num_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Put queries, keys and values into one tensor, heads before positions.

    Source: `transform_bias_rescale_qkv_cuda` in
    aten/src/ATen/native/transformers/cuda/attention.cu, PyTorch 2.13.
    """
    batch, length = qkv.shape[:2]
    head_size = qkv_bias.size(0) // 3 // num_heads
    shape = [3 * batch, num_heads, length, head_size]
    q, k, v = aten.split.Tensor(aten.empty(shape, dtype=qkv_bias.dtype, device=qkv.device), batch)
    return q, k, v


@allocates_as("aten._masked_softmax.default")
def masked_softmax(
    self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Tensor:
    """Run one kernel for short rows and masks that are contiguous, else fill in and run softmax.

    Source: `masked_softmax_cuda` in aten/src/ATen/native/cuda/SoftMax.cu, PyTorch 2.13.

    Raises:
        RuntimeError: the mask is not boolean, or not of a shape that its type is of; torch's words.
    """
    output = aten.empty_like(self)
    if mask.dtype != torch.bool:
        raise RuntimeError("Mask should be a boolean tensor")
    if mask_type is None:
        raise RuntimeError("Mask Type should be defined")
    is_square = mask_type == _SQUARE_MASK and mask.shape == self.shape[2:]
    is_padding = mask_type == _PADDING_MASK and mask.shape == (self.shape[0], self.shape[-1])
    if mask.shape != self.shape and not is_square and not is_padding:
        raise RuntimeError(
            f"Mask shape should match input. mask: {list(mask.shape)} input: {list(self.shape)}"
        )
    if is_square:
        mask = aten.expand(mask, list(self.shape))
    last = self.dim() - 1
    dim = last if dim is None else dim  # -1 is not the last one for this op
    elements = self.size(dim) if self.dim() else 1
    if (
        elements <= _MOST_ELEMENTS_OF_FUSED_SOFTMAX
        and elements * self.element_size() <= _MOST_BYTES_OF_FUSED_SOFTMAX
        and mask.is_contiguous()
        and dim >= last
    ):
        return output
    if is_padding:
        mask = aten.expand(aten.view(mask, [mask.size(0), 1, 1, mask.size(1)]), list(self.shape))
    return aten.softmax.int(aten.masked_fill.Scalar(self, mask, -math.inf), dim)
