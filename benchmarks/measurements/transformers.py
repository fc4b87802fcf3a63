"""Pages of models in Hugging Face transformers: eager attention beside SDPA.

Training: five steps whose gradients add up, then steps with `zero_grad()`, no optimizer, the sum of
the logits as the loss. Inference: 100 new tokens with a KV cache, or one pass of an encoder.

Source: tests/benchmark/benchmark_bettertransformer_training_minimal.py and
benchmark_bettertransformer.py in huggingface/optimum at 0c399f9b; which head BERT has, is said in
huggingface/transformers#28802.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as of_hugging_face

transformers: Any = of_hugging_face  # whose types differ from version to version
_DEVICE = "cuda"
_NEW_TOKENS = 100


def _on_gpu(make: Callable[[], Any], dtype: torch.dtype = torch.float16) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(_DEVICE):
            return make()
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
    with torch.inference_mode():
        call()
        torch.cuda.reset_peak_memory_stats()
        call()
    return {"peak": torch.cuda.max_memory_allocated()}


def _tokens(model: Any, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    vocabulary = model.config.vocab_size
    tokens = torch.randint(vocabulary - 1, (batch, length), device=_DEVICE)
    return tokens, torch.ones(batch, length, dtype=torch.int64, device=_DEVICE)


def _decoder(model: Any, mode: str, batch: int, length: int) -> dict[str, int]:
    tokens, mask = _tokens(model, batch, length)
    if mode == "training":
        return _train(model, input_ids=tokens, attention_mask=mask)
    how = {"max_new_tokens": _NEW_TOKENS, "min_new_tokens": _NEW_TOKENS, "do_sample": False}
    seen = mask if batch > 1 else None
    model.eval()
    return _infer(lambda: model.generate(tokens, attention_mask=seen, pad_token_id=1, **how))


def _encoder(model: Any, mode: str, batch: int, length: int) -> dict[str, int]:
    tokens, mask = _tokens(model, batch, length)
    if mode == "training":
        return _train(model, input_ids=tokens, attention_mask=mask)
    seen = mask if batch > 1 else None
    model.eval()
    return _infer(lambda: model(tokens, seen))


def opt_350m(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure OPT-350M."""
    config = transformers.OPTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        ffn_dim=4096,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
        attn_implementation=attention,
    )
    return _decoder(_on_gpu(lambda: transformers.OPTForCausalLM(config)), mode, batch, length)


def pythia_410m(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure Pythia-410M."""
    config = transformers.GPTNeoXConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        vocab_size=50304,
        attn_implementation=attention,
    )
    return _decoder(_on_gpu(lambda: transformers.GPTNeoXForCausalLM(config)), mode, batch, length)


def bert_base(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure BERT-base."""
    config = transformers.BertConfig(attn_implementation=attention)
    head = transformers.BertLMHeadModel if mode == "training" else transformers.BertModel
    return _encoder(_on_gpu(lambda: head(config)), mode, batch, length)


def albert_base(mode: str, batch: int, length: int, attention: str) -> dict[str, int]:
    """Measure ALBERT-base."""
    config = transformers.AlbertConfig(
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )
    return _encoder(_on_gpu(lambda: transformers.AlbertForMaskedLM(config)), mode, batch, length)


def vivit_base(mode: str, batch: int, attention: str) -> dict[str, int]:
    """Measure ViViT-base on videos of 32 frames, in float32."""
    config = transformers.VivitConfig(num_labels=400, attn_implementation=attention)
    model = _on_gpu(lambda: transformers.VivitForVideoClassification(config), torch.float32).eval()
    video = torch.randn(batch, 32, 3, 224, 224, device=_DEVICE)
    return _infer(lambda: model(video))
