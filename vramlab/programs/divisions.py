"""How ranks divide a model among each other: the names that programs, plans and formulas share."""

from __future__ import annotations

from typing import Literal, get_args

ZeROStage = Literal[0, 1, 2, 3]
ZERO_STAGES: dict[ZeROStage, str] = {
    0: "DDP",
    1: "ZeRO-1",
    2: "ZeRO-2",
    3: "ZeRO-3",
}
"""What is divided among the ranks: nothing, states, and gradients, and parameters
(arXiv 1910.02054)."""

Division = Literal["whole", "tensor", "sequence"]
DIVISIONS: tuple[Division, ...] = get_args(Division)
"""A layer in tensor parallelism: whole, its matrices cut, and its sequence as well
(arXiv 2205.05198)."""

Cut = Literal["column", "row"]
Order = tuple[Cut, Cut]
ORDERS: tuple[Order, ...] = (
    ("column", "row"),
    ("row", "column"),
    ("column", "column"),
    ("row", "row"),
)
"""How the two matrices of a feed-forward layer can be cut."""
