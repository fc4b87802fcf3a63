"""Lesson 08: what operators keep for backward, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.measure import SavedTensors, Table, Whose, saved_by
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l08_what_operators_save.operators_formulas import (
    KEEPS,
    OperatorSizes,
    held_bytes,
)

ROWS, WIDTH = 4096, 1024
IMAGES = (16, 64, 64, 64)
"""Images, channels, height and width: as many elements as ROWS x WIDTH."""
CHANNELS = IMAGES[1]
GROUPS = 8
CLASSES = WIDTH
POOL = 2
ELEMENTS = ROWS * WIDTH

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Operator:
    """An operator, and what it is tried on."""

    name: str
    """In `vramlab_course.lessons.l08_what_operators_save.operators_formulas.KEEPS`."""
    apply: Callable[..., Tensor] | None
    """A function of the inputs; None if a module is applied."""
    inputs: Callable[[torch.dtype], Inputs]
    """Makes what goes in, on the GPU."""
    sizes: OperatorSizes
    make: Callable[[], nn.Module] | None = None
    """Makes the module."""
    halves: bool = True
    """Whether it is tried in float16 too; there, some keep their statistics in float16."""

    def bind(self, dtype: torch.dtype) -> tuple[Callable[..., Tensor], nn.Module | None]:
        """Return the operator as a function of its inputs, and its module if it has one."""
        if self.make is None:
            assert self.apply is not None
            return self.apply, None
        module = self.make().to("cuda", dtype)
        return module, module


def _rows(dtype: torch.dtype) -> Inputs:
    return (_numbers(ROWS, WIDTH, dtype=dtype),)


def _two(dtype: torch.dtype) -> Inputs:
    return _numbers(ROWS, WIDTH, dtype=dtype), _numbers(ROWS, WIDTH, dtype=dtype)


def _matrices(dtype: torch.dtype) -> Inputs:
    return _numbers(ROWS, WIDTH, dtype=dtype), _numbers(WIDTH, WIDTH, dtype=dtype)


def _images(dtype: torch.dtype) -> Inputs:
    return (_numbers(*IMAGES, dtype=dtype),)


def _indexed(dtype: torch.dtype) -> Inputs:
    return _numbers(ROWS, WIDTH, dtype=dtype), _ids()


def _numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.ones(shape, dtype=dtype, device="cuda", requires_grad=True)


def _ids() -> Tensor:
    return torch.zeros(ROWS, dtype=torch.long, device="cuda")


_SAME = OperatorSizes(ELEMENTS, output=ELEMENTS)
_PAIR = OperatorSizes(ELEMENTS, ELEMENTS, output=ELEMENTS)
_BY_ROW = OperatorSizes(ELEMENTS, output=ELEMENTS, groups=ROWS)
_POOLED = OperatorSizes(ELEMENTS, output=ELEMENTS // POOL**2)
_INDEXED = OperatorSizes(ELEMENTS, ROWS, output=ELEMENTS)


def _on_rows(
    name: str, apply: Callable[[Tensor], Tensor], sizes: OperatorSizes = _SAME
) -> Operator:
    return Operator(name, apply, _rows, sizes)


def _on_two(name: str, apply: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return Operator(name, apply, _two, _PAIR)


def _layer(
    name: str,
    make: Callable[[], nn.Module],
    sizes: OperatorSizes,
    inputs: Callable[[torch.dtype], Inputs] = _rows,
    halves: bool = True,
) -> Operator:
    return Operator(name, None, inputs, sizes, make, halves)


OPERATORS = (
    _on_rows("relu", functional.relu),
    _on_rows("leaky_relu", functional.leaky_relu),
    _on_rows("elu", functional.elu),
    _on_rows("gelu", functional.gelu),
    _on_rows("silu", functional.silu),
    _on_rows("sigmoid", torch.sigmoid),
    _on_rows("tanh", torch.tanh),
    _on_rows("softmax", lambda x: functional.softmax(x, dim=-1)),
    _on_rows("dropout", functional.dropout),
    _on_two("x + y", lambda x, y: x + y),
    _on_rows("x + 1", lambda x: x + 1),
    _on_rows("2 * x", lambda x: 2 * x),
    _on_two("x * y", lambda x, y: x * y),
    _on_two("x / y", lambda x, y: x / y),
    _on_rows("x ** 2", lambda x: x**2),
    _on_rows("exp", torch.exp),
    _on_rows("sqrt", torch.sqrt),
    _on_rows("log", torch.log),
    _on_rows("abs", torch.abs),
    _on_rows("sum", lambda x: x.sum(), OperatorSizes(ELEMENTS, output=1)),
    _on_rows("max", lambda x: x.max(dim=1).values, OperatorSizes(ELEMENTS, output=ROWS)),
    _layer("linear", lambda: nn.Linear(WIDTH, WIDTH), _SAME),
    Operator(
        "x @ y", torch.matmul, _matrices, OperatorSizes(ELEMENTS, WIDTH * WIDTH, output=ELEMENTS)
    ),
    _layer("conv2d", lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), _SAME, _images, False),
    _layer(
        "embedding",
        lambda: nn.Embedding(CLASSES, WIDTH),
        _INDEXED,
        lambda _: (_ids(),),
    ),
    _layer("layer_norm", lambda: nn.LayerNorm(WIDTH), _BY_ROW),
    _layer("rms_norm", lambda: nn.RMSNorm(WIDTH), _BY_ROW),
    _layer(
        "group_norm",
        lambda: nn.GroupNorm(GROUPS, CHANNELS),
        OperatorSizes(ELEMENTS, output=ELEMENTS, groups=IMAGES[0] * GROUPS),
        _images,
        False,
    ),
    _layer(
        "batch_norm",
        lambda: nn.BatchNorm2d(CHANNELS),
        OperatorSizes(ELEMENTS, output=ELEMENTS, groups=CHANNELS),
        _images,
        False,
    ),
    Operator("max_pool2d", lambda x: functional.max_pool2d(x, POOL), _images, _POOLED),
    Operator("avg_pool2d", lambda x: functional.avg_pool2d(x, POOL), _images, _POOLED),
    Operator("x[i]", lambda x, i: x[i], _indexed, _INDEXED),
    _on_two("cat", lambda x, y: torch.cat([x, y])),
    _on_rows("view", lambda x: x.view(-1)),
    _on_rows("transpose", lambda x: x.t()),
    _on_rows("reshape that copies", lambda x: x.t().reshape(-1)),
    _on_two("mse_loss", functional.mse_loss),
    Operator("cross_entropy", functional.cross_entropy, _indexed, _INDEXED),
)
"""The operators of `KEEPS`, in the same order."""

LEFT_TO_CUDNN = ("batch_norm",)
"""What they keep besides is the library's business."""


