"""Lesson 21: what one rank of many holds and sends when layers are cut.

Every function here is one rank alone, of a world of any size: PyTorch's own code runs, and nobody
answers (`vramlab.ranks.alone`). `vramlab.ranks.tensor_parallel` has processes that do answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn import functional

from vramlab.experiments.bert import unsplit_bytes
from vramlab.experiments.outcome import Outcome
from vramlab.experiments.registry import Conditions, experiment
from vramlab.experiments.surroundings import start_afresh
from vramlab.experiments.transformer_model import DROPOUT, FeedForward
from vramlab.experiments.trial import Trial, expected
from vramlab.formulas import tensor_parallel as formulas
from vramlab.formulas.storage import block_bytes, tensor_bytes
from vramlab.formulas.tensor_parallel import DIVISIONS, ORDERS, Cut, Division, Order
from vramlab.formulas.transformer import Sizes
from vramlab.measure.collectives import Collectives, record_collectives
from vramlab.ranks import alone, refuse_real_gpu

Plan = dict[str, ParallelStyle]
"""How each part of a model is cut, by its name."""


@contextmanager
def ranks_alone(ranks: int) -> Iterator[DeviceMesh]:
    """Be rank 0 of a world whose other ranks are not there, on the attached virtual GPU.

    Raises:
        RuntimeError: the GPU is real, where NCCL waits for the others.
    """
    refuse_real_gpu("--nproc-per-node=2 -m vramlab.ranks.tensor_parallel")
    with alone(ranks):
        yield init_device_mesh("cuda", (ranks,))


class Attention(nn.Module):
    """(B, S, W) to (B, S, W), step by step; as many heads as its Linear layers put out.

    Query, key and value have a Linear layer each, so that whole heads can be cut off.
    """

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.head_size, self.dropout = sizes.head_size, dropout
        self.query, self.key, self.value, self.output = (
            nn.Linear(sizes.width, sizes.width) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            linear(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, heads, S, D)
            for linear in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) * self.head_size**-0.5
        weights = functional.dropout(scores.softmax(-1), self.dropout, self.training)
        output: Tensor = self.output((weights @ value).transpose(1, 2).flatten(2))
        return functional.dropout(output, self.dropout, self.training)


class Layer(nn.Module):
    """A transformer layer with the norms in front, (B, S, W) to the same."""

    def __init__(self, sizes: Sizes, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(sizes.width)
        self.attention = Attention(sizes, dropout)
        self.feed_forward_norm = nn.LayerNorm(sizes.width)
        self.feed_forward = FeedForward(sizes, dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return output


def plan(division: Division, *, shared_input: bool = True) -> Plan:
    """How PyTorch is told to cut a `Layer`.

    Args:
        division: see `vramlab.formulas.tensor_parallel`.
        shared_input: query, key and value get their input as one distributed tensor; False: each
            makes its own, and reduces its gradient.
    """
    if division == "whole":
        return {}
    columns: Plan = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    columns["feed_forward.up"] = ColwiseParallel()
    rows = ("attention.output", "feed_forward.down")
    if division == "tensor":
        shared: Plan = {"attention": _takes(Replicate())} if shared_input else {}
        return shared | columns | {name: RowwiseParallel() for name in rows}
    # Dimension 1 of (B, S, W) is the sequence.
    return {
        "attention_norm": SequenceParallel(),
        "attention": _takes(Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": _takes(Shard(1)),
        **columns,
        **{name: RowwiseParallel(output_layouts=Shard(1)) for name in rows},
    }


def _takes(placement: Any) -> PrepareModuleInput:
    """What comes in is placed so, and needed whole."""
    return PrepareModuleInput(
        input_layouts=(placement,), desired_input_layouts=(Replicate(),), use_local_output=False
    )


def divided(model: nn.Module, mesh: DeviceMesh, how: Plan) -> nn.Module:
    """Cut a model and put this rank's part on the GPU, where the whole model never is."""
    parallel: nn.Module = parallelize_module(model.to("meta"), mesh, how) if how else model
    return parallel.to_empty(device="cuda")


def parameter_groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Parameters for an optimizer, in groups of those that are cut among the same ranks.

    The foreach implementation does not mix DTensors of different meshes, nor with other tensors.
    """
    groups: dict[DeviceMesh | None, list[nn.Parameter]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault(mesh, []).append(parameter)
    return [{"params": group} for group in groups.values()]


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    """AdamW for a model that was cut."""
    return torch.optim.AdamW(parameter_groups(model.parameters()))


@dataclass(frozen=True)
class LayerReading:
    """One layer in float16 on one rank: the second step's forward and backward pass."""

    parameters_bytes: int
    """Of this rank's parameters; gradients take as much."""
    kept_bytes: int
    """What forward keeps, its output not included."""
    forward: Collectives
    backward: Collectives


