"""Scaled dot product attention as CUDA runs it: which backend is chosen, and what it is given.

On meta and CPU tensors PyTorch takes other paths. Here is CUDA's choice, to the letter where a
GPU's compute capability, dtypes, shapes and masks decide.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (the choice),
sdp_utils_cpp.h (the checks that backends share) and attention.cpp (padding), PyTorch 2.13 to 2.15.
Which version has which limits is what `torch._fused_sdp_choice` returned on the native engine.

Letters of shapes: B batch, H heads, L query length, S key length, E head size.

Known limitations: nested tensors are not modelled. cuDNN is taken to be of the version that comes
with the CUDA 13 wheels of that PyTorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from vramlab.gpu.ops.operand_checks import cpp_name
from vramlab.gpu.torch_internals import get_sdp_priority_order

aten = torch.ops.aten

_HALF = (torch.float16, torch.bfloat16)
_FLASH_PADDING = 8
_MASK_ALIGNMENT = 8
_MOST_BLOCKS = 65535
"""Blocks of threads in the second and third dimension of a grid, on every GPU."""

# The first PyTorch in which each check or backend is there.
_OFFSETS_ALIGNED = (2, 13)
_CUDNN_COUNTS_BLOCKS = (2, 13)
_ONE_SEQUENCE = (2, 14)  # pytorch/pytorch#192271
_GROUPS_IN_EFFICIENT = (2, 14)  # pytorch/pytorch#191085
_ONE_HEAD_FOR_ALL = (2, 14)
_FLASH_COUNTS_BLOCKS = (2, 15)

_CUDNN_CANNOT_DECODE = (2, 14)
"""The one PyTorch that gives a single query to other backends than cuDNN, on Blackwell."""


@dataclass(frozen=True)
class AttentionCall:
    """What the choice of a backend depends on.

    Attributes:
        query: (B, H, L, E); key and value: (B, H or fewer, S, E). All three may lack B.
        mask: additive or boolean, broadcastable to (B, H, L, S).
        capability: the GPU's compute capability.
        torch_version: (major, minor) of the PyTorch that chooses.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout_p: float
    is_causal: bool
    enable_gqa: bool
    capability: tuple[int, int]
    torch_version: tuple[int, int]

    @property
    def requires_grad(self) -> bool:
        """Whether a backward pass may follow."""
        tensors = (self.query, self.key, self.value)
        return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)

    @property
    def is_one_sequence(self) -> bool:
        """Whether PyTorch gives the operands a batch of one, as a view, before it chooses."""
        tensors = (self.query, self.key, self.value)
        return self.torch_version >= _ONE_SEQUENCE and all(t.dim() == 3 for t in tensors)

    def as_batch(self) -> AttentionCall:
        """Give operands that are one sequence a batch of one."""
        if not self.is_one_sequence:
            return self
        mask = self.mask
        while mask is not None and mask.dim() < 4:
            mask = mask.unsqueeze(0)
        query, key, value = (t.unsqueeze(0) for t in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value, mask=mask)


def choose_backend(call: AttentionCall) -> SDPBackend:
    """Choose the first backend in CUDA's order of preference that can run `call`.

    Raises:
        RuntimeError: none that is switched on can run it; torch's words.
    """
    possible = {
        SDPBackend.CUDNN_ATTENTION: _can_use_cudnn,
        SDPBackend.FLASH_ATTENTION: _can_use_flash,
        SDPBackend.EFFICIENT_ATTENTION: _can_use_efficient,
        SDPBackend.MATH: lambda call: torch.backends.cuda.math_sdp_enabled(),
    }
    call = call.as_batch()
    for backend in _order_of_preference(call):
        if possible[backend](call):
            return backend
    raise RuntimeError("No available kernel. Aborting execution.")


