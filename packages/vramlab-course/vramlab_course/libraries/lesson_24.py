"""Lesson 24: adapters of PEFT beside two layers of LLaMA 7B's size, in 16 bits and in 4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vramlab_course.libraries.measuring import begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned

LAYERS, TOKENS = 2, 2048


def measure() -> list[LibraryRow]:
    """Measure a transformers model with PEFT's adapters, in 16 bits and in 4."""
    meet_cublas()
    return [
        LibraryRow("transformers: all weights learn", _sizes(_model(), adapters=None)),
        LibraryRow(versioned("peft", "LoRA, as it is"), _sizes(_model(), adapters=True)),
        LibraryRow(
            versioned("peft", "autocast_adapter_dtype=False"), _sizes(_model(), adapters=False)
        ),
        LibraryRow(
            versioned("peft", "LoRA, under autocast"),
            _sizes(_model(), adapters=True, autocast=True),
        ),
        LibraryRow(
            versioned("bitsandbytes", "NF4, PEFT's LoRA"), _sizes(_four_bits(), adapters=True)
        ),
        LibraryRow(
            versioned("bitsandbytes", "the same, checkpoints"),
            _sizes(_four_bits(), adapters=True, checkpoints=True),
        ),
    ]


def _model() -> nn.Module:
    hugging = library("transformers")
    config = hugging.LlamaConfig(num_hidden_layers=LAYERS)  # LLaMA 7B's sizes otherwise
    with torch.device("cuda"):
        model: nn.Module = hugging.LlamaModel(config).to(torch.bfloat16)
    return model


def _four_bits() -> nn.Module:
    """Put every Linear layer in NF4, with double quantization, as QLoRA does."""
    layers = library("bitsandbytes.nn")
    model = _model()
    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            if isinstance(linear, nn.Linear):
                four = layers.Linear4bit(
                    linear.in_features,
                    linear.out_features,
                    bias=False,
                    compute_dtype=torch.bfloat16,
                    compress_statistics=True,
                    quant_type="nf4",
                )
                four.weight = layers.Params4bit(
                    linear.weight.data, requires_grad=False, quant_type="nf4"
                )
                setattr(parent, name, four.to("cuda"))
    model.is_loaded_in_4bit = True  # type: ignore[assignment]
    return model


def _sizes(
    model: Any, *, adapters: bool | None, autocast: bool = False, checkpoints: bool = False
) -> dict[str, int]:
    """Measure a second step.

    Args:
        model: without adapters.
        adapters: whether PEFT casts them to float32; None: all weights learn.
        autocast: run the forward pass under autocast to bfloat16.
        checkpoints: checkpoint every layer.
    """
    if adapters is not None:
        peft = library("peft")
        how = peft.LoraConfig(r=16, target_modules="all-linear")
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        model = peft.get_peft_model(model, how, autocast_adapter_dtype=adapters)
    if checkpoints:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, fused=True)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device="cuda")

    def forward() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            hidden: Tensor = model(input_ids=tokens, use_cache=False).last_hidden_state
        return hidden.float().square().mean()

    for _ in range(2):
        optimizer.zero_grad()
        before_bytes = begin()
        loss = forward()
        left_bytes = torch.cuda.memory_allocated() - before_bytes
        loss.backward()
        peak_bytes = torch.cuda.max_memory_allocated()
        optimizer.step()
        del loss
    weights_bytes = before_bytes - _states_bytes(optimizer) - tokens.nbytes
    return {
        "weights": weights_bytes,
        "gradients and states": _states_bytes(optimizer) + sum(p.nbytes for p in learning),
        "left by forward": left_bytes,
        "peak": peak_bytes,
    }


def _states_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(
        tensor.nbytes
        for state in optimizer.state.values()
        for tensor in state.values()
        if isinstance(tensor, Tensor) and tensor.is_cuda
    )
