"""fms-acceleration's benchmark of fine-tuning: one GPU, without its accelerations.

What TRL's SFTTrainer does there, as a loop: packed batches, reentrant checkpoints, AdamW, gradients
clipped. The flash attention of PyTorch allocates as flash-attn does.

Source: scripts/benchmarks/{defaults,scenarios}.yaml in foundation-model-stack/fms-acceleration.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.measurements.transformers import made_on_gpu

_DEVICE = "cuda"
_VOCABULARY = 32_000  # at most: labels need be no more than valid


def _fine_tune(model: Any, batch: int, length: int, lora_rank: int) -> dict[str, int]:
    if lora_rank:
        peft: Any = importlib.import_module("peft")
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        how = peft.LoraConfig(r=lora_rank, lora_alpha=16, lora_dropout=0.1, target_modules=targets)
        model = peft.get_peft_model(model, how)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    model.train()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        tokens = torch.randint(_VOCABULARY, (batch, length))
        inputs = {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}
        inputs = {name: each.to(_DEVICE) for name, each in inputs.items()}
        loss = model(**inputs, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        model.zero_grad()
        loss = loss.detach()
    return {"peak": torch.cuda.max_memory_allocated(), "end": torch.cuda.memory_allocated()}


def _measure(kind: str, batch: int, length: int, lora_rank: int, **sizes: Any) -> dict[str, int]:
    model = made_on_gpu(kind, torch.bfloat16, "sdpa", **sizes)
    return _fine_tune(model, batch, length, lora_rank)


_SANTACODER = {
    "vocab_size": 49_280,
    "n_positions": 2048,
    "n_embd": 2048,
    "n_layer": 24,
    "n_head": 16,
    "n_inner": 8192,
}
_POWERLM_3B = {
    "vocab_size": 49_152,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 40,
    "num_attention_heads": 36,
    "num_key_value_heads": 36,
    "tie_word_embeddings": True,
    "attention_bias": True,
    "mlp_bias": True,
    "max_position_embeddings": 4096,
}


def santacoder(batch: int, length: int, lora_rank: int) -> dict[str, int]:
    """Measure bigcode/gpt_bigcode-santacoder."""
    return _measure("GPTBigCodeForCausalLM", batch, length, lora_rank, **_SANTACODER)


def mistral_7b(batch: int, length: int, lora_rank: int) -> dict[str, int]:
    """Measure mistralai/Mistral-7B-v0.1, whose sizes are the defaults of transformers."""
    return _measure("MistralForCausalLM", batch, length, lora_rank)


def powerlm_3b(batch: int, length: int, lora_rank: int) -> dict[str, int]:
    """Measure ibm/PowerLM-3b."""
    return _measure("GraniteForCausalLM", batch, length, lora_rank, **_POWERLM_3B)
