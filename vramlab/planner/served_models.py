"""What is served: a built-in transformer, or any causal language model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from vramlab.planner.serving import LayerCache, ServedModel, UnusableServing
from vramlab.programs.transformer_memory import Sizes


def served_transformer(name: str, sizes: Sizes) -> ServedModel:
    """Return what serving the built-in transformer takes.

    The middle of a layer is the end of its feed-forward's first half: the residual, the normalized
    input and the sum of both, what the first matrix gives, and its activation.
    """
    shapes = sizes.parameter_shapes()
    return ServedModel(
        name,
        parameters=sum(prod(shape) for shape in shapes if len(shape) > 1),
        repeated=sum(prod(shape) for shape in shapes if len(shape) == 1),
        rotary_width=sizes.head_size if sizes.rotary else 0,
        positions=sizes.positions,
        token_width=sizes.up_width + sizes.inner,
        residual_width=3 * sizes.width,
        caches=(LayerCache(sizes.kv, 2 * sizes.head_size),) * sizes.layers,
    )


def served_config(path: Path) -> ServedModel:
    """Return what serving a model of transformers takes, from its configuration, without weights.

    Raises:
        UnusableModel: it cannot be read, or transformers does not know its kind.
        UnusableServing: it keeps no keys and values, or it is not known how.
    """
    import torch

    from vramlab.planner.sources import transformers_model

    model = transformers_model(path)
    config = model.factory.args[0]  # type: ignore[attr-defined]
    text = config.get_text_config()
    with torch.device("meta"):
        shapes = [tuple(weight.shape) for weight in model.factory().parameters()]
    caches = tuple(_caches(path, text))
    width, inner = text.hidden_size, _inner(text)
    heads = text.num_attention_heads
    return ServedModel(
        model.name,
        parameters=sum(prod(shape) for shape in shapes if len(shape) > 1),
        repeated=sum(prod(shape) for shape in shapes if len(shape) <= 1),
        rotary_width=_rotary_width(text, getattr(text, "head_dim", None) or width // heads),
        positions=text.max_position_embeddings,
        token_width=3 * inner,  # two matrices of SwiGLU, and their product
        residual_width=3 * width,
        caches=caches,
    )


def _caches(path: Path, config: Any) -> Iterator[LayerCache]:
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None)
    if not hasattr(config, "layer_types") and window and getattr(config, "use_sliding_window", 1):
        kinds = ["sliding_attention"] * config.num_hidden_layers  # such as Mistral's
    latent = getattr(config, "kv_lora_rank", None)
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnusableServing(f"{path}: unsupported layer type {kind!r}, which has no KV cache")
        sliding = window if kind == "sliding_attention" else None
        if latent:
            yield LayerCache(1, latent + config.qk_rope_head_dim, sliding, is_shared=True)
        else:
            yield LayerCache(kv_heads, 2 * head_dim, sliding)


def _inner(config: Any) -> int:
    """Inner width of a feed-forward layer; of those that a token goes through, all experts'."""
    experts = getattr(config, "num_experts_per_tok", None)
    each = getattr(config, "moe_intermediate_size", None)
    if experts and each:
        return max(int(config.intermediate_size), int(experts) * int(each))
    return int(config.intermediate_size)


def _rotary_width(config: Any, head_dim: int) -> int:
    if getattr(config, "kv_lora_rank", None):
        return int(config.qk_rope_head_dim)
    parameters = getattr(config, "rope_parameters", None) or {}
    return int(head_dim * parameters.get("partial_rotary_factor", 1.0)) if parameters else 0
