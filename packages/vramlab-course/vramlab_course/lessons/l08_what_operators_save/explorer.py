"""Explore what a short chain of operators keeps for its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab import VirtualGPU
from vramlab.measure import SavedTensors, Table, record_saved_tensors
from vramlab.units import format_mib, short_size
from vramlab_course.plots import draw_stack
from vramlab_course.widgets.controls import choice, powers
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.parameters_explorer import DTYPES

NOTHING = "-"
NO_YES = ("no", "yes")

OUT_OF_PLACE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softmax": lambda x: functional.softmax(x, dim=-1),
    "dropout": functional.dropout,
    "x + 1": lambda x: x + 1,
    "2 * x": lambda x: 2 * x,
    "x ** 2": lambda x: x**2,
    "exp": torch.exp,
    "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
}
IN_PLACE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "leaky_relu": functional.leaky_relu_,
    "silu": lambda x: functional.silu(x, inplace=True),
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "dropout": lambda x: functional.dropout(x, inplace=True),
    "x + 1": lambda x: x.add_(1),
    "2 * x": lambda x: x.mul_(2),
    "x ** 2": lambda x: x.pow_(2),
    "exp": torch.exp_,
}
MODULES: Mapping[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, width),
    "layer_norm": nn.LayerNorm,
    "rms_norm": nn.RMSNorm,
}
OPERATORS = (NOTHING, *MODULES, *OUT_OF_PLACE)


@dataclass(frozen=True)
class ChainMemory:
    """What a chain of operators was measured to keep."""

    saved: SavedTensors
    growth_bytes: int
    """What the forward pass left, the output included."""
    error: str
    """What autograd says of the backward pass; '' if it works."""


@explorer("What a chain of operators keeps")
def saved_tensors_explorer(
    first: Annotated[str, choice("First", OPERATORS)] = "linear",
    second: Annotated[str, choice("Second", OPERATORS)] = "gelu",
    third: Annotated[str, choice("Third", OPERATORS)] = "linear",
    in_place: Annotated[str, choice("In place", NO_YES)] = "no",
    names: Annotated[str, choice("Names for results in between", NO_YES)] = "no",
    rows: Annotated[int, powers("Rows", 256, 65536)] = 4096,
    width: Annotated[int, powers("Width", 64, 4096)] = 1024,
    dtype: Annotated[str, choice("dtype", DTYPES)] = "float32",
) -> View:
    """Show what up to three operators in a row save, tensor by tensor.

    In place are operators that have an in-place form; the chain's input is never written to.
    """
    memory = measure_chain(first, second, third, in_place, names, rows, width, dtype)
    words = " → ".join(name for name in (first, second, third) if name != NOTHING)
    kept = short_size(memory.saved.kept_bytes)
    summary = f"{words or 'Nothing'}: {kept} are kept for the backward pass"
    summary += f". But it fails: {memory.error}" if memory.error else "."
    title = f"What the forward pass leaves: {words}"
    picture = draw_stack(_parts(memory), title=title, of="activations")
    return View(summary, picture, (_table(memory), memory.saved.table()))


def measure_chain(
    first: str,
    second: str,
    third: str,
    in_place: str,
    names: str,
    rows: int,
    width: int,
    dtype: str,
) -> ChainMemory:
    """Run a chain forward and backward on a fresh virtual GPU."""
    with VirtualGPU("A100-80GB"), torch.device("cuda"):
        chosen = [name for name in (first, second, third) if name != NOTHING]
        model = nn.ModuleList(
            [MODULES[name](width) if name in MODULES else nn.Identity() for name in chosen]
        ).to(DTYPES[dtype])
        x = torch.zeros(rows, width, dtype=DTYPES[dtype], requires_grad=True)
        with torch.no_grad():
            nn.Linear(width, width, dtype=x.dtype)(x)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_allocated()
        results = [x]
        with record_saved_tensors(model, inputs=x) as recording:
            for number, (name, module) in enumerate(zip(chosen, model, strict=True)):
                written = in_place == "yes" and number > 0 and name in IN_PLACE
                operator = (
                    module if name in MODULES else (IN_PLACE if written else OUT_OF_PLACE)[name]
                )
                results.append(operator(results[-1]))
                if names == "no":
                    del results[:-1]
        growth_bytes = torch.cuda.memory_allocated() - before_bytes
        saved = recording.saved(results[-1])
        error = ""
        try:
            results[-1].sum().backward()
        except RuntimeError as failure:
            error = str(failure)
        del x, results, model
    return ChainMemory(saved, growth_bytes, error)


def _parts(memory: ChainMemory) -> dict[str, int]:
    """Divide kept bytes by who keeps them, and add what is there without being kept."""
    parts: dict[str, int] = {}
    for tensor in memory.saved.tensors:
        if tensor.kept_bytes:
            name = f"{tensor.op.removesuffix('Backward0')}: {tensor.saved_as}"
            parts[name] = parts.get(name, 0) + tensor.kept_bytes
    parts["held by names: the output, ..."] = max(memory.growth_bytes - memory.saved.kept_bytes, 0)
    return parts


def _table(memory: ChainMemory) -> Table:
    kept_bytes = memory.saved.kept_bytes
    return Table(
        "Measured on a virtual A100",
        ("what", "size"),
        (
            ("the forward pass leaves", format_mib(memory.growth_bytes)),
            ("kept for the backward pass", format_mib(kept_bytes)),
            ("held by names: the output, ...", format_mib(memory.growth_bytes - kept_bytes)),
        ),
    )