def read_layer(
    ranks: int,
    division: Division,
    batch: int,
    sequence: int,
    width: int,
    heads: int,
    *,
    dropout: float = DROPOUT,
    shared_input: bool = True,
) -> LayerReading:
    """Measure a layer on rank 0 of `ranks`, on the attached virtual GPU."""
    with ranks_alone(ranks) as mesh:
        before_bytes = _held_bytes()
        layer = _layer(mesh, division, width, heads, dropout, shared_input=shared_input)
        parameters_bytes = _held_bytes() - before_bytes
        x = _layer_input(mesh, division, batch, sequence, width)
        kept_bytes, forward, backward = _read_second_step(layer, x)
        del layer, x
    return LayerReading(parameters_bytes, kept_bytes, forward, backward)


def _read_second_step(layer: nn.Module, x: Tensor) -> tuple[int, Collectives, Collectives]:
    """What forward keeps, and what it and backward send, once libraries have their workspaces."""
    layer(x).sum().backward()
    layer.zero_grad()
    x.grad = None
    before_bytes = _held_bytes()
    with record_collectives() as forward:
        y = layer(x)
    kept_bytes = _kept(before_bytes, x, y)
    with record_collectives() as backward:
        y.sum().backward()
    return kept_bytes, forward, backward


def _layer(
    mesh: DeviceMesh,
    division: Division,
    width: int,
    heads: int,
    dropout: float = DROPOUT,
    *,
    shared_input: bool = True,
) -> nn.Module:
    with torch.device("meta"):
        layer = Layer(Sizes(width=width, heads=heads), dropout).half()
    return divided(layer, mesh, plan(division, shared_input=shared_input))


def _layer_input(
    mesh: DeviceMesh, division: Division, batch: int, sequence: int, width: int
) -> Tensor:
    part = sequence // mesh.size() if division == "sequence" else sequence
    shape = (batch, part, width)
    return torch.zeros(shape, dtype=torch.float16, device="cuda", requires_grad=True)


def _held_bytes() -> int:
    """Allocated bytes without the rests of blocks that were not split off."""
    return torch.cuda.memory_allocated() - unsplit_bytes()


def _kept(before_bytes: int, x: Tensor, y: Tensor) -> int:
    """What forward keeps: with the input, which the first norm keeps, and without the output."""
    held_bytes = _held_bytes() - before_bytes
    return held_bytes + block_bytes(x.nbytes) - block_bytes(y.nbytes)


@experiment(
    "tensor-parallel-activations",
    lesson="21",
    question="What does each rank keep of a layer's activations?",
    source="001 §5.3; arXiv 2205.05198, table 2",
    conditions=Conditions(gpu="A100-40GB"),
)
def tensor_parallel_activations(
    ranks: int = 8, batch: int = 4, sequence: int = 1024, width: int = 2048, heads: int = 16
) -> Outcome:
    """Forward of a transformer layer in float16 with dropout: whole, cut, and with its sequence."""
    trial = Trial(
        "tensor-parallel-activations",
        ranks=ranks,
        batch=batch,
        sequence=sequence,
        width=width,
        heads=heads,
    )
    for division in DIVISIONS:
        with ranks_alone(ranks) as mesh:
            layer = _layer(mesh, division, width, heads)
            x = _layer_input(mesh, division, batch, sequence, width)
            layer(x).sum().backward()
            layer.zero_grad()
            rests_bytes = unsplit_bytes()
            with trial.stage(f"{division}: forward") as forward:
                y = layer(x)
                # The input, which the first norm keeps, was there before; the output has come.
                grown_bytes = formulas.kept_bytes(
                    batch, sequence, width, heads, ranks, division
                ) + (unsplit_bytes() - rests_bytes)
                forward.expect(expected("growth", grown_bytes))
            del layer, x, y
        start_afresh()
    return trial.outcome()


