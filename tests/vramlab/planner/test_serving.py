"""Serving: weights, cache and requests, by hand and against what vLLM has printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramlab import catalogue
from vramlab.cli import main
from vramlab.planner.models import MODELS
from vramlab.planner.served_models import served_config, served_transformer
from vramlab.planner.serving import LayerCache, ServedModel, Serving, UnusableServing
from vramlab.units import GIB, KIB, MIB

LLAMA = served_transformer("llama-3.1-8b", MODELS["llama-3.1-8b"])


def test_llama_on_an_rtx_3090_is_what_vllm_printed() -> None:
    """vllm-project/vllm, issue 10517, Llama-3.1-8B-Instruct with a length of 20000 and of 29000.

    Loading model weights took 14.9888 GB; peak_torch_memory 17.06 and 17.98 GiB, non_torch_memory
    0.35 GiB, kv_cache_size 3.81 GiB: 1952 blocks, 1.56 requests.
    """
    serving = Serving(LLAMA, catalogue.find("RTX-3090"), batched_tokens=20_000)
    assert round(serving.weights_bytes / GIB, 4) == 14.9888
    # 17.06 - 14.99 and 17.98 - 14.99 GiB; it is called "about".
    assert serving.activations_bytes / GIB == pytest.approx(2.07, abs=0.02)
    longer = Serving(LLAMA, catalogue.find("RTX-3090"), batched_tokens=29_000)
    assert longer.activations_bytes / GIB == pytest.approx(2.99, abs=0.02)
    # Its driver and libraries took 0.1 GiB more than the context of the catalogue.
    assert serving.cache_bytes / GIB == pytest.approx(3.81, abs=0.1)
    page_bytes = serving.request(16).cache_bytes
    # keys and values of 8 heads of 128 in 32 layers, 2 B each, 16 tokens
    assert page_bytes == 2 * 8 * 128 * 32 * 2 * 16
    assert 1952 * page_bytes / GIB == pytest.approx(3.81, abs=0.005)
    assert round(1952 * 16 / 20_000, 2) == 1.56


def test_requests_hold_whole_pages() -> None:
    serving = Serving(LLAMA, catalogue.find("L4"), page=16)
    token_bytes = 128 * KIB
    assert serving.token_bytes == token_bytes
    request = serving.request(33)  # 3 pages of 16, 15 tokens unused
    assert (request.cache_bytes, request.unused_bytes) == (48 * token_bytes, 15 * token_bytes)
    assert request.pages == 3 * 32
    assert request.count == serving.cache_bytes // (48 * token_bytes)
    assert serving.tokens == serving.cache_bytes // (16 * token_bytes) * 16


def small(*caches: LayerCache) -> Serving:
    model = ServedModel("small", 10**6, 100, 0, 8192, 300, 300, caches)
    return Serving(model, catalogue.find("T4"), page=16)


def test_a_window_bounds_what_is_kept() -> None:
    sliding = LayerCache(4, 256, window=1024)
    assert sliding.pages(512, 16) == 32
    # 1023 tokens before the one that is written, beginning in the middle of a page: 64 + 1
    assert sliding.pages(8192, 16) == 65
    request = small(sliding, LayerCache(4, 256)).request(8192)
    token_bytes = 4 * 256 * 2
    assert request.cache_bytes == (65 * 16 + 8192) * token_bytes
    assert request.unused_bytes == (65 * 16 - 1024) * token_bytes


def test_ranks_divide_heads_and_repeat_what_cannot_be_divided() -> None:
    grouped, latent = LayerCache(8, 256), LayerCache(1, 576, is_shared=True)
    assert grouped.token_bytes(2, 4) == 2 * 256 * 2
    assert grouped.token_bytes(2, 16) == 1 * 256 * 2  # each head on two ranks
    assert latent.token_bytes(2, 8) == 576 * 2
    one, four = (Serving(LLAMA, catalogue.find("L4"), tensor=n) for n in (1, 4))
    repeated_bytes = LLAMA.repeated * 2 + 131_072 * 128 * 2  # norms, and the table of positions
    assert four.weights_bytes - repeated_bytes == (one.weights_bytes - repeated_bytes) / 4


def test_eight_bits_halve_weights_and_cache() -> None:
    full = Serving(LLAMA, catalogue.find("L4"))
    half = Serving(LLAMA, catalogue.find("L4"), weights="float8", cache="float8")
    assert 2 * half.token_bytes == full.token_bytes
    table_bytes = 131_072 * 128 * 2
    assert 2 * (half.weights_bytes - table_bytes) == full.weights_bytes - table_bytes
    assert half.activations_bytes == full.activations_bytes


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"page": 0}, "invalid page 0"),
        ({"utilization": 1.2}, "invalid utilization 1.2"),
        ({"cache": "int3"}, "unsupported dtype 'int3' for serving"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(UnusableServing, match=complaint):
        Serving(LLAMA, catalogue.find("T4"), **wrong)  # type: ignore[arg-type]


def config(folder: Path, **fields: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


SMALL = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 96}


def test_configurations_say_which_cache_their_layers_have(tmp_path: Path) -> None:
    gemma = config(
        tmp_path,
        model_type="gemma3_text",
        **SMALL,
        num_hidden_layers=3,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=32,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )
    sliding, full = LayerCache(2, 32, window=32), LayerCache(2, 32)
    assert served_config(gemma).caches == (sliding, sliding, full)
    deepseek = config(
        tmp_path,
        model_type="deepseek_v3",
        **SMALL,
        num_hidden_layers=2,
        first_k_dense_replace=2,
        kv_lora_rank=24,
        qk_rope_head_dim=8,
        q_lora_rank=16,
        qk_nope_head_dim=16,
        v_head_dim=16,
    )
    assert served_config(deepseek).caches == (LayerCache(1, 24 + 8, is_shared=True),) * 2


def test_layers_without_keys_and_values_are_refused(tmp_path: Path) -> None:
    linear = config(
        tmp_path,
        model_type="qwen3_next",
        **SMALL,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    with pytest.raises(UnusableServing, match="unsupported layer type 'linear_attention'"):
        served_config(linear)


def test_the_command_says_how_many_requests_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "llama-3.1-8b", "--serve", "--gpu", "RTX-3090", "--sequence", "20000"]
    assert main([*words, "--batched-tokens", "20000"]) == 0
    assert "It fits: 1 concurrent request of 20,000 tokens." in capsys.readouterr().out
    assert main([*words, "--json", "--cache", "float8"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["token_bytes"] == 64 * KIB
    assert main(["plan", "llama-3.1-8b", "--serve", "--gpu", "T4"]) == 1
    assert "T4 lacks" in capsys.readouterr().out
    assert main(["plan", "gpt2", "--page", "16"]) == 2
    assert "--page needs --serve" in capsys.readouterr().err
    assert main([*words[:3], "--sequence", str(MIB)]) == 2
    assert "use 1 to 131072" in capsys.readouterr().err
