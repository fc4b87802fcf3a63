"""Lesson 08: what a transformer's MLP block keeps, where document 001 stops in mid-sentence."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l08_what_operators_save.mlp_block_formulas import MLPBlock

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "silu": functional.silu,
    "relu": functional.relu,
    "tanh": torch.tanh,
}


class MLP(nn.Module):
    """x + dropout(activation(x W1 + b1) W2 + b2), as document 001 §3.2 and GPT-2 have it."""

    def __init__(
        self, width: int, factor: int = 4, activation: str = "gelu", dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.widen = nn.Linear(width, factor * width)
        self.narrow = nn.Linear(factor * width, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, sequence, width) to the same."""
        y: Tensor = x + self.dropout(self.narrow(self.activation(self.widen(x))))
        return y


@experiment(
    "mlp-block",
    lesson="08",
    question="What does the MLP block keep, where the document stops in the middle of a sentence?",
    source="001 §3.2",
)
def mlp_block(batch: int = 8, sequence: int = 512, width: int = 1024) -> Outcome:
    """Run the block in two dtypes, with two activation functions, with and without dropout.

    Args:
        batch, sequence, width: of its input.
    """
    trial = Trial("mlp-block", batch=batch, sequence=sequence, width=width)
    for dtype in ("float32", "float16"):
        for activation in ("gelu", "relu"):
            for dropout in (0.1, 0.0):
                block = MLPBlock(
                    batch, sequence, width, activation=activation, dropout=dropout > 0, dtype=dtype
                )
                with torch.device("cuda"):
                    model = MLP(width, 4, activation, dropout).to(getattr(torch, dtype))
                    x = torch.ones(
                        (batch, sequence, width), dtype=getattr(torch, dtype), requires_grad=True
                    )
                with torch.no_grad():
                    model(x)  # cuBLAS has its workspace from here on
                torch.cuda.empty_cache()
                name = f"{dtype}, {activation}, {'' if dropout else 'no '}dropout"
                with trial.stage(name, expected("growth", block.growth_bytes)):
                    y = model(x)
                del model, x, y
                torch.cuda.empty_cache()
    return trial.outcome()
