"""Sizes of transformers that people train: by name, or from a model's configuration.

The sizes of named models are those of the config.json that their authors published on the Hugging
Face Hub. What is read of a configuration is what memory depends on; weights are not needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError, did_you_mean
from vramlab.programs.transformer_memory import GPT2, Sizes

Config = Mapping[str, Any]
"""What a config.json holds, or `config.to_dict()` of transformers."""


class UnknownModel(VramlabError, ValueError):
    """A model whose sizes are not known; the message says which are, and what to do."""


def llama_sizes(
    vocabulary: int,
    width: int,
    layers: int,
    heads: int,
    feed_forward: int,
    kv_heads: int | None = None,
    *,
    positions: int = 131_072,
    tied: bool = False,
    rotary: bool = True,
    head_dim: int | None = None,
) -> Sizes:
    """Describe a model like Llama: RMSNorm, SwiGLU, no biases, and rotary positions or none."""
    return Sizes(
        vocabulary,
        positions,
        width,
        layers,
        heads,
        kv_heads,
        feed_forward,
        activation="swiglu",
        norm="rms",
        bias=False,
        tied=tied,
        learned_positions=False,
        rotary=rotary,
        head_dim=head_dim,
    )


MODELS: dict[str, Sizes] = {
    "gpt2": GPT2["GPT-2 small"],
    "gpt2-medium": GPT2["GPT-2 medium"],
    "gpt2-large": GPT2["GPT-2 large"],
    "gpt2-xl": GPT2["GPT-2 XL"],
    "llama-2-7b": llama_sizes(32_000, 4096, 32, 32, 11_008),
    "llama-2-13b": llama_sizes(32_000, 5120, 40, 40, 13_824),
    "llama-2-70b": llama_sizes(32_000, 8192, 80, 64, 28_672, 8),
    "llama-3.1-8b": llama_sizes(128_256, 4096, 32, 32, 14_336, 8),
    "llama-3.1-70b": llama_sizes(128_256, 8192, 80, 64, 28_672, 8),
    "llama-3.1-405b": llama_sizes(128_256, 16_384, 126, 128, 53_248, 8),
    "llama-3.2-1b": llama_sizes(128_256, 2048, 16, 32, 8192, 8, tied=True),
    "llama-3.2-3b": llama_sizes(128_256, 3072, 28, 24, 8192, 8, tied=True),
    "mistral-7b": llama_sizes(32_000, 4096, 32, 32, 14_336, 8),
}


def find_model(name: str) -> Sizes:
    """Find the sizes of a model in `MODELS`, whatever its capitals.

    Raises:
        UnknownModel: there is none of that name.
    """
    try:
        return MODELS[name.lower()]
    except KeyError:
        hint = did_you_mean(name.lower().rpartition("/")[2], MODELS)
        raise UnknownModel(
            f"unknown model {name!r}: {hint and f'{hint} '}Use one of {', '.join(MODELS)}, or pass "
            "a config.json or the sizes"
        ) from None


def is_built_in(path: Path) -> bool:
    """Return whether a configuration is of a kind that `read_config` knows, or cannot be read."""
    path = path / "config.json" if path.is_dir() else path
    try:
        return json.loads(path.read_text()).get("model_type") in _READERS
    except (OSError, ValueError, AttributeError):
        return True  # `read_config` says what is wrong


def read_config(path: Path) -> Sizes:
    """Read the sizes of the model whose config.json this is.

    Raises:
        UnknownModel: the file cannot be read, or is of a kind that is not known.
    """
    return sizes_of_config(load_config(path))


def load_config(path: Path) -> dict[str, Any]:
    """Load a config.json, or that of a folder.

    Raises:
        UnknownModel: The file is missing, or contains no JSON object.
    """
    path = path / "config.json" if path.is_dir() else path
    needed = "pass the config.json of a model, for example from the Hugging Face Hub"
    try:
        text = path.read_text()
    except OSError as error:
        raise UnknownModel(f"can't open {str(path)!r}: {error.strerror}; {needed}") from error
    except ValueError as error:
        raise UnknownModel(f"{path} is not a text file: {needed}") from error
    if not text.strip():
        raise UnknownModel(f"{path} is empty: {needed}")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise UnknownModel(f"{path} is not valid JSON ({error}): {needed}") from error
    if not isinstance(config, dict):
        raise UnknownModel(f"{path} is not a config.json: it must contain a JSON object")
    return config


def sizes_of_config(config: Config) -> Sizes:
    """Take sizes from a model's configuration.

    Args:
        config: such as `transformers.AutoConfig.for_model("llama").to_dict()`.

    Raises:
        UnknownModel: of a kind that is not known, or something is missing.
    """
    kind = config.get("model_type")
    reader = _READERS.get(str(kind))
    if reader is None:
        known = ", ".join(_READERS)
        raise UnknownModel(
            f"unsupported model_type {kind!r}: use {known}; for other models, pass the sizes"
        )
    try:
        return reader(config)
    except UnknownModel:
        raise
    except KeyError as missing:
        raise UnknownModel(
            f"the configuration (model_type {kind!r}) lacks {missing}: add it"
        ) from missing
    except (TypeError, ValueError) as error:
        raise UnknownModel(f"invalid configuration (model_type {kind!r}): {error}") from error


def _gpt2(config: Config) -> Sizes:
    return Sizes(
        config["vocab_size"],
        config["n_positions"],
        config["n_embd"],
        config["n_layer"],
        config["n_head"],
        feed_forward=config.get("n_inner"),
        tied=config.get("tie_word_embeddings", True),
    )


def _llama(config: Config) -> Sizes:
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name):
            raise UnknownModel(
                f"unsupported configuration: {name} is set, but the built-in transformer has no "
                "biases in some layers only; pass the config.json as MODEL instead of --config"
            )
    return llama_sizes(
        config["vocab_size"],
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["intermediate_size"],
        config.get("num_key_value_heads"),
        positions=config["max_position_embeddings"],
        tied=config.get("tie_word_embeddings", False),
        head_dim=config.get("head_dim"),
    )


_READERS: dict[str, Callable[[Config], Sizes]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
}
