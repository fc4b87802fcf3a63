"""LoRA: a frozen model, and thin matrices beside its Linear layers that learn (arXiv 2106.09685).

The library for it is PEFT. This is what it does to a model, without its options.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from vramlab_course.lessons.l24_lora_and_qlora.four_bits import FourBitLinear


class AdaptedLinear(nn.Module):
    """A frozen product, and beside it one by two thin matrices: x W' + x A' B' (§4.1).

    `up` begins with zeros, so that at first nothing has changed. The paper's scale alpha / rank is
    left at 1.

    Args:
        base: the frozen layer.
        rank: columns of A, rows of B.
        where: device and dtype of A and B, as of `nn.Linear`.
    """

    def __init__(self, base: nn.Linear | FourBitLinear, rank: int, **where: Any) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, **where)
        self.up = nn.Linear(rank, base.out_features, bias=False, **where)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.base(x) + self.up(self.down(x))
        return output


def adapt(
    model: nn.Module,
    rank: int,
    names: Collection[str],
    *,
    four_bits: Collection[str] = (),
    keeps_weight: bool = False,
) -> nn.Module:
    """Freeze a model, and give its Linear layers of these names adapters; in place.

    Args:
        model: whichever.
        rank: of the adapters.
        names: of layers that get them, as their parents call them, such as 'up'.
        four_bits: of layers whose weights are kept in 4 bits.
        keeps_weight: see `FourBitLinear`.
    """
    model.requires_grad_(False)
    linears = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and name in {*names, *four_bits}
    ]
    for parent, name, layer in linears:
        where = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        base = FourBitLinear(layer, keeps_weight=keeps_weight) if name in four_bits else layer
        setattr(parent, name, AdaptedLinear(base, rank, **where) if name in names else base)
    return model
