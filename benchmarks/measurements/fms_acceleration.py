"""fms-acceleration's benchmark of fine-tuning: one GPU, without its accelerations.

What TRL's SFTTrainer does there, as a loop: packed batches, reentrant checkpoints, AdamW, gradients
clipped. Trainer's running loss and the last norm of the gradients stay alive. flash-attn allocates
as PyTorch's flash attention does, but takes fewer heads of keys than of queries as they are.

Source: scripts/benchmarks/{defaults,scenarios}.yaml in foundation-model-stack/fms-acceleration.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.measurements.transformers import made_on_gpu

_DEVICE = "cuda"
_VOCABULARY = 32_000  # at most: labels need be no more than valid


def _fine_tune(model: Any, batch: int, length: int, lora_rank: int, counts: bool) -> dict[str, int]:
    """Train for three steps; with `counts`, the loss is a sum over the number of labels."""
    if lora_rank:
        peft: Any = importlib.import_module("peft")
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        how = peft.LoraConfig(r=lora_rank, lora_alpha=16, lora_dropout=0.1, target_modules=targets)
        model = peft.get_peft_model(model, how)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    model.train()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(_groups(model))
    torch.cuda.reset_peak_memory_stats()
    total = torch.tensor(0.0).to(_DEVICE)
    for _ in range(3):
        tokens = torch.randint(_VOCABULARY, (batch, length))
        inputs = {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}
        inputs = {name: each.to(_DEVICE) for name, each in inputs.items()}
        how = {"num_items_in_batch": batch * (length - 1)} if counts else {}
        loss = model(**inputs, use_cache=False, **how).loss
        loss.backward()
        _norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        model.zero_grad()
        loss = loss.detach()
        total += loss
    return {"peak": torch.cuda.max_memory_allocated(), "end": torch.cuda.memory_allocated()}


def _groups(model: Any) -> list[dict[str, Any]]:
    """Give norms and biases no weight decay, as Trainer does: a step updates group by group."""
    helpers: Any = importlib.import_module("transformers.trainer_pt_utils")
    norms: Any = importlib.import_module("transformers.pytorch_utils").ALL_LAYERNORM_LAYERS
    decayed = {name for name in helpers.get_parameter_names(model, norms) if "bias" not in name}
    groups: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for name, each in model.named_parameters():
        if each.requires_grad:
            groups[name in decayed].append(each)
    return [{"params": each, "weight_decay": 0.01 * has} for has, each in groups.items()]


class _FlashAttention(torch.autograd.Function):
    """What flash-attn 2.7.3 allocates, where several heads of queries share one of keys."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        batch, length, heads, _ = query.shape
        result = torch.empty_like(query)
        sums = torch.empty(batch, heads, length, device=_DEVICE)
        random = torch.empty(2, dtype=torch.int64, device=_DEVICE)
        ctx.save_for_backward(query, key, value, result, sums, random)
        return result

    @staticmethod
    def backward(ctx: Any, *_gradient: torch.Tensor) -> Any:
        query, key, value, *_ = ctx.saved_tensors
        batch, length, heads, size = query.shape
        gradients = [torch.empty_like(each) for each in (query, key, value)]
        rounded = -(-length // 128) * 128
        _sums = torch.empty(batch, heads, rounded, device=_DEVICE)
        _wide = torch.empty(batch, rounded, heads, -(-size // 32) * 32, device=_DEVICE)
        expanded = [torch.empty_like(query, memory_format=torch.contiguous_format) for _ in "kv"]
        for each, gradient in zip(expanded, gradients[1:], strict=True):
            torch.sum(each.view(*gradient.shape[:3], -1, size), 3, out=gradient)
        return tuple(gradients)


def _of_transformers(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, None]:
    """Take tensors as Mistral gives them: batch, heads, length, size."""
    return _of_big_code(*(each.transpose(1, 2) for each in (query, key, value))), None


def _of_big_code(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Take tensors as flash-attn does: batch, length, heads, size."""
    result: torch.Tensor = _FlashAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return result


def _use_flash_attention() -> None:
    """Let the models of transformers 4.48 run without the package flash-attn."""
    models: Any = importlib.import_module("transformers.modeling_utils")
    models.PreTrainedModel._check_and_enable_flash_attn_2 = lambda config, *_, **__: config
    models.ALL_ATTENTION_FUNCTIONS["flash_attention_2"] = _of_transformers
    kind = "transformers.models.gpt_bigcode.modeling_gpt_bigcode"
    importlib.import_module(kind)._flash_attention_forward = _of_big_code  # type: ignore[attr-defined]


def _measure(
    kind: str, batch: int, length: int, lora_rank: int, attention: str, **sizes: Any
) -> dict[str, int]:
    model = made_on_gpu(kind, torch.bfloat16, attention, via="cpu", **sizes)
    return _fine_tune(model, batch, length, lora_rank, counts=kind == "MistralForCausalLM")


_SANTACODER: dict[str, Any] = {
    "vocab_size": 49_280,
    "n_positions": 2048,
    "n_embd": 2048,
    "n_layer": 24,
    "n_head": 16,
    "n_inner": 8192,
}
_POWERLM_3B: dict[str, Any] = {
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
    _use_flash_attention()
    how = ("GPTBigCodeForCausalLM", batch, length, lora_rank, "flash_attention_2")
    return _measure(*how, **_SANTACODER)


def mistral_7b(batch: int, length: int, lora_rank: int) -> dict[str, int]:
    """Measure mistralai/Mistral-7B-v0.1, whose sizes are the defaults of transformers.

    fms-hf-tuning gives tokenizers without a padding token one, and the model a row for it.
    """
    _use_flash_attention()
    how = ("MistralForCausalLM", batch, length, lora_rank, "flash_attention_2")
    return _measure(*how, vocab_size=32_001)


def powerlm_3b(batch: int, length: int, lora_rank: int) -> dict[str, int]:
    """Measure ibm/PowerLM-3b, whose keys have as many heads as its queries."""
    return _measure("GraniteForCausalLM", batch, length, lora_rank, "sdpa", **_POWERLM_3B)