def run_attention(call: AttentionCall, scale: float | None) -> torch.Tensor:
    """Run `call` with the backend that CUDA would choose: (B, H, L, E)."""
    check_inputs(call)
    backend = choose_backend(call)
    if call.is_one_sequence and backend != SDPBackend.MATH:
        return run_attention(call.as_batch(), scale).squeeze(0)
    q, k, v = call.query, call.key, call.value
    if backend == SDPBackend.FLASH_ATTENTION:
        head_size = q.size(-1)
        q, k, v = (_pad_last(t, _FLASH_PADDING) for t in (q, k, v))
        scale = head_size**-0.5 if scale is None else scale
        out = _first_of(
            aten._scaled_dot_product_flash_attention(
                q, k, v, call.dropout_p, call.is_causal, False, scale=scale
            )
        )
        return out if out.size(-1) == head_size else out[..., :head_size]
    mask = additive(call.mask, q.dtype) if call.mask is not None else None
    if backend == SDPBackend.EFFICIENT_ATTENTION:
        if mask is not None:
            mask = _aligned(mask, q, k)
        out = _first_of(
            aten._scaled_dot_product_efficient_attention(
                q, k, v, mask, call.requires_grad, call.dropout_p, call.is_causal, scale=scale
            )
        )
    elif backend == SDPBackend.CUDNN_ATTENTION:
        out = _first_of(
            aten._scaled_dot_product_cudnn_attention(
                q,
                k,
                v,
                mask,
                call.requires_grad,
                call.dropout_p,
                call.is_causal,
                False,
                scale=scale,
            )
        )
    else:
        out = _math(call, mask, scale)
    assert isinstance(out, torch.Tensor)
    return out


def _first_of(results: tuple[Any, ...]) -> torch.Tensor:
    """Return the output, and let the other results go in the order in which C++ does."""
    output, *others = results
    del results
    while others:
        del others[0]
    assert isinstance(output, torch.Tensor)
    return output


def _math(call: AttentionCall, mask: torch.Tensor | None, scale: float | None) -> torch.Tensor:
    """Attention of ordinary ops, step by step as `_scaled_dot_product_attention_math` takes them.

    PyTorch's own would add the mask out of place, because it sees that a dispatch mode is on.
    """
    q, k, v = call.query, call.key, call.value
    if q.dtype in _HALF and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
        q, k, v = q.float(), k.float(), v.float()
    to_the_end = [q, k, v]  # PyTorch's function holds its arguments
    half_scale = math.sqrt(q.size(-1) ** -0.5 if scale is None else abs(scale))
    q = q * (-half_scale if scale is not None and scale < 0 else half_scale)
    if call.is_causal:
        sizes = q.size(-2), k.size(-2)
        # The ones go when the triangle is there.
        mask = torch.ones(sizes, dtype=torch.bool, device=q.device).tril()
        mask = additive(mask, q.dtype)
    if call.enable_gqa:
        k, v = (t.repeat_interleave(q.size(-3) // t.size(-3), -3) for t in (k, v))
    attention = q @ (k.transpose(-2, -1) * half_scale)
    if mask is not None:
        attention.add_(mask)
    attention = aten._safe_softmax(attention, -1)
    if call.dropout_p > 0:
        attention = torch.dropout(attention, call.dropout_p, True)
    weights = attention.to(call.query.dtype)  # returned too, by PyTorch's function
    out = (attention @ v).to(call.query.dtype)
    del attention, k, v, q  # in the order in which C++ lets them go
    while to_the_end:
        to_the_end.pop()
    del weights
    return out


def check_inputs(call: AttentionCall) -> None:
    """Refuse what PyTorch refuses, in its words.

    Source: `validate_sdpa_input` in aten/src/ATen/native/transformers/attention.cpp, PyTorch 2.13.
    """
    named = {"query": call.query, "key": call.key, "value": call.value}
    dtypes = {name: cpp_name(tensor.dtype) for name, tensor in named.items()}
    if len(set(dtypes.values())) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{dtypes['query']} key.dtype: {dtypes['key']} and value.dtype: {dtypes['value']} "
            "instead."
        )
    if any(tensor.dim() < 2 for tensor in named.values()):
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{call.query.dim()} key.dim: {call.key.dim()} and value.dim: {call.value.dim()} "
            "instead."
        )
    mask = call.mask
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, call.query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {cpp_name(mask.dtype)} and  query.dtype: {dtypes['query']} instead."
        )


