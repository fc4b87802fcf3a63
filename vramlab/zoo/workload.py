"""Workloads: a model, its batch, precision, optimizer and attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "autocast-fp16", "autocast-bf16", "bf16"]
"""Of parameters and computation; `autocast-...` keeps float32 parameters."""

Optimizer = Literal[
    "sgd", "momentum", "adamw", "adamw-loop", "adamw-foreach", "adamw-fused", "adafactor"
]
"""`adamw` leaves the implementation to PyTorch, which takes foreach on a GPU."""

Attention = Literal["eager", "sdpa", "math", "efficient", "flash"]
"""`eager` is written out in the model; `sdpa` leaves the kernel to PyTorch, the others insist."""

Mode = Literal["train", "infer", "generate"]
"""Two training steps, two forward passes without a graph, or tokens from a key-value cache."""


@dataclass(frozen=True)
class Workload:
    """One line of the zoo's table."""

    model: str
    """A name in `vramlab.zoo.subjects.SUBJECTS`."""
    batch: int
    """How many samples are computed at once."""
    length: int = 0
    """Tokens of a sample; 0 where the model's samples have one size."""
    precision: Precision = "fp32"
    optimizer: Optimizer | None = "adamw"
    """None: it does not train."""
    attention: Attention | None = None
    """None: the model has no attention."""
    checkpointing: bool = False
    """Activations of the layers are computed again in the backward pass."""
    clipping: bool = False
    """Gradients are clipped to a norm before the step."""
    mode: Mode = "train"

    @property
    def id(self) -> str:
        """Name it for recordings, such as 'bert-base-b32-s128-fp32-adamw-math'."""
        words = (
            self.model,
            f"b{self.batch}",
            f"s{self.length}" if self.length else None,
            self.precision,
            self.optimizer if self.mode == "train" else self.mode,
            self.attention,
            "checkpointing" if self.checkpointing else None,
            "clipping" if self.clipping else None,
        )
        return "-".join(word for word in words if word)
