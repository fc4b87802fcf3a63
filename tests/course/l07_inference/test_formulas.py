"""What inference holds, worked out by hand and against measurement."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.units import GIB, KIB, MIB
from vramlab_course.formulas.bert import Bert
from vramlab_course.formulas.kv_cache import KVCache
from vramlab_course.lessons.l07_inference.formulas import bert_peak_bytes, sequential_peak_bytes
from vramlab_course.rules import RULES


def test_the_documents_model_needs_an_output_and_an_input_at_once() -> None:
    # input 40 MiB, then 40 + 80 MiB while the last layer runs
    assert sequential_peak_bytes([40 * MIB, 40 * MIB, 40 * MIB, 80 * MIB]) == (40 + 120) * MIB
    assert sequential_peak_bytes([40 * MIB, 80 * MIB]) == 120 * MIB
    # The widest pair decides, wherever it is.
    assert sequential_peak_bytes([2 * MIB, 64 * MIB, 64 * MIB, 2 * MIB]) == (2 + 128) * MIB
    assert sequential_peak_bytes([4, 4, 4]) == 3 * 512


@pytest.mark.parametrize("widths", [(1024, 1024), (1024, 4096, 1024), (512, 512, 2048, 2048, 512)])
def test_the_peak_of_a_chain_is_measured(widths: tuple[int, ...]) -> None:
    rows = 2048
    with VirtualGPU("T4", torch_version=RULES), torch.no_grad():
        pairs = pairwise(widths)
        model = nn.Sequential(*(nn.Linear(*pair, device="cuda") for pair in pairs))
        x = torch.zeros(rows, widths[0], device="cuda")
        model(x)  # takes cuBLAS's workspace
        torch.cuda.reset_peak_memory_stats()
        before_bytes = torch.cuda.memory_allocated() - x.nbytes
        model(x)
        peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
    assert peak_bytes == sequential_peak_bytes([4 * rows * width for width in widths])


def test_bert_base_at_32_x_512() -> None:
    # scores 32 x 12 x 512 x 512 x 4 B = 384 MiB, hidden 32 x 512 x 768 x 4 B = 48 MiB
    assert bert_peak_bytes(Bert(), 32, 512) == (2 * 384 + 5 * 48) * MIB


def test_a_token_of_llama_2_7b_takes_half_a_mebibyte() -> None:
    cache = KVCache(layers=32, kv_heads=32, head_size=128)
    assert cache.token_bytes == 2 * 32 * 32 * 128 * 2 == 512 * KIB
    assert cache.held_bytes(4096) == 2 * GIB
    # A quarter of the key-value heads, a quarter of the cache.
    assert KVCache(32, 8, 128).held_bytes(4096) == GIB // 2


def test_each_tensor_is_rounded_to_its_block() -> None:
    cache = KVCache(layers=2, kv_heads=1, head_size=10, dtype="float32")
    assert cache.token_bytes == 2 * 2 * 10 * 4
    # 13 tokens: 520 B, two blocks for each of four tensors
    assert cache.held_bytes(12) == 4 * 512
    assert cache.held_bytes(13) == 4 * 1024


def test_appending_and_reordering_need_one_tensor_twice() -> None:
    cache = KVCache(layers=2, kv_heads=4, head_size=64, sequences=2, dtype="float16")
    tensor_bytes = 2 * 4 * 64 * 2  # of one token: 1024 B
    assert cache.held_bytes(100) == 4 * 100 * tensor_bytes
    assert cache.append_peak_bytes(100) == (4 * 101 + 100) * tensor_bytes
    assert cache.reorder_peak_bytes(100) == (4 * 100 + 100) * tensor_bytes
    assert cache.reorder_peak_bytes(100, at_once=True) == 2 * 4 * 100 * tensor_bytes


@pytest.mark.parametrize(
    "cache",
    [
        KVCache(layers=2, kv_heads=4, head_size=64, sequences=2),
        KVCache(layers=3, kv_heads=1, head_size=10, dtype="float32"),
        KVCache(layers=4, kv_heads=2, head_size=128, sequences=3, dtype="bfloat16"),
    ],
    ids=str,
)
def test_appending_is_measured(cache: KVCache) -> None:
    from transformers import DynamicCache

    dtype = getattr(torch, cache.dtype)
    prompt = 30
    with VirtualGPU("T4"):
        kept = DynamicCache()
        shape = (cache.sequences, cache.kv_heads, prompt, cache.head_size)
        states = torch.zeros(shape, dtype=dtype, device="cuda")
        for layer in range(cache.layers):
            kept.update(states, states, layer)
        del states
        assert torch.cuda.memory_allocated() == cache.held_bytes(prompt)
        one = torch.zeros(
            (cache.sequences, cache.kv_heads, 1, cache.head_size), dtype=dtype, device="cuda"
        )
        own_bytes = torch.cuda.memory_allocated() - cache.held_bytes(prompt)
        torch.cuda.reset_peak_memory_stats()
        for layer in range(cache.layers):
            kept.update(one, one, layer)
        assert torch.cuda.memory_allocated() - own_bytes == cache.held_bytes(prompt + 1)
        peak_bytes = torch.cuda.max_memory_allocated() - own_bytes
    assert peak_bytes == cache.append_peak_bytes(prompt)


def test_the_longest_cache_is_the_last_that_fits() -> None:
    cache = KVCache(layers=32, kv_heads=8, head_size=128)
    for free_bytes in (10 * MIB, GIB, 7 * GIB + 12345):
        longest = cache.longest(free_bytes)
        assert cache.append_peak_bytes(longest - 1) <= free_bytes
        assert cache.append_peak_bytes(longest) > free_bytes
    assert cache.longest(0) == 0