def operator(name: str) -> Operator:
    """Return the operator of that name; KeyError with the known ones if there is none."""
    for known in OPERATORS:
        if known.name == name:
            return known
    raise KeyError(f"no operator {name!r}; there are: {', '.join(KEEPS)}")


def saved_by_operator(name: str, dtype: torch.dtype = torch.float32) -> SavedTensors:
    """Return what one operator saves for backward, by hooks; inputs and output are marked."""
    chosen = operator(name)
    function, module = chosen.bind(dtype)
    inputs = chosen.inputs(dtype)
    return saved_by(lambda: function(*inputs), module, inputs=inputs)


def _run(function: Callable[..., Tensor], leaves: Inputs) -> Tensor:
    """Apply an operator to tensors without other references, and add up what comes out.

    A sum keeps nothing. So what is allocated afterwards is what the operator holds on to, and a
    number.
    """
    inputs = [leaf * 1 if leaf.requires_grad else leaf.clone() for leaf in leaves]
    return function(*inputs).sum()


@experiment(
    "operators-save",
    lesson="08",
    question="Which operators cost memory in training, and which do not?",
    source="001 §2.23 and §3.1, 003",
)
def operators_save(dtype: str = "float32") -> Outcome:
    """Run the operators of `KEEPS` on 4096 x 1024 numbers, or as many in images.

    Inputs and output lose their names, so that the allocator alone shows what the operator
    saves; `operators_table` asks autograd's hooks the same. Batch norm is left out: on a real GPU,
    cuDNN's keeps a buffer of its own, whose size the library decides.

    Args:
        dtype: of inputs and parameters: float32 or float16. In float16 those are left out in
            which a library decides.
    """
    trial = Trial("operators-save", dtype=dtype)
    torch_dtype = getattr(torch, dtype)
    for chosen in OPERATORS:
        if chosen.name in LEFT_TO_CUDNN or (dtype != "float32" and not chosen.halves):
            continue
        function, module = chosen.bind(torch_dtype)
        leaves = chosen.inputs(torch_dtype)
        _run(function, leaves)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        predicted_bytes = held_bytes(chosen.name, chosen.sizes, dtype) + block_bytes(4)
        with trial.stage(chosen.name, expected("growth", predicted_bytes)):
            loss = _run(function, leaves)
        del loss, function, module, leaves
        torch.cuda.empty_cache()
    return trial.outcome()


def operators_table(*names: str, dtype: torch.dtype = torch.float32) -> Table:
    """Return what operators keep, through torch's hooks: one row each.

    Args:
        names: of operators; all if none are given.
        dtype: of inputs and parameters.
    """
    rows = tuple(_row(name, dtype) for name in names or tuple(KEEPS))
    return Table(
        caption=f"What operators save, on {ELEMENTS:,} numbers of {_short(dtype)}",
        header=("operator", "its input", "its output", "something else", "bytes per element"),
        rows=rows,
        notes=(
            "'Bytes per element': all that is kept, for each element of the first input, or of "
            "embedding's output. Parameters, which live anyway, are not counted.",
        ),
    )


def _row(name: str, dtype: torch.dtype) -> tuple[str, ...]:
    sizes = operator(name).sizes
    saved = saved_by_operator(name, dtype)
    storages: dict[str, int] = {}  # by whose they are, so that each counts once
    own, others = set(), []
    for tensor in saved.tensors:
        if tensor.whose is Whose.INPUT:
            own.add(f"{tensor.name.removeprefix('input')}{_dtype(tensor.dtype, dtype)}")
            storages[tensor.name] = tensor.storage_bytes
        elif tensor.whose is Whose.OUTPUT:
            storages["output"] = tensor.storage_bytes
        elif tensor.whose is Whose.NEW:
            shape = " x ".join(map(str, tensor.shape)) or "one number,"
            others.append(f"{shape} {_short(tensor.dtype)}")
            storages[others[-1] + str(len(others))] = tensor.storage_bytes
    held = sum(storages.values())
    return (
        name,
        _inputs_in_words(sorted(own), 2 if sizes.second and name != "embedding" else 1),
        "yes" if "output" in storages else "-",
        "\n".join(others) or "-",
        f"{held / sizes.first:.2f}".rstrip("0").rstrip("."),
    )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(own: torch.dtype, usual: torch.dtype) -> str:
    return "" if own is usual else f", {_short(own)}"


def _inputs_in_words(own: list[str], count: int) -> str:
    """'yes' for the only input, 'both' for two, else which one."""
    if not own:
        return "-"
    if count == 1:
        return "yes" + own[0]
    if len(own) == count:
        return "both"
    place, rest = own[0][:3], own[0][3:]
    return f"the {'second' if place == '[1]' else 'first'}{rest}"
