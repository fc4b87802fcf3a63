"""The fast path of attention and encoder layers: PyTorch's conditions, and what CUDA requests.

The numbers are those of the native engine, PyTorch 2.13 on an A100. Letters: B = 3 sequences of
L = 10 positions, D = 64 wide, in 4 heads, float32 unless a dtype is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU

B, L, D, HEADS = 3, 10, 64, 4
F32, BF16 = torch.float32, torch.bfloat16
WORDS = B * L * D * 4
"""B x L x D numbers of 4 B: 7,680."""
HALF = WORDS // 2
MOMENTS = [4 * B * L] * 2
"""Mean and deviation of each position, by which a layer norm scales."""


def requested(call: Callable[[Tensor], Any], x: Tensor) -> tuple[list[int], int]:
    """The sizes that a call requests without gradients, in order, and its peak."""
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        kept = call(x)
    peak_bytes = torch.cuda.max_memory_allocated() - before
    traces = torch.cuda.memory._snapshot()["device_traces"]
    torch.cuda.memory._record_memory_history(enabled=None)  # type: ignore[call-overload]
    del kept
    return [e["size"] for each in traces for e in each if e["action"] == "alloc"], peak_bytes


def zeros(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.zeros(*(shape or (B, L, D)), dtype=dtype, device="cuda")


def encoder(dtype: torch.dtype = F32, **options: Any) -> nn.TransformerEncoderLayer:
    options = {"batch_first": True, **options}
    return nn.TransformerEncoderLayer(D, HEADS, 2 * D, **options).to("cuda", dtype).eval()


def attention(width: int = D, dtype: torch.dtype = F32) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(width, HEADS, batch_first=True).to("cuda", dtype).eval()


def warm_up() -> None:
    """Let cuBLAS take its workspace before anything is counted."""
    zeros(8, 8) @ zeros(8, 8)


@pytest.fixture
def a100() -> Iterator[VirtualGPU]:
    with VirtualGPU("A100-40GB", on_value="nan", torch_version="2.13") as gpu:
        warm_up()
        yield gpu


# Queries, keys and values as one; what was attended to, projected; then twice as wide and back,
# each sum in place.
FUSED = [3 * WORDS, WORDS, WORDS, WORDS, *MOMENTS, 2 * WORDS, WORDS, WORDS, *MOMENTS]


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_adds_in_place(a100: VirtualGPU, activation: str) -> None:
    layer, x = encoder(activation=activation), zeros()
    # The first sum is there with the norm of it, the queries, keys and values are not.
    assert requested(layer, x) == (FUSED, 3 * WORDS + 2 * WORDS)
    with torch.inference_mode():
        assert requested(layer, x) == (FUSED, 38_400)


def test_an_encoder_layer_that_norms_first(a100: VirtualGPU) -> None:
    sizes = [WORDS, *MOMENTS, 3 * WORDS, WORDS, WORDS, WORDS, *MOMENTS, 2 * WORDS, WORDS]
    assert requested(encoder(norm_first=True), zeros()) == (sizes, 6 * WORDS)


def test_an_encoder_layer_of_halves_runs_flash_attention(a100: VirtualGPU) -> None:
    # log-sum-exp of each head and position, and the seeds of a dropout that there is not
    flash = [HALF, 4 * B * HEADS * L, 16, 8]
    sizes = [3 * HALF, *flash, HALF, HALF, *MOMENTS, 2 * HALF, HALF, HALF, *MOMENTS]
    # 5 x 3,840 B, and three of the four others, in blocks of 512 B
    assert requested(encoder(BF16), zeros(dtype=BF16)) == (sizes, 19_968)


SCORES = 4 * B * HEADS * L * L


def by_steps(masked: list[int]) -> list[int]:
    """What an encoder layer requests with scores, and what a mask takes after them."""
    rest = [WORDS, *MOMENTS, 2 * WORDS, WORDS, WORDS, *MOMENTS]
    return [3 * WORDS, 3 * WORDS, SCORES, *masked, WORDS, WORDS, *rest]


def test_masks_make_attention_run_by_steps(a100: VirtualGPU) -> None:
    layer, x = encoder(), zeros()
    padding = torch.zeros(B, L, dtype=torch.bool, device="cuda")
    # the mask as numbers, then as booleans again
    sizes, peak_bytes = requested(lambda x: layer(x, src_key_padding_mask=padding), x)
    assert (sizes, peak_bytes) == ([4 * B * L, *by_steps([B * L, SCORES])], 46_592)
    causal = nn.Transformer.generate_square_subsequent_mask(L, device="cuda")
    # for every head a byte of each score
    sizes, peak_bytes = requested(lambda x: layer(x, src_mask=causal), x)
    assert (sizes, peak_bytes) == (by_steps([SCORES // 4, SCORES]), 6 * WORDS)


def test_weights_are_averaged_over_heads(a100: VirtualGPU) -> None:
    layer, x = attention(), zeros()
    by_heads = [3 * WORDS, 3 * WORDS, SCORES, WORDS, WORDS]  # softmax is in place
    assert requested(lambda x: layer(x, x, x), x) == ([*by_heads, SCORES // HEADS], 46_080)
    each = requested(lambda x: layer(x, x, x, average_attn_weights=False), x)
    assert each == (by_heads, 46_080)
    # in one kernel if no weights are requested
    without = requested(lambda x: layer(x, x, x, need_weights=False), x)
    assert without == ([3 * WORDS, WORDS, WORDS], 5 * WORDS)
    with torch.no_grad():
        out, weights = layer(x, x, x)
        assert (out.shape, weights.shape) == ((B, L, D), (B, L, L))
        assert layer(x, x, x, need_weights=False)[1] is None


def test_the_heads_are_let_go_before_weights_are_averaged(a100: VirtualGPU) -> None:
    layer, x = attention(), zeros(B, 128, D)
    words, scores = 4 * B * 128 * D, 4 * B * HEADS * 128 * 128
    sizes = [3 * words, 3 * words, scores, words, words, scores // HEADS]
    # queries, keys and values; scores; the result; the average
    peak_bytes = 3 * words + scores + words + scores // HEADS
    assert requested(lambda x: layer(x, x, x), x) == (sizes, peak_bytes)


def test_long_rows_are_masked_out_of_place(a100: VirtualGPU) -> None:
    length = 1100  # more than the 1,024 that fit one kernel
    layer, x = attention(), zeros(1, length, D)
    padding = torch.zeros(1, length, dtype=torch.bool, device="cuda")
    scores, words = 4 * HEADS * length * length, 4 * length * D
    # the mask as numbers, and as booleans; a result that is dropped, scores filled in, softmax
    masked = [length, scores, scores, scores]
    sizes = [4 * length, 3 * words, 3 * words, scores, *masked, words, words, scores // HEADS]
    assert requested(lambda x: layer(x, x, x, key_padding_mask=padding), x)[0] == sizes


def test_cudnns_attention_is_taken_too() -> None:
    with VirtualGPU("H200", on_value="nan", torch_version="2.13"):
        warm_up()
        layer = attention(dtype=BF16)
        attend = functools.partial(layer, need_weights=False)
        sizes, peak_bytes = requested(lambda x: attend(x, x, x), zeros(dtype=BF16))
    assert sizes.count(3 * HALF) == 1  # and not again with biases
    assert (sizes[-1], peak_bytes) == (HALF, 19_968)


def test_encoders_look_whether_padding_is_at_the_end(a100: VirtualGPU) -> None:
    whole = nn.TransformerEncoder(encoder(), 1).eval()
    x, padding = zeros(), torch.zeros(B, L, dtype=torch.bool, device="cuda")
    sizes, peak_bytes = requested(lambda x: whole(x, src_key_padding_mask=padding), x)
    # a mask of what is kept, a column more, int32, the first place that is padded; booleans as
    # int64, their sums; which are equal, and whether all
    looks = [B * L, B, B * (L + 1), 4 * B * (L + 1), 8 * B, 8 * B * L, 8 * B * L, B, 1]
    assert sizes == [4 * B * L, *looks, *by_steps([B * L, SCORES])]
    assert peak_bytes == 46_592


@pytest.mark.parametrize(
    ("prepare", "options"),
    [
        (lambda layer: layer.train(), {"dropout": 0.0}),
        (lambda layer: layer.linear1.register_forward_hook(lambda *_: None), {}),
        (lambda layer: setattr(layer.norm2, "eps", 1e-3), {}),
        (lambda layer: None, {"batch_first": False}),
        (lambda layer: None, {"bias": False}),
    ],
)
def test_other_layers_take_the_slow_path(
    nan_gpu: VirtualGPU, prepare: Callable[[nn.Module], Any], options: dict[str, Any]
) -> None:
    layer, x = encoder(**options), zeros()
    prepare(layer)
    nan_gpu.dispatcher.seen.clear()
    with torch.no_grad():
        layer(x)
    assert torch.ops.aten._addmm_activation.default not in nan_gpu.dispatcher.seen
    assert torch.ops.aten.relu.default in nan_gpu.dispatcher.seen


def test_gradients_and_modes_take_the_slow_path(a100: VirtualGPU) -> None:
    layer, x = encoder(), zeros()
    assert layer(x).grad_fn is not None
    seen = a100.dispatcher.seen
    seen.clear()
    with torch.no_grad(), torch.device("cuda"):
        layer(x)
    assert torch.ops.aten._addmm_activation.default not in seen
    layer.requires_grad_(False)
    assert layer(x).grad_fn is None
    assert torch.ops.aten._addmm_activation.default in seen


@pytest.mark.parametrize(
    ("shape", "dtype", "mask_type", "match"),
    [
        ((B, L), F32, 1, "Mask should be a boolean tensor"),
        ((B, L), torch.bool, None, "Mask Type should be defined"),
        ((B, L), torch.bool, 0, r"mask: \[3, 10\] input: \[3, 4, 10, 10\]"),
    ],
)
def test_masks_of_softmax_are_checked(
    a100: VirtualGPU,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    mask_type: int | None,
    match: str,
) -> None:
    scores, mask = zeros(B, HEADS, L, L), zeros(*shape, dtype=dtype)
    with pytest.raises(RuntimeError, match=match):
        torch._masked_softmax(scores, mask, 3, mask_type)


def test_values_of_small_layers_are_those_of_the_host(gpu: VirtualGPU) -> None:
    on_host = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    attends = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, padding = torch.zeros(1, 2, 8), torch.tensor([[False, True]])
    with torch.no_grad():
        for parameter in (*on_host.parameters(), *attends.parameters()):
            parameter.fill_(0.5)
        encoded, (attended, weights) = on_host(x), attends(x, x, x, key_padding_mask=padding)
        on_host.cuda()
        attends.cuda()
        x, padding = x.cuda(), padding.cuda()
        assert on_host(x).tolist() == encoded.tolist()
        out = attends(x, x, x, key_padding_mask=padding)
        assert [each.tolist() for each in out] == [attended.tolist(), weights.tolist()]
        assert weights.tolist() == [[[1, 0], [1, 0]]]
        # What is not known is not called known: a result of numbers that were drawn.
        drawn = torch.rand(1, 2, 8, device="cuda")
        with pytest.raises(NoValuesError):
            attends(drawn, drawn, drawn)[0].tolist()
