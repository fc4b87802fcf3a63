"""PEFT's comparison of its methods: Llama-3.2-3B on MetaMathQA, one L40S.

Each method trains in bfloat16 with adapters in float32, AdamW, batches of four, clipped gradients,
and the cache emptied every ten steps; what is published is the most memory reserved. Batches go
through buckets sorted by length, so the longest comes first after the cache was emptied. How long
it is, the data say, which are the same for all methods: `_LONGEST_TOKENS` is the length with which
LoRA of rank 32 is nearest, and all other rows follow from it.

Source: method_comparison/MetaMathQA (run.py, utils.py, experiments/*/adapter_config.json) in
huggingface/peft at 5d602fdb.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.measurements.transformers import made_on_gpu

_LONGEST_TOKENS = 683
_SHORT_TOKENS = 200
_BATCH = 4

_LLAMA_3B: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
_QV = {"target_modules": ["q_proj", "v_proj"]}
_MLP = {"target_modules": ["down_proj", "gate_proj", "up_proj"]}
_BLOCKS = {
    "target_modules_bd_a": ["o_proj", "down_proj"],
    "target_modules_bd_b": ["q_proj", "v_proj", "k_proj", "up_proj", "gate_proj"],
    "nblocks": 2,
}
_OSF_RANKS = {
    **dict.fromkeys(("q_proj", "o_proj", "gate_proj", "down_proj", "up_proj"), 2944),
    **dict.fromkeys(("k_proj", "v_proj"), 896),
}
_VIRTUAL = {"num_virtual_tokens": 200}
_PREFIX = {"encoder_hidden_size": 3072}
_IA3_MLP = ["down_proj", "gate_proj", "up_proj"]
_IA3_ALL = {
    "target_modules": [*_IA3_MLP, "k_proj", "o_proj", "q_proj", "v_proj"],
    "feedforward_modules": _IA3_MLP,
}

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "adalora": ("AdaLora", {"target_r": 32, "init_r": 64, "total_step": 5000}),
    "adaptionprompt": ("AdaptionPrompt", {"adapter_len": 100, "adapter_layers": 28}),
    "beft": ("Beft", {"target_modules": ["v_proj"]}),
    "boft": ("BOFT", {}),
    "c3a": ("C3A", {"block_size": 64, "init_weights": False, **_QV}),
    "deft": ("Deft", {"r": 32, "alpha": 128}),
    "deft-para": ("Deft", {"r": 32, "decomposition_method": "qr", "para": True}),
    "delora": ("Delora", {"r": 32}),
    "fourierft": ("FourierFT", _QV),
    "fourierft-5000": ("FourierFT", {"n_frequency": 5000, **_QV}),
    "frod": ("Frod", {"runtime_offload_base_weight": True}),
    "frod-sparse": ("Frod", {"sparse_rate": 0.02, "runtime_offload_base_weight": True}),
    "glora": ("Glora", _QV),
    "glora-vector": ("Glora", {"config_A_B": "vector", "config_C": "vector", **_QV}),
    "gralora": ("Gralora", {}),
    "hira": ("Hira", _QV),
    "ia3": ("IA3", {}),
    "ia3-all": ("IA3", _IA3_ALL),
    "lily-mlp": ("Lily", {"r": 140, "stride_A": 14, "scaling": 8.0, **_MLP}),
    "lily": ("Lily", {"r": 896, "stride_A": 14, "scaling": 2.0, **_QV}),
    "ln_tuning": ("LNTuning", {}),
    "loha": ("LoHa", {"r": 32, "alpha": 64, **_QV}),
    "lokr": ("LoKr", {"r": 32, "alpha": 64, "decompose_factor": 4, **_QV}),
    "lora-mlp": ("Lora", {"r": 10, **_MLP}),
    "lora-bdlora": ("Lora", {"r": 14, "use_bdlora": _BLOCKS, **_MLP}),
    "lora-dora": ("Lora", {"r": 32, "use_dora": True}),
    "lora-fa": ("Lora", {"r": 32}),
    "lora-mica": ("Lora", {"r": 32, "init_lora_weights": "mica"}),
    "lora-32": ("Lora", {"r": 32}),
    "lora-64-rslora": ("Lora", {"r": 64, "use_rslora": True}),
    "lora-64": ("Lora", {"r": 64}),
    "miss-bat": ("Miss", {"init_weights": "bat"}),
    "miss": ("Miss", {}),
    "miss-mini": ("Miss", {"mini_r": 64, "init_weights": "mini"}),
    "oft": ("OFT", {"r": 32, "oft_block_size": 0, **_QV}),
    "osf": ("OSF", {"target_modules": [*_OSF_RANKS], "rank_pattern": _OSF_RANKS}),
    "peanut-1": ("Peanut", {"r": 1, "scaling": 32.0, **_QV}),
    "peanut-32": ("Peanut", {"scaling": 2.0, **_QV}),
    "prefixtuning": ("PrefixTuning", {**_VIRTUAL, **_PREFIX}),
    "prefixtuning-50": ("PrefixTuning", {"num_virtual_tokens": 50, **_PREFIX}),
    "prompt_tuning": ("PromptTuning", _VIRTUAL),
    "psoft": ("Psoft", {"r": 256, "psoft_alpha": 256}),
    "psoft-fast": (
        "Psoft",
        {"r": 256, "psoft_alpha": 256, "psoft_svd": "lowrank", "use_cayley_neumann": True},
    ),
    "ptuning": ("PromptEncoder", {"num_virtual_tokens": 20, **_PREFIX}),
    "pvera": ("Pvera", {}),
    "pvera-64": ("Pvera", {"r": 64}),
    "randlora": ("RandLora", {}),
    "road": ("Road", {"variant": "road_2"}),
    "tinylora": ("TinyLora", {}),
    "tinylora-tied": ("TinyLora", {"weight_tying": 1.0}),
    "trainable_tokens": ("TrainableTokens", {"token_indices": [128000, 128001]}),
    "unilora": ("UniLora", {"r": 32, **_QV}),
    "vblora": ("VBLoRA", _QV),
    "vera": ("Vera", {}),
    "waveft": ("WaveFT", {"n_frequency": 5000, **_QV}),
}
"""PEFT's configuration class, less `Config`, and what an experiment sets that changes memory."""


