"""Sizes of models: the numbers of parameters that their authors published, and configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vramlab.planner import MODELS, UnknownModel, find_model, read_config, sizes_of_config

# What the Hugging Face Hub counts in each model's safetensors; GPT-2's without the masks that
# those files keep beside the parameters.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
}

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
}
GPT: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 1000,
    "n_positions": 128,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
}


def without(config: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != name}


# ---- By name ----


def test_every_named_model_is_published() -> None:
    assert {name: sizes.parameters() for name, sizes in MODELS.items()} == PUBLISHED


def test_the_parameters_of_one_are_counted_by_hand() -> None:
    # Queries of 4096, keys and values of 8 heads of 128 each; SwiGLU has three matrices.
    attention = 4096 * (4096 + 2 * 8 * 128) + 4096 * 4096
    layer = attention + 3 * 4096 * 14336 + 2 * 4096  # two norms
    whole = 2 * 128256 * 4096 + 32 * layer + 4096  # the head is not tied; the last norm
    assert find_model("llama-3.1-8b").parameters() == whole == 8_030_261_248


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(
        UnknownModel,
        match=r"unknown model .mistral-9b.: did you mean mistral-7b\? Use one of gpt2, ",
    ) as failed:
        find_model("mistral-9b")
    assert str(failed.value).endswith("mistral-7b, or pass a config.json or the sizes")


# ---- By configuration ----


@pytest.mark.parametrize(
    ("kind", "options", "parameters"),
    [
        ("gpt2", {}, PUBLISHED["gpt2"]),  # what transformers makes if nothing is said
        ("llama", {}, PUBLISHED["llama-2-7b"]),
        ("mistral", {}, PUBLISHED["mistral-7b"]),
        # Two embeddings of 1000 x 64 and 128 x 64; layers with a feed-forward layer of 100: weights
        # 4 x 64 x 64 + 2 x 64 x 100, biases 4 x 64 + 100 + 64, norms 4 x 64; the last norm 2 x 64.
        ("gpt2", {**GPT, "n_inner": 100}, 1128 * 64 + 2 * (16384 + 12800 + 420 + 256) + 128),
        # One embedding; heads of 32: weights 64 x (128 + 2 x 64) + 128 x 64 + 3 x 64 x 96, norms.
        (
            "llama",
            {**LLAMA, "head_dim": 32, "tie_word_embeddings": True},
            64_000 + 3 * (16384 + 8192 + 18432 + 128) + 64,
        ),
        ("mistral", LLAMA, 2 * 64_000 + 3 * (64 * (64 + 2 * 32) + 4096 + 18432 + 128) + 64),
    ],
    ids=["GPT-2", "Llama 2", "Mistral", "inner width", "head size, tied", "small Mistral"],
)
def test_transformers_makes_models_with_as_many_parameters(
    kind: str, options: dict[str, Any], parameters: int
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **without(options, "model_type"))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert sizes_of_config(config.to_dict()).parameters() == parameters


def test_what_a_configuration_says_is_what_is_read() -> None:
    sizes = sizes_of_config({**LLAMA, "head_dim": 32, "tie_word_embeddings": True})
    assert (sizes.vocabulary, sizes.positions, sizes.width, sizes.layers) == (1000, 512, 64, 3)
    assert (sizes.heads, sizes.kv, sizes.head_size, sizes.inner) == (4, 2, 32, 96)
    assert (sizes.activation, sizes.norm, sizes.bias, sizes.tied) == ("swiglu", "rms", False, True)
    assert (sizes.learned_positions, sizes.rotary) == (False, True)
    assert sizes_of_config(without(LLAMA, "num_key_value_heads")).kv == 4
    assert not sizes_of_config(LLAMA).tied


def test_a_file_is_read_as_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert read_config(path) == sizes_of_config(LLAMA)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "bert"}, "model_type 'bert': use gpt2, llama, mistral;"),
        ({}, "unsupported model_type None"),
        (without(LLAMA, "intermediate_size"), "lacks 'intermediate_size'"),
        (without(GPT, "n_layer"), "lacks 'n_layer'"),
        ({**LLAMA, "attention_bias": True}, "attention_bias is set"),
        ({**LLAMA, "mlp_bias": True}, "mlp_bias is set"),
        ({**GPT, "n_head": 5}, "a width of 64 is not a multiple of 5 heads"),
        ({**GPT, "n_head": 0}, "invalid heads 0: use at least 1"),
        ({**GPT, "n_embd": "64"}, "'<' not supported"),
    ],
)
def test_what_cannot_be_read_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownModel, match=said):
        sizes_of_config(config)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"can.t open .*No such file"):
        read_config(tmp_path / "config.json")
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnknownModel, match="is not a text file: pass the config"):
        read_config(path)