@experiment(
    "tensor-parallel-weights",
    lesson="21",
    question="What does each rank keep of a layer's parameters, gradients and states?",
    source="001 §5.3; arXiv 1909.08053",
    conditions=Conditions(gpu="A100-40GB"),
)
def tensor_parallel_weights(width: int = 4096, heads: int = 32) -> Outcome:
    """A layer in float16 with AdamW in float16, on one of 1, 2, 4 and 8 ranks."""
    trial = Trial("tensor-parallel-weights", width=width, heads=heads)
    for ranks in (1, 2, 4, 8):
        division: Division = "tensor" if ranks > 1 else "whole"
        with ranks_alone(ranks) as mesh:
            first = _layer(mesh, division, width, heads)
            x = _layer_input(mesh, division, 1, 8, width)
            first(x).sum().backward()  # libraries' workspaces
            del first
            torch.cuda.empty_cache()
            rests_bytes = unsplit_bytes()
            with trial.stage("one GPU" if ranks == 1 else f"{ranks} ranks") as trained:
                layer = _layer(mesh, division, width, heads)
                optimizer = optimizer_of(layer)
                layer(x).sum().backward()
                optimizer.step()
                grown_bytes = 4 * formulas.parameters_bytes(width, ranks) + (
                    unsplit_bytes() - rests_bytes
                )
                trained.expect(expected("growth", grown_bytes))
            del layer, optimizer, x
        start_afresh()
    return trial.outcome()


# ---- A feed-forward layer, cut in each way ----


def order_plan(order: Order) -> Plan:
    """How PyTorch is told to cut a feed-forward layer whose input and output are whole."""
    inside_is_cut = order == ("column", "row")
    styles: dict[Cut, Any] = {
        "column": lambda last: ColwiseParallel(
            output_layouts=Shard(-1) if inside_is_cut else Replicate()
        ),
        "row": lambda last: RowwiseParallel(
            input_layouts=Shard(-1) if last and inside_is_cut else Replicate()
        ),
    }
    first, second = order
    return {"up": styles[first](False), "down": styles[second](True)}


@dataclass(frozen=True)
class OrderReading:
    """A feed-forward layer on one rank."""

    kept_bytes: int
    """What its forward pass keeps, with its input and without its output."""
    forward: Collectives
    backward: Collectives


def read_order(order: Order, ranks: int, rows: int, width: int) -> OrderReading:
    """Measure a feed-forward layer in float16 whose two matrices are cut so, on rank 0."""
    with ranks_alone(ranks) as mesh:
        with torch.device("meta"):
            whole = FeedForward(Sizes(width=width, heads=1), 0.0).half()
        layer = divided(whole, mesh, order_plan(order))
        x = torch.zeros(rows, width, dtype=torch.float16, device="cuda", requires_grad=True)
        reading = OrderReading(*_read_second_step(layer, x))
        del layer, x
    return reading


def read_orders(ranks: int, rows: int, width: int) -> dict[Order, OrderReading]:
    """The same for every order."""
    return {order: read_order(order, ranks, rows, width) for order in ORDERS}


# ---- The vocabulary ----


@experiment(
    "vocabulary-parallel",
    lesson="21",
    question="Does every rank need all logits?",
    source="arXiv 1909.08053 §3; torch.distributed.tensor.parallel.loss_parallel, PyTorch 2.13",
    conditions=Conditions(gpu="A100-40GB"),
)
def vocabulary_parallel(
    ranks: int = 8, rows: int = 2048, width: int = 1024, vocabulary: int = 32768
) -> Outcome:
    """A head cut by columns, and the loss: with logits gathered, and without."""
    trial = Trial("vocabulary-parallel", ranks=ranks, rows=rows, width=width, vocabulary=vocabulary)
    scalars_bytes = 2 * block_bytes(tensor_bytes(()))  # the loss, and its divisor
    for gathered in (True, False):
        with ranks_alone(ranks) as mesh:
            style = ColwiseParallel(
                output_layouts=Replicate() if gathered else Shard(-1), use_local_output=gathered
            )
            with torch.device("meta"):
                whole = nn.Sequential(nn.Linear(width, vocabulary, bias=False).half())
            head = divided(whole, mesh, {"0": style})
            x = torch.zeros(rows, width, dtype=torch.float16, device="cuda")
            targets = torch.zeros(rows, dtype=torch.long, device="cuda")
            head(x)  # libraries' workspaces
            kept_bytes = formulas.logits_kept_bytes(rows, vocabulary, 1 if gathered else ranks)
            name = "logits gathered" if gathered else "loss_parallel"
            with (
                nullcontext() if gathered else loss_parallel(),
                trial.stage(name, expected("growth", kept_bytes + scalars_bytes)),
            ):
                loss = functional.cross_entropy(head(x), targets)
            del head, x, targets, loss
    return trial.outcome()