def _order_of_preference(call: AttentionCall) -> list[SDPBackend]:
    order = [
        getattr(SDPBackend, SDPBackend(int(code)).name)
        for code in get_sdp_priority_order()
        if int(code) >= 0 and SDPBackend(int(code)) != SDPBackend.OVERRIDEABLE
    ]
    default = [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
        SDPBackend.CUDNN_ATTENTION,
    ]
    # cuDNN comes first on compute capability 9 and 10 where its version is at least 9.15.1.
    if order == default and call.capability[0] in (9, 10):
        return [default[3], *default[:3]]
    return order


def _can_use_flash(call: AttentionCall) -> bool:
    q, k, v = call.query, call.key, call.value
    head_size = q.size(-1)
    if call.requires_grad and call.capability in ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1)):
        no_backward = head_size > 192 and (call.dropout_p > 0 or head_size <= 224)
        if no_backward:
            return False
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and _dense_4d(call)
        and call.mask is None
        and q.size(-1) == k.size(-1) == v.size(-1) <= 256
        and (8, 0) <= call.capability <= (12, 1)
        and not (call.is_causal and q.size(-2) != k.size(-2))
        and _same_dtype(call, _HALF)
        and _heads_match(call, gqa=True)
        and (call.torch_version < _FLASH_COUNTS_BLOCKS or max(q.shape[:2]) <= _MOST_BLOCKS)
        and q.size(-2) > 0
        and k.size(-2) > 0
        and all(t.stride(-1) == 1 or t.size(-1) == 1 for t in (q, k, v))
    )


def _can_use_efficient(call: AttentionCall) -> bool:
    q, k, v = call.query, call.key, call.value
    alignment = _gemm_alignment(call)
    dtypes = (torch.float32, *_HALF) if call.capability[0] >= 8 else (torch.float32, torch.float16)
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and _dense_4d(call)
        and call.capability <= (12, 1)
        and q.size(-1) == k.size(-1)
        and all(t.size(-1) > 0 and t.size(-1) % alignment == 0 for t in (q, v))
        and q.size(-2) > 0
        and k.size(-2) > 0
        and all(t.stride(-1) == 1 for t in (q, k, v))
        and _heads_match(call, gqa=call.torch_version >= _GROUPS_IN_EFFICIENT)
        and _same_dtype(call, dtypes)
        and (
            call.torch_version < _OFFSETS_ALIGNED
            or call.capability[0] < 8
            or all(t.storage_offset() % alignment == 0 for t in (q, k, v))
        )
    )


def _can_use_cudnn(call: AttentionCall) -> bool:
    """PyTorch 2.13's conditions; 2.11 ran with a dropout of 0.1 on an H200 that was recorded."""
    q, k, v = call.query, call.key, call.value
    dtypes = _HALF if call.capability[0] >= 8 else (torch.float16,)
    is_blackwell = call.capability[0] == 10
    return (
        torch.backends.cuda.cudnn_sdp_enabled()
        and _dense_4d(call)
        and _same_dtype(call, dtypes)
        and (8, 0) <= call.capability <= (12, 1)
        and (call.torch_version <= (2, 11) or call.dropout_p * 16 == int(call.dropout_p * 16))
        and all(t.size(-1) > 0 and t.size(-1) % 8 == 0 for t in (q, v))
        and _cudnn_has_heads_of(q.size(-1), v.size(-1), call)
        and (call.torch_version < _CUDNN_COUNTS_BLOCKS or max(q.shape[:2]) <= _MOST_BLOCKS)
        and k.size(-2) > 1
        and q.size(-2) > 0
        and not (call.dropout_p > 0 and q.size(-2) == 1)
        and not (call.torch_version == _CUDNN_CANNOT_DECODE and is_blackwell and q.size(-2) == 1)
        and all(t.stride(-1) == 1 or t.size(-1) == 1 for t in (q, k, v))
        and _heads_match(call, gqa=True, alike=False)
        and (call.mask is None or _mask_fits(call, call.mask))
        and (
            not torch.are_deterministic_algorithms_enabled()
            or torch.is_deterministic_algorithms_warn_only_enabled()
        )
    )


