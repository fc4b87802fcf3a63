"""Attention with values: what the virtual GPU computes is what PyTorch computes on the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from vramlab import VirtualGPU

aten = torch.ops.aten


@pytest.mark.parametrize("gpu", ["T4", "A100-40GB"])
@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "additive"])
def test_masks_leave_out_what_they_do_on_the_host(gpu: str, mask: str) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 8, 4) for _ in range(3))
    keep = torch.ones(8, 8, dtype=torch.bool).tril(diagonal=2)
    added = torch.randn(8, 8)
    options = {
        "none": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": keep},
        "additive": {"attn_mask": added},
    }[mask]
    expected = scaled_dot_product_attention(query, key, value, **options)
    with VirtualGPU(gpu, values=True):
        on_gpu = {
            name: option.cuda() if isinstance(option, torch.Tensor) else option
            for name, option in options.items()
        }
        result = scaled_dot_product_attention(query.cuda(), key.cuda(), value.cuda(), **on_gpu)
        assert torch.allclose(result.cpu(), expected, atol=1e-6)


CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "masked": {"attn_mask": torch.ones(40, 40, dtype=torch.bool).tril(diagonal=1)},
}


def step(options: dict[str, Any]) -> list[torch.Tensor]:
    """Output and gradients, on the host: query, key and value are (2, 3, 40, 8)."""
    torch.manual_seed(1)
    inputs = [torch.randn(2, 3, 40, 8).cuda().requires_grad_() for _ in range(3)]
    output = scaled_dot_product_attention(*inputs, **options)
    output.backward(torch.linspace(-1, 1, 40)[:, None].expand(2, 3, 40, 8).cuda())
    return [each.detach().cpu() for each in (output, *(tensor.grad for tensor in inputs))]


@pytest.mark.parametrize("call", CALLS)
def test_the_efficient_kernel_has_values_and_gradients(call: str) -> None:
    """On a T4 in float32 it is the memory-efficient kernel; its numbers are the formula's."""
    with VirtualGPU("T4", values=True) as gpu:
        on_gpu = {
            name: option.cuda() if isinstance(option, torch.Tensor) else option
            for name, option in CALLS[call].items()
        }
        found = step(on_gpu)
        assert "efficient" in str(list(gpu.dispatcher.seen))
        with sdpa_kernel(SDPBackend.MATH):
            expected = step(on_gpu)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("call", CALLS)
def test_values_take_no_other_memory(call: str) -> None:
    peaks = []
    for values in (False, True):
        with VirtualGPU("T4", values=values):
            options = {
                name: option.cuda() if isinstance(option, torch.Tensor) else option
                for name, option in CALLS[call].items()
            }
            inputs = [torch.zeros(2, 3, 40, 8, device="cuda") for _ in range(3)]
            for each in inputs:
                each.requires_grad_()
            output = scaled_dot_product_attention(*inputs, **options)
            held = torch.cuda.memory_allocated()
            output.backward(torch.zeros_like(output))
            peaks.append((held, torch.cuda.max_memory_allocated()))
    assert peaks[0] == peaks[1]


def test_who_sees_nothing_gets_nothing() -> None:
    """A query that may see no key gets 0, and passes no gradient on."""
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[3] = False
    with VirtualGPU("T4", values=True):
        query, key, value = (torch.ones(1, 1, 8, 4).cuda().requires_grad_() for _ in range(3))
        output = scaled_dot_product_attention(query, key, value, attn_mask=mask.cuda())
        output.sum().backward()
        assert output[0, 0, :, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
        assert value.grad is not None
        assert torch.allclose(value.grad.cpu(), torch.tensor(7 / 8))  # 7 queries, 8 keys each


@pytest.mark.parametrize("heads", [2, 1])
def test_shared_heads_have_values_and_gradients(heads: int) -> None:
    """Since 2.14 the efficient kernel knows them: gradients are sums over 4 / heads queries."""

    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(2)
        inputs = [torch.randn(2, of, 40, 8).to(device).requires_grad_() for of in (4, heads, heads)]
        output = scaled_dot_product_attention(*inputs, enable_gqa=heads > 1)
        output.sum().backward()
        return [each.detach().cpu() for each in (output, *(tensor.grad for tensor in inputs))]

    expected = run("cpu")
    with VirtualGPU("T4", values=True, torch_version="2.14") as gpu:
        on_gpu = run("cuda")
        assert aten._scaled_dot_product_efficient_attention_backward.default in gpu.dispatcher.seen
    for computed, each in zip(on_gpu, expected, strict=True):
        assert torch.allclose(computed, each, atol=1e-5)