def _with_adapters(model: Any, method: str) -> Any:
    peft: Any = importlib.import_module("peft")
    name, settings = METHODS[method]
    config = getattr(peft, f"{name}Config")(task_type="CAUSAL_LM", **settings)
    return peft.get_peft_model(model, config, autocast_adapter_dtype=method != "osf")


def _optimizer_of(model: Any, method: str) -> torch.optim.Optimizer:
    if method == "lora-fa":
        optimizers: Any = importlib.import_module("peft.optimizers")
        made: torch.optim.Optimizer = optimizers.create_lorafa_optimizer(
            model, r=32, lora_alpha=64, lr=1e-4
        )
        return made
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)


def fine_tune(method: str) -> dict[str, int]:
    """Train a step with a short batch, empty the cache, and train one with the longest."""
    model = made_on_gpu("LlamaForCausalLM", torch.bfloat16, "sdpa", **_LLAMA_3B)
    if method != "full":
        model = _with_adapters(model, method)
    optimizer = _optimizer_of(model, method)
    if method != "full":
        with model.disable_adapter():  # the loss before training; afterwards, all adapters train
            pass
    model.train()
    for step, tokens in enumerate((_SHORT_TOKENS, _LONGEST_TOKENS), start=1):
        ids = torch.randint(1000, (_BATCH, tokens))
        mask = torch.ones_like(ids)
        mask[0, -3:] = 0  # lengths within a batch differ
        batch = {"input_ids": ids.cuda(), "attention_mask": mask.cuda()}
        batch["labels"] = batch["input_ids"].clone()
        optimizer.zero_grad()
        outputs = model(**batch, num_items_in_batch=int(mask.sum()))  # alive until the next ones
        outputs.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if method == "adalora":
            model.base_model.update_and_allocate(step)
        torch.cuda.empty_cache()
    return {"reserved": torch.cuda.max_memory_reserved()}