def _cudnn_has_heads_of(size: int, value_size: int, call: AttentionCall) -> bool:
    """Whether cuDNN has kernels for these head sizes on the GPU.

    PyTorch 2.11 to 2.13 come with cuDNN 9.19 and 9.20, PyTorch 2.14 with 9.24.
    """
    sizes = (size, value_size)
    is_hopper, is_blackwell = call.capability == (9, 0), call.capability[0] == 10
    if max(sizes) <= 128:
        return True
    if call.torch_version < (2, 11) or not (is_hopper or is_blackwell):
        return False
    if call.torch_version < (2, 14):
        return max(sizes) <= 256 if is_hopper else sizes == (192, 128)
    return sizes in ((192, 128), (256, 256)) or (max(sizes) <= 256 and not call.requires_grad)


def _mask_fits(call: AttentionCall, mask: torch.Tensor) -> bool:
    """Whether a mask has 2 or 4 dimensions, each of the size it masks or of 1, and no gradient."""
    masked = (*call.query.shape[:-1], call.key.size(-2))
    return (
        not mask.requires_grad
        and mask.dim() in (2, 4)
        and all(
            size in (1, all_) for size, all_ in zip(mask.shape[::-1], masked[::-1], strict=False)
        )
    )


def _dense_4d(call: AttentionCall) -> bool:
    return all(t.dim() == 4 and not t.is_nested for t in (call.query, call.key, call.value))


def _same_dtype(call: AttentionCall, allowed: tuple[torch.dtype, ...]) -> bool:
    dtypes = {call.query.dtype, call.key.dtype, call.value.dtype}
    return len(dtypes) == 1 and dtypes <= set(allowed)


def _heads_match(call: AttentionCall, *, gqa: bool, alike: bool = True) -> bool:
    """Whether batches are the same, and heads are, or may be shared by several queries.

    Args:
        call: of four-dimensional operands.
        gqa: the backend knows grouped queries, for which a program asks.
        alike: keys must have as many heads as values.
    """
    q, k, v = call.query, call.key, call.value
    if not q.size(0) == k.size(0) == v.size(0):
        return False
    heads, of_keys, of_values = q.size(1), k.size(1), v.size(1)
    if heads == of_keys == of_values:
        return True
    if gqa and call.enable_gqa:
        return (of_keys == of_values or not alike) and all(
            shared > 0 and heads % shared == 0 for shared in (of_keys, of_values)
        )
    return call.torch_version >= _ONE_HEAD_FOR_ALL and of_keys == of_values == 1 and heads > 0


def _gemm_alignment(call: AttentionCall) -> int:
    """Elements that the head size must be a multiple of for the memory-efficient kernels."""
    major = call.capability[0]
    half = call.query.dtype in _HALF
    tensor_cores = major >= 8 or (major >= 7 and half)
    alignment = 4 if major >= 8 else 1
    return max(alignment, 128 // (16 if half else 32)) if tensor_cores else alignment


def _pad_last(tensor: torch.Tensor, multiple: int) -> torch.Tensor:
    missing = -tensor.size(-1) % multiple
    return tensor if missing == 0 else torch.nn.functional.pad(tensor, (0, missing))


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Make a boolean mask one to add: 0 to keep, -inf to leave out."""
    if mask.dtype != torch.bool:
        return mask
    leave_out = torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device)
    keep = torch.scalar_tensor(0.0, dtype=dtype, device=mask.device)
    added = torch.where(mask, keep, leave_out)
    del keep, leave_out  # in the order in which C++ lets them go
    return added


def _aligned(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Expand a mask to (B, H, L, S), with rows that begin at multiples of 8 elements.

    Source: `preprocess_mask` in aten/src/ATen/native/transformers/attention.cpp, PyTorch 2.13.
    """
    *steps, step = mask.stride()
    if step != 1 or any(each % _MASK_ALIGNMENT for each in steps):
        length = mask.size(-1)
        # A whole 8 is added even if none is missing, then cut off again; heads that share it
        # share one copy.
        missing = _MASK_ALIGNMENT - length % _MASK_ALIGNMENT
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :length]
    return mask.expand(q.size(0), q.size(1), q.size(2), k.size(2))
