"""The stages of ZeRO by PyTorch's own code: DDP, ZeroRedundancyOptimizer and FSDP2.

`vramlab_course.lessons.l20_zero.formulas` says what each rank holds.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from vramlab.programs.master_weights import MasterAdamW
from vramlab_course.lessons.l20_zero.formulas import Groups, Stage
from vramlab_course.programs.chains import linear_chain

Precision = Literal["float32", "mixed"]
"""`mixed`: 16-bit parameters to compute with and float32 ones to update. bfloat16 with FSDP2, which
keeps float32 shards; float16 with DDP, whose optimizer keeps the float32 copy."""


def groups_of(model: nn.Sequential) -> Groups:
    """List the shapes of each layer's parameters."""
    return [[tuple(parameter.shape) for parameter in layer.parameters()] for layer in model]


class ZeroTraining:
    """A chain of Linear layers that is trained at a stage of ZeRO, on the rank that this one is.

    Args:
        stage: see `vramlab_course.lessons.l20_zero.formulas`.
        layers: how many.
        width: of each.
        bias: whether they have biases.
        precision: see `Precision`.
        offload: with stage 2 and 3: the host keeps the shards.
    """

    def __init__(
        self,
        stage: Stage,
        layers: int,
        width: int,
        *,
        bias: bool = False,
        precision: Precision = "float32",
        offload: bool = False,
    ) -> None:
        self.width = width
        self.model: nn.Sequential
        self.dtype = torch.float32
        if stage < 2:
            self.dtype = torch.float16 if precision == "mixed" else torch.float32
            self.model = linear_chain(layers, width, bias=bias, device="cuda", dtype=self.dtype)
            self.forward_of: nn.Module = DistributedDataParallel(
                self.model, gradient_as_bucket_view=True
            )
            kind = MasterAdamW if precision == "mixed" else torch.optim.AdamW
            self.optimizer = (
                ZeroRedundancyOptimizer(self.model.parameters(), kind, lr=1e-3)
                if stage == 1
                else kind(self.model.parameters(), lr=1e-3)
            )
            self.groups = groups_of(self.model)
            return
        # On no device at first: no rank ever has to hold all of it.
        self.model = linear_chain(layers, width, bias=bias, device="meta")
        self.groups = groups_of(self.model)
        options: dict[str, Any] = {"reshard_after_forward": stage == 3}
        if precision == "mixed":
            # Gradients are reduced in it, too: from PyTorch 2.15 on only if that is said.
            options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)
        if offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
        for layer in self.model:
            fully_shard(layer, **options)
        fully_shard(self.model, **options)
        self.model.to_empty(device="cpu" if offload else "cuda")
        self.forward_of = self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def forward(self, rows: int = 1) -> torch.Tensor:
        """Return the loss of a batch."""
        x = torch.zeros(rows, self.width, device="cuda", dtype=self.dtype)
        loss: torch.Tensor = self.forward_of(x).sum()
        return loss

    def step(self) -> None:
        """Run a whole step; gradients stay."""
        self.forward().backward()
        self.optimizer.step()
