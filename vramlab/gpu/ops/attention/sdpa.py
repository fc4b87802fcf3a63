"""Scaled dot product attention as CUDA runs it: which backend is chosen, and what it is given.

On meta and CPU tensors PyTorch takes other paths. Here is CUDA's choice, to the letter where a
GPU's compute capability, dtypes, shapes and masks decide.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (the choice),
sdp_utils_cpp.h (the checks that backends share) and attention.cpp (padding), PyTorch 2.13.

Letters of shapes: B batch, H heads, L query length, S key length, E head size.

Known limitations: nested tensors are not modelled. cuDNN is taken to be of the version that comes
with the CUDA 13 wheels of that PyTorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend

from vramlab.gpu.ops.operand_checks import cpp_name
from vramlab.gpu.torch_internals import get_sdp_priority_order

aten = torch.ops.aten

_HALF = (torch.float16, torch.bfloat16)
_FLASH_PADDING = 8
_MASK_ALIGNMENT = 8


@dataclass(frozen=True)
class AttentionCall:
    """What the choice of a backend depends on.

    Attributes:
        query: (B, H, L, E); key and value: (B, H or fewer, S, E).
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
    for backend in _order_of_preference(call):
        if possible[backend](call):
            return backend
    raise RuntimeError("No available kernel. Aborting execution.")


def run_attention(call: AttentionCall, scale: float | None) -> torch.Tensor:
    """Run `call` with the backend that CUDA would choose: (B, H, L, E)."""
    check_inputs(call)
    backend = choose_backend(call)
    q, k, v = call.query, call.key, call.value
    if backend == SDPBackend.FLASH_ATTENTION:
        head_size = q.size(-1)
        q, k, v = (_pad_last(t, _FLASH_PADDING) for t in (q, k, v))
        scale = head_size**-0.5 if scale is None else scale
        out = aten._scaled_dot_product_flash_attention(
            q, k, v, call.dropout_p, call.is_causal, False, scale=scale
        )[0]
        return out if out.size(-1) == head_size else out[..., :head_size]
    mask = additive(call.mask, q.dtype) if call.mask is not None else None
    if backend == SDPBackend.EFFICIENT_ATTENTION:
        if mask is not None:
            mask = _aligned(mask, q, k)
        out = aten._scaled_dot_product_efficient_attention(
            q, k, v, mask, call.requires_grad, call.dropout_p, call.is_causal, scale=scale
        )[0]
    elif backend == SDPBackend.CUDNN_ATTENTION:
        out = aten._scaled_dot_product_cudnn_attention(
            q, k, v, mask, call.requires_grad, call.dropout_p, call.is_causal, False, scale=scale
        )[0]
    else:
        out = _math(call, mask, scale)
    assert isinstance(out, torch.Tensor)
    return out


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
        groups = q.size(-3) // k.size(-3)
        k, v = (t.repeat_interleave(groups, -3) for t in (k, v))
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
        and _heads_match(call, gqa=call.torch_version >= (2, 14))  # pytorch/pytorch#191085
        and _same_dtype(call, dtypes)
    )


def _can_use_cudnn(call: AttentionCall) -> bool:
    """PyTorch 2.13's conditions; 2.11 ran with a dropout of 0.1 on an H200 that was recorded."""
    q, k, v = call.query, call.key, call.value
    limit = 128
    dtypes = _HALF if call.capability[0] >= 8 else (torch.float16,)
    return (
        torch.backends.cuda.cudnn_sdp_enabled()
        and _dense_4d(call)
        and _same_dtype(call, dtypes)
        and (8, 0) <= call.capability <= (12, 1)
        and (call.torch_version <= (2, 11) or call.dropout_p * 16 == int(call.dropout_p * 16))
        and all(0 < t.size(-1) <= limit and t.size(-1) % 8 == 0 for t in (q, v))
        and q.size(0) <= 65535
        and q.size(1) <= 65535
        and k.size(-2) > 1
        and q.size(-2) > 0
        and not (call.dropout_p > 0 and q.size(-2) == 1)
        and all(t.stride(-1) == 1 or t.size(-1) == 1 for t in (q, k, v))
        and _heads_match(call, gqa=True)
        and not torch.are_deterministic_algorithms_enabled()
    )


def _dense_4d(call: AttentionCall) -> bool:
    return all(t.dim() == 4 and not t.is_nested for t in (call.query, call.key, call.value))


def _same_dtype(call: AttentionCall, allowed: tuple[torch.dtype, ...]) -> bool:
    dtypes = {call.query.dtype, call.key.dtype, call.value.dtype}
    return len(dtypes) == 1 and dtypes <= set(allowed)


def _heads_match(call: AttentionCall, *, gqa: bool) -> bool:
    q, k, v = call.query, call.key, call.value
    if not q.size(0) == k.size(0) == v.size(0):
        return False
    if q.size(1) == k.size(1) == v.size(1):
        return True
    return gqa and call.enable_gqa and k.size(1) == v.size(1) and q.size(1) % k.size(1) == 0


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
