"""In inference mode ops come whole to the dispatcher, and allocate as they do under no_grad."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from vramlab.gpu import VirtualGPU

PROGRAMS: dict[str, Callable[[torch.Tensor], object]] = {
    "linear": lambda x: functional.linear(x, x[0, 0], x[0, 0, 0]),
    "layer norm": lambda x: functional.layer_norm(x, (64,), x[0, 0, 0], x[0, 0, 1]),
    "softmax to float32": lambda x: x.half().softmax(-1, dtype=torch.float32),
    "product of batches": lambda x: x @ x.transpose(-1, -2),
    "dropout": lambda x: functional.dropout(x, 0.1, training=True),
    "no dropout": lambda x: functional.dropout(x, 0.1, training=False),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "causal attention": lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "rms norm": lambda x: functional.rms_norm(x, (64,)),
    "conversion": lambda x: x.to(torch.bfloat16).cpu(),
    "reshape of a transposed": lambda x: x.transpose(-1, -2).reshape(-1),
    "group norm": lambda x: nn.GroupNorm(2, 2, device="cuda")(x),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("values", [False, True])
def test_allocations_are_those_of_no_grad(
    program: Callable[[torch.Tensor], object], values: bool
) -> None:
    def events(mode: type[torch.no_grad | torch.inference_mode]) -> list[tuple[str, int]]:
        with VirtualGPU("A100-40GB", values=values), mode():
            torch.cuda.memory._record_memory_history(stacks="python")
            program(torch.ones(2, 2, 64, 64, device="cuda"))
            (trace,) = torch.cuda.memory._snapshot()["device_traces"]
            return [(event["action"], event["size"]) for event in trace]

    assert events(torch.inference_mode) == events(torch.no_grad)
