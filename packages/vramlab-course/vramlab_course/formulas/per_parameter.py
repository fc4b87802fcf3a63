"""Bytes per parameter, by what is kept and how a model is trained.

Source: 001 §2.21 to §2.25 and 003 ("Model weights", "Optimizer states", "Gradients"), and
arXiv 1910.02054 (ZeRO) §3.1 for K = 12. Activations are not among them: they depend on the batch.
"""

from __future__ import annotations

WEIGHTS = {"float32": 4, "mixed precision": 6}
"""Mixed precision keeps a float32 and a float16 copy."""

GRADIENTS = 4
"""In float32 too when the forward pass is in float16."""

OPTIMIZERS = {"sgd": 0, "sgd with momentum": 4, "adamw": 8, "8-bit adamw": 2}
"""States of float32 training. The documents' "SGD" is SGD with momentum."""

ZERO_MIXED_ADAM = {
    "float16 weights": 2,
    "float16 gradients": 2,
    "float32 weights": 4,
    "float32 first moment": 4,
    "float32 second moment": 4,
}
"""The ZeRO paper's mixed-precision Adam, with float16 gradients: 16 in all, 12 of them states."""


def zero_states_bytes(parameters: int) -> int:
    """Return what mixed-precision Adam needs, as the ZeRO paper counts: 16 B per parameter."""
    return parameters * sum(ZERO_MIXED_ADAM.values())
