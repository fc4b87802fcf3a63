"""Changes to a model that save memory, in plain PyTorch: for transformers' models and for your own.

`vramlab plan --write` copies these functions into the scripts that it writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from vramlab.programs.transformer import AdaptedLinear


def recompute_layers(layers: Iterable[nn.Module], every: int = 1) -> None:
    """Compute one of so many layers again in the backward pass: save only what it gets."""
    for layer in list(layers)[::every]:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def change_attention(model: Any, kernel: SDPBackend, recomputed: bool) -> None:
    """Use this kernel of PyTorch, or compute attention again in the backward pass.

    Args:
        model: of transformers; its configuration chooses "eager" or "sdpa".
        kernel: of scaled_dot_product_attention; not used by "eager".
        recomputed: save only query, key and value.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = model.config._attn_implementation

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **named: Any
    ) -> Any:
        if name == "eager":
            code = sys.modules[type(model).__module__]
            return code.eager_attention_forward(module, query, key, value, mask, **named)
        grouped = key.shape[1] != query.shape[1]
        if grouped and kernel == SDPBackend.EFFICIENT_ATTENTION:  # it wants a key for each query
            repeats = query.shape[1] // key.shape[1]
            key, value = (each.repeat_interleave(repeats, dim=1) for each in (key, value))
            grouped = False
        with sdpa_kernel(kernel):
            attended = functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                dropout_p=named.get("dropout", 0.0),
                is_causal=mask is None and getattr(module, "is_causal", True),
                scale=named.get("scaling"),
                enable_gqa=grouped,
            )
        return attended.transpose(1, 2).contiguous(), None

    changed = f"{name}_{kernel.name.lower()}_{recomputed}"
    again = partial(checkpoint, attend, use_reentrant=False)
    ALL_ATTENTION_FUNCTIONS.register(changed, again if recomputed else attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(changed, ALL_MASK_ATTENTION_FUNCTIONS[name])
    model.config._attn_implementation = changed


def compute_loss_in_chunks(model: Any, chunks: int) -> None:
    """Compute logits and loss for one part of the tokens at a time, and again for the gradients.

    Args:
        model: of transformers, with a head that predicts the next token.
        chunks: how many parts.
    """

    def sum_of_losses(hidden: Tensor, targets: Tensor) -> Tensor:
        logits = model.get_output_embeddings()(hidden)
        return functional.cross_entropy(logits, targets, reduction="sum")

    def forward(input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = model.base_model(input_ids).last_hidden_state.flatten(0, 1)
        targets = functional.pad(labels[:, 1:], (0, 1), value=-100).flatten()
        losses = [
            checkpoint(sum_of_losses, *chunk, use_reentrant=False)
            for chunk in zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
        ]
        return {"loss": torch.stack(losses).sum() / targets.ne(-100).sum()}

    model.forward = forward


def add_adapters(model: nn.Module, layers: Iterable[nn.Module], rank: int) -> None:
    """Train nothing but an adapter of this rank beside each Linear layer of every layer (LoRA)."""
    model.requires_grad_(False)
    for layer in layers:
        for parent in list(layer.modules()):
            for name, linear in list(parent.named_children()):
                if isinstance(linear, nn.Linear):
                    adapted = AdaptedLinear(linear, rank)
                    nn.init.zeros_(adapted.up.weight)
                    setattr(parent, name, adapted)


def initialize(model: Any) -> None:
    """Fill a model's parameters and buffers with random numbers, as its modules do."""
    if hasattr(model, "init_weights"):  # of transformers
        model.init_weights()
        return
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def loss_of(output: Any) -> Tensor:
    """Return the loss in what a model returned."""
    if isinstance(output, dict):
        output = (output["loss"],)
    loss: Tensor = output if isinstance(output, Tensor) else output[0]
    return loss
