"""Pages of models in Hugging Face transformers: eager attention beside SDPA.

Training: five steps whose gradients add up, then steps with `zero_grad()`, no mask, no optimizer,
the sum of the logits as the loss. Inference: 100 new tokens with a KV cache, or one pass of an
encoder, whose result before stays alive; a mask of float32 hides one token.

Source: tests/benchmark/benchmark_bettertransformer_training_minimal.py and
benchmark_bettertransformer.py in huggingface/optimum at 0c399f9b, and the copies of them that
contributors made for SDPA; the heads are said in huggingface/transformers#28802 (BERT) and #32092
(ALBERT).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import transformers as of_hugging_face

transformers: Any = of_hugging_face  # whose types differ from version to version
_DEVICE = "cuda"
_NEW_TOKENS = 100


def _no_init_weights() -> AbstractContextManager[None]:
    """Transformers' own, which version 5 moved."""
    module = getattr(transformers, "initialization", transformers.modeling_utils)
    leaving: AbstractContextManager[None] = module.no_init_weights()
    return leaving


def made_on_gpu(
    kind: str, dtype: torch.dtype, attention: str, via: str = _DEVICE, **sizes: Any
) -> Any:
    """Make a model of transformers from its configuration, with random weights.

    Args:
        kind: the class's name.
        via: the device that it is made on, before it moves to the GPU.
        dtype: of its parameters.
        attention: 'eager' or 'sdpa'.
        sizes: of the configuration.
    """
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**sizes, attn_implementation=attention)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(via), _no_init_weights():
            model = model_class(config)
            model.tie_weights()
        return model.to(_DEVICE)
    finally:
        torch.set_default_dtype(before)


def _train(model: Any, **inputs: torch.Tensor) -> dict[str, int]:
    """Train as the script does, whose name `outputs` keeps logits and KV cache of the last step."""

    def steps(count: int) -> None:
        for _ in range(count):
            model.zero_grad()
            outputs = model(**inputs)
            outputs.logits.sum().backward()

    model.train()
    for _ in range(5):
        model(**inputs).logits.sum().backward()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    steps(3)
    return {"peak": torch.cuda.max_memory_allocated()}


def _infer(call: Callable[[], object]) -> dict[str, int]:
    """Call a model as the script does, which keeps the result of the call before."""
    with torch.inference_mode():
        _kept = call()
        torch.cuda.reset_peak_memory_stats()
        call()
    return {"peak": torch.cuda.max_memory_allocated()}


def _measure(
    kind: str, mode: str, batch: int, length: int, attention: str, **sizes: Any
) -> dict[str, int]:
    """Train a model, let a decoder write, or run an encoder once."""
    model = made_on_gpu(kind, torch.float16, attention, **sizes)
    tokens = torch.randint(model.config.vocab_size - 1, (batch, length)).to(_DEVICE)
    if mode == "training":
        return _train(model, input_ids=tokens)
    model.eval()
    mask = torch.ones(batch, length)
    mask[0, 0] = 0  # as the script does, so that no model drops the mask
    mask = mask.to(_DEVICE)
    seen = mask if batch > 1 else None
    if not kind.endswith("ForCausalLM"):
        return _infer(lambda: model(tokens, seen))
    how = {"max_new_tokens": _NEW_TOKENS, "min_new_tokens": _NEW_TOKENS, "do_sample": False}
    return _infer(lambda: model.generate(tokens, attention_mask=seen, pad_token_id=1, **how))


_OPT_350M = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "ffn_dim": 4096,
    "word_embed_proj_dim": 512,
    "do_layer_norm_before": False,
}
_PYTHIA_410M = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 50304,
}
_ALBERT_BASE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def opt_350m(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure OPT-350M."""
    return _measure("OPTForCausalLM", mode, batch, length, attention, **_OPT_350M)


def pythia_410m(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure Pythia-410M."""
    return _measure("GPTNeoXForCausalLM", mode, batch, length, attention, **_PYTHIA_410M)


def bert_base(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure BERT-base."""
    return _measure("BertLMHeadModel", mode, batch, length, attention)


def albert_base(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure ALBERT-base."""
    kind = "AlbertForSequenceClassification"
    return _measure(kind, mode, batch, length, attention, **_ALBERT_BASE)


def vivit_base(mode: str, batch: int, attention: str) -> dict[str, int]:
    """Measure ViViT-base on videos of 32 frames; `mode` is always 'inference'.

    The page says float32, but its figures are those of float16.
    """
    kind = "VivitForVideoClassification"
    model = made_on_gpu(kind, torch.float16, attention, num_labels=400).eval()
    video = torch.randn(batch, 32, 3, 224, 224, device=_DEVICE, dtype=torch.float16)
    return _infer(lambda: model(video))
