"""What the settings of PyTorch's `checkpoint` change: saved bytes, and products run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)
from torch.utils.flop_counter import FlopCounterMode

from vramlab.measure import Table
from vramlab.units import MIB

ROWS, WIDTH, INNER = 8192, 1024, 4096

Forward = Callable[[Tensor], Tensor]


def knobs_table() -> Table:
    """Run an MLP of two products, GELU and dropout forward and backward with each setting."""
    with torch.device("cuda"):
        mlp = nn.Sequential(
            nn.Linear(WIDTH, INNER), nn.GELU(), nn.Dropout(0.1), nn.Linear(INNER, WIDTH)
        )
        x = torch.zeros(ROWS, WIDTH, requires_grad=True)
    mlp(x[:8]).sum().backward()  # workspaces
    again = partial(checkpoint, mlp, use_reentrant=False)
    ways: dict[str, Forward] = {
        "no checkpoint": mlp,
        "use_reentrant=False": again,
        "the same, early stop off": partial(_to_the_end, again),
        "the same, context_fn: keep products": partial(again, context_fn=_keep_products),
        "the same, preserve_rng_state=False": partial(again, preserve_rng_state=False),
        "use_reentrant=True": partial(checkpoint, mlp, use_reentrant=True),
    }
    return Table(
        "An MLP over 8,192 rows, by how it is checkpointed",
        ("checkpoint", "saved, MiB", "products run again"),
        tuple((name, *_measured(forward, x)) for name, forward in ways.items()),
    )


def _measured(forward: Forward, x: Tensor) -> tuple[str, str]:
    before_bytes = torch.cuda.memory_allocated()
    with FlopCounterMode(display=False) as counter:
        y = forward(x)
        saved_bytes = torch.cuda.memory_allocated() - before_bytes - y.nbytes
        in_forward = counter.get_total_flops()
        y.sum().backward()
    product = in_forward // 2
    x.grad = None
    run_again = (counter.get_total_flops() - in_forward) // product - 4  # two for each product
    return f"{saved_bytes / MIB:.0f}", str(run_again)


def _to_the_end(again: Forward, x: Tensor) -> Tensor:
    with set_checkpoint_early_stop(False):
        return again(x)


def _keep_products() -> Any:
    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
