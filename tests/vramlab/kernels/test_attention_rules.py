"""Scaled dot-product attention, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from kernel_events import A100, B200, H200, RTX3090, T4, V100, Events, Model, meta
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from vramlab import VirtualGPU
from vramlab.kernels.attention import efficient_backward_blocks, flash_splits

aten = torch.ops.aten
Takes = Callable[..., list[int]]
FLASH = aten._scaled_dot_product_flash_attention.default
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_backward.default
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
EFFICIENT_BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default


def heads(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """(B, H, M, K), laid out as a model does: (B, M, H, K)."""
    batch, count, rows, columns = shape
    return meta(batch, rows, count, columns, dtype=dtype).transpose(1, 2)


def test_what_older_gpus_have_no_kernel_for_is_refused_in_torchs_words(events: Events) -> None:
    halves, bfloats = heads(1, 2, 8, 64, dtype=torch.float16), heads(1, 2, 8, 64)
    for gpu in (V100, T4):
        with pytest.raises(RuntimeError, match="only supports Ampere GPUs or newer"):
            events(FLASH, halves, halves, halves, gpu=gpu)
        with pytest.raises(RuntimeError, match="cutlassF: no kernel found to launch"):
            events(EFFICIENT, bfloats, bfloats, bfloats, None, True, gpu=gpu)
        assert events(EFFICIENT, halves, halves, halves, None, True, gpu=gpu)


@pytest.mark.parametrize(
    ("blocks", "slots", "key_blocks", "splits"),
    [
        (173, 216, 64, 1),  # 80 % of 216 slots are busy without splitting
        (12, 216, 1, 1),  # one block of keys cannot be split
        (12, 216, 16, 16),  # 192 of 216 busy; 8 parts would leave half idle
        (108, 216, 16, 2),  # 2 parts fill it exactly
    ],
)
def test_flash_splits(blocks: int, slots: int, key_blocks: int, splits: int) -> None:
    assert flash_splits(blocks, slots, key_blocks) == splits


def test_one_query_over_a_long_cache_is_split(takes: Takes) -> None:
    """12 heads, one query, 4096 keys in 16 blocks of 256, as above: 16 parts of 12 rows of 64."""
    query, cache = heads(1, 12, 1, 64), heads(1, 12, 4096, 64)
    assert takes(FLASH, query, cache, cache, gpu=A100) == [4 * 16 * 12, 4 * 16 * 12 * 64]
    # Not with dropout, which keeps two numbers of 8 B while it runs.
    assert takes(FLASH, query, cache, cache, 0.1, gpu=A100) == [16]


def test_shared_heads_count_as_queries(takes: Takes) -> None:
    """32 heads on 8 of keys: 8 blocks for 216 slots.

    32 blocks of 128 keys: 27 would be best, but 27 to 31 parts all have blocks of 2. 16 parts are
    128 / 216, 32 are 256 / 432: both 59 %.
    """
    query, cache = heads(1, 32, 1, 128), heads(1, 8, 4096, 128)
    assert takes(FLASH, query, cache, cache, gpu=A100) == [4 * 16 * 32, 4 * 16 * 32 * 128]


def test_flash_backward_accumulates_the_gradient_of_the_query_in_float32(events: Events) -> None:
    """(8, 12, 1000, 80): queries rounded up to 1024, head size to 96."""
    query = heads(8, 12, 1000, 80)
    seed = meta(2, dtype=torch.uint64)
    arguments = (query, query, query, query, query, meta(8, 12, 1000), None, None, 1000, 1000)
    rows = 8 * 12 * 1024
    assert events(FLASH_BACKWARD, *arguments, 0.0, True, seed, seed) == [
        ("output", 0),
        ("output", 1),
        ("output", 2),
        ("take", 4 * rows),
        ("take", 4 * rows * 96),
        ("give", 4 * rows * 96),
        ("give", 4 * rows),
    ]


def test_flash_backward_copies_a_gradient_that_is_laid_out_otherwise(takes: Takes) -> None:
    query, gradient = heads(2, 4, 128, 64), meta(2, 4, 128, 64, dtype=torch.bfloat16)
    seed = meta(2, dtype=torch.uint64)
    arguments = (gradient, query, query, query, query, meta(2, 4, 128), None, None, 128, 128)
    sizes = takes(FLASH_BACKWARD, *arguments, 0.0, True, seed, seed)
    assert sizes == [2 * 4 * 128 * 64 * 2, 4 * 1024, 4 * 1024 * 64]


def test_flash_backward_of_shared_heads_expands_keys_and_values(takes: Takes) -> None:
    query, key = heads(2, 8, 128, 64), heads(2, 2, 256, 64)
    seed = meta(2, dtype=torch.uint64)
    arguments = (query, query, key, key, query, meta(2, 8, 128), None, None, 128, 256)
    expanded = 2 * 256 * 8 * 64 * 2
    sizes = takes(FLASH_BACKWARD, *arguments, 0.0, True, seed, seed)
    assert sizes[2:] == [expanded, expanded]


def test_deterministic_flash_backward_keeps_several_gradients(takes: Takes) -> None:
    query, seed = heads(2, 4, 128, 64), meta(2, dtype=torch.uint64)
    arguments = (query, query, query, query, query, meta(2, 4, 128), None, None, 128, 128)
    torch.use_deterministic_algorithms(True)
    try:
        sizes = takes(FLASH_BACKWARD, *arguments, 0.0, True, seed, seed, gpu=A100)
    finally:
        torch.use_deterministic_algorithms(False)
    assert sizes[1] == 14 * 4 * 1024 * 64  # 108 multiprocessors / 8 heads = 14 parts


def test_large_heads_of_halves_need_a_float32_output(takes: Takes) -> None:
    query = heads(2, 4, 100, 256, dtype=torch.float16)
    assert takes(EFFICIENT, query, query, query, None, True) == [4 * 2 * 4 * 100 * 256]
    query = heads(2, 4, 100, 256, dtype=torch.float32)
    assert takes(EFFICIENT, query, query, query, None, True) == []


@pytest.mark.parametrize(
    ("head_size", "dtype", "gpu", "blocks"),
    [
        (96, torch.float16, RTX3090, (128, 64, 96)),
        (96, torch.float32, RTX3090, (64, 64, 128)),
        (136, torch.float16, RTX3090, (128, 64, 65536)),
        (128, torch.bfloat16, B200, (128, 128, 128)),
        (32, torch.float32, T4, (64, 64, 32)),
        (64, torch.float16, T4, (64, 64, 64)),
        (128, torch.float16, T4, (128, 64, 128)),
        (128, torch.float16, V100, (128, 64, 128)),
        (128, torch.bfloat16, A100, (128, 128, 128)),
        (128, torch.float32, H200, (128, 64, 128)),
        (128, torch.float16, RTX3090, (64, 64, 128)),
        (256, torch.float16, A100, (128, 64, 65536)),
    ],
)
def test_efficient_backward_kernels(
    head_size: int, dtype: torch.dtype, gpu: Model, blocks: tuple[int, int, int]
) -> None:
    assert efficient_backward_blocks(head_size, dtype, gpu) == blocks


def test_the_kernel_for_heads_of_96_has_no_dropout() -> None:
    assert efficient_backward_blocks(96, torch.float16, RTX3090, 0.1) == (64, 64, 128)


@pytest.mark.parametrize(
    ("head_size", "dropout", "gpu", "per_head"),
    [
        # 4 blocks of queries, 2 columns of 64; made for as many as a block has: in registers
        (96, 0.0, RTX3090, 8 * (4 + 128 * 64)),
        # 8 blocks, 2 columns; and 8 splits of 64 keys for the gradients of keys and of values
        (96, 0.1, RTX3090, 16 * (4 + 64 * 64) + 2 * 8 * 64 * 128),
        (128, 0.0, T4, 8 * (4 + 128 * 64)),
        (128, 0.0, B200, 4 * (4 + 128 * 128)),
        # 4 blocks, 3 columns; 136 rounded up to blocks of 128
        (136, 0.0, B200, 12 * (4 + 128 * 64) + 2 * 8 * 64 * 256),
    ],
)
def test_efficient_backward_takes_what_the_native_engine_saw(
    takes: Takes, head_size: int, dropout: float, gpu: Model, per_head: int
) -> None:
    """24 heads; 6,294,528, 18,880,512, 6,294,528, 6,292,992 and 34,607,616 B were seen."""
    query = heads(2, 12, 512, head_size, dtype=torch.float16)
    arguments = efficient_backward(query, query, dropout)
    assert takes(EFFICIENT_BACKWARD, *arguments, gpu=gpu) == [4 * 24 * 512, 4 * 24 * per_head]


def efficient_backward(
    query: torch.Tensor, key: torch.Tensor, dropout: float = 0.0
) -> tuple[torch.Tensor | float | list[bool] | None, ...]:
    seed = meta(dtype=torch.int64)
    logsumexp = meta(query.shape[0], query.shape[1], query.shape[2])
    mask = [True, True, True, False]
    return query, query, key, key, None, query, logsumexp, seed, seed, dropout, mask


def test_efficient_backward_in_float32(events: Events) -> None:
    """(2, 12, 512, 64): the product of output and gradient; 8 blocks of 64 * 64 and a lock."""
    query = heads(2, 12, 512, 64, dtype=torch.float32)
    rows = 4 * 2 * 12 * 512
    workspace = 4 * 2 * 12 * 8 * (4 + 64 * 64)
    assert events(EFFICIENT_BACKWARD, *efficient_backward(query, query)) == [
        ("output", 0),
        ("output", 1),
        ("output", 2),
        ("take", rows * 64),
        ("take", rows),
        ("take", rows),
        ("give", rows),
        ("give", rows * 64),
        ("take", workspace),
        ("give", rows),
        ("give", workspace),
    ]


def test_efficient_backward_of_large_heads_accumulates_keys_and_values_too(takes: Takes) -> None:
    """Head size 128 in blocks of 64: not in registers. 8 blocks of keys, but 200 / 24 = 8 splits.

    16 blocks of the query's gradient (8 rows of blocks, 2 columns), and twice 8 * 64 * 128.
    """
    query = heads(2, 12, 512, 128, dtype=torch.float16)
    arguments = efficient_backward(query, query)
    per_head = 16 * (4 + 64 * 64) + 2 * 8 * 64 * 128
    assert takes(EFFICIENT_BACKWARD, *arguments, gpu=RTX3090) == [4 * 24 * 512, 4 * 24 * per_head]


def test_before_turing_sums_of_gradient_times_output_are_computed_in_float32(takes: Takes) -> None:
    """4 blocks of 128 queries in 4 columns of 64; twice 8 splits of 64 keys by 256."""
    query = heads(2, 12, 512, 256, dtype=torch.float16)
    sizes = takes(EFFICIENT_BACKWARD, *efficient_backward(query, query), gpu=V100)
    each, rows = 4 * 24 * 512 * 256, 4 * 24 * 512
    per_head = 16 * (4 + 128 * 64) + 2 * 8 * 64 * 256
    assert sizes == [each, each, each, rows, rows, 4 * 24 * per_head]


def test_math_attention_sets_masked_rows_to_zero_in_place(events: Events) -> None:
    scores = meta(2, 3, 5, 7, dtype=torch.float16)
    taken = [
        2 * 3 * 5 * 7,  # where the scores are -inf, a byte each
        2 * 3 * 5,  # rows in which all are
        2,  # 0
    ]
    assert events(aten._safe_softmax.default, scores, -1) == [
        ("output", 0),
        *(("take", size) for size in taken),
        *(("give", size) for size in reversed(taken)),
    ]


def test_cudnns_attention_has_a_workspace_on_hopper_alone(takes: Takes) -> None:
    """As cuDNN 9.20 answers on the native engine for an A100, an H100 and a B200."""
    x = meta(4, 12, 1024, 64, dtype=torch.bfloat16)
    forward = aten._scaled_dot_product_cudnn_attention.default
    sizes = {
        gpu.compute_capability: takes(forward, x, x, x, None, True, 0.0, True, gpu=gpu)
        for gpu in (A100, H200, B200)
    }
    assert sizes == {(8, 0): [], (9, 0): [256], (10, 0): []}
    one = x[:, :, :1]
    assert takes(forward, one, x, x, None, True, 0.0, False, gpu=H200) == []


@pytest.mark.parametrize(
    ("queries", "keys", "values", "workspace_bytes"),
    [
        # 2 x 8 x 96 x 64 numbers of 4 B, 2 x 8 x 96 of 4 B, and 256 B
        ((2, 8, 96, 64), (2, 8, 96, 64), (2, 8, 96, 64), 393_216 + 6_144 + 256),
        ((2, 8, 96, 192), (2, 8, 96, 192), (2, 8, 96, 128), 1_179_648 + 6_144 + 256),
        ((2, 3, 333, 128), (2, 3, 77, 128), (2, 3, 77, 128), 1_022_976 + 7_992 + 256),
        ((2, 3, 1, 64), (2, 3, 77, 64), (2, 3, 77, 64), 1_536 + 24 + 256),
        # two gradients of 2 x 8 x 96 x 64 numbers of 2 B more
        ((2, 8, 96, 64), (2, 2, 96, 64), (2, 2, 96, 64), 399_616 + 2 * 196_608),
        ((2, 8, 96, 64), (2, 2, 96, 64), (2, 4, 96, 64), 399_616 + 2 * 196_608),
    ],
)
def test_cudnns_backward_pass_adds_up_in_float32(
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    values: tuple[int, ...],
    workspace_bytes: int,
) -> None:
    """As the native engine allocates with cuDNN 9.19, 9.20, 9.24 and 9.26 for an H100."""
    for gpu, expected in (("H100", [workspace_bytes]), ("A100-40GB", [])):
        with VirtualGPU(gpu):
            q, k, v = (
                torch.zeros(size, dtype=torch.bfloat16, device="cuda", requires_grad=True)
                for size in (queries, keys, values)
            )
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                if gpu != "H100" and queries[-1] > 128:
                    continue
                output = scaled_dot_product_attention(q, k, v, enable_gqa=keys[1] != queries[1])
            gradient = torch.ones_like(output)
            torch.cuda.memory._record_memory_history("all", context=None)
            output.backward(gradient)
            (trace,) = torch.cuda.memory._snapshot()["device_traces"]
            torch.cuda.memory._record_memory_history(None)
            allocated = [event["size"] for event in trace if event["action"] == "alloc"]
            gradients = [2 * math.prod(size) for size in (queries, keys, values)]
            assert allocated == gradients + expected


def test_cudnn_sums_up_only_for_a_backward_pass() -> None:
    x = meta(2, 8, 96, 64, dtype=torch.bfloat16)
    forward = aten._scaled_dot_product_cudnn_attention.default
    with VirtualGPU("H100"):
        before = torch.cuda.memory_allocated()
        q = torch.zeros_like(x, device="cuda")
        output = scaled_dot_product_attention(q, q, q)
        # query and output: 2 x 8 x 96 x 64 numbers of 2 B; seed and offset are gone with the tuple
        assert torch.cuda.memory_allocated() - before == 2 * 196_608
        results = forward(q, q, q, None, False)
        assert torch.cuda.memory_allocated() - before == 3 * 196_608 + 2 * 512
        del results, output
