"""Lesson 21: what one rank of many holds and sends when layers are cut.

Every function here is one rank alone, of a world of any size: PyTorch's own code runs, and no
other rank answers (`vramlab.programs.alone`).
`vramlab_course.lessons.l21_tensor_parallel.ranks` has processes that do answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    loss_parallel,
)
from torch.nn import functional

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.collectives import Collectives, record_collectives
from vramlab.measure.counters import held_bytes, unsplit_remainder_bytes
from vramlab.measure.environment import start_afresh
from vramlab.programs.alone import alone
from vramlab.programs.tensor_parallel import DividedLayer, divided, optimizer_of, order_plan, plan
from vramlab.programs.transformer import DROPOUT, FeedForward
from vramlab.programs.transformer_memory import Sizes
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l21_tensor_parallel import formulas as formulas
from vramlab_course.lessons.l21_tensor_parallel.formulas import DIVISIONS, ORDERS, Division, Order
from vramlab_course.programs.ranks import refuse_real_gpu


@contextmanager
def ranks_alone(ranks: int) -> Iterator[DeviceMesh]:
    """Be rank 0 of a world whose other ranks are not there, on the attached virtual GPU.

    Raises:
        RuntimeError: the GPU is real, where NCCL waits for the others.
    """
    refuse_real_gpu("--nproc-per-node=2 -m vramlab_course.lessons.l21_tensor_parallel.ranks")
    with alone(ranks):
        yield init_device_mesh("cuda", (ranks,))


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
        before_bytes = held_bytes()
        layer = _layer(mesh, division, width, heads, dropout, shared_input=shared_input)
        parameters_bytes = held_bytes() - before_bytes
        x = _layer_input(mesh, division, batch, sequence, width)
        kept_bytes, forward, backward = _read_second_step(layer, x)
        del layer, x
    return LayerReading(parameters_bytes, kept_bytes, forward, backward)


def _read_second_step(layer: nn.Module, x: Tensor) -> tuple[int, Collectives, Collectives]:
    """Return what forward saves, and what it and backward send, after a first step."""
    layer(x).sum().backward()
    layer.zero_grad()
    x.grad = None
    before_bytes = held_bytes()
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
        layer = DividedLayer(Sizes(width=width, heads=heads), dropout).half()
    return divided(layer, mesh, plan(division, shared_input=shared_input))


def _layer_input(
    mesh: DeviceMesh, division: Division, batch: int, sequence: int, width: int
) -> Tensor:
    part = sequence // mesh.size() if division == "sequence" else sequence
    shape = (batch, part, width)
    return torch.zeros(shape, dtype=torch.float16, device="cuda", requires_grad=True)


def _kept(before_bytes: int, x: Tensor, y: Tensor) -> int:
    """Return what forward saves: with the first norm's input, and without the output."""
    grown_bytes = held_bytes() - before_bytes
    return grown_bytes + block_bytes(x.nbytes) - block_bytes(y.nbytes)


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
    """Run a transformer layer in float16 with dropout: whole, cut, and with its sequence."""
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
            remainder_bytes = unsplit_remainder_bytes()
            with trial.stage(f"{division}: forward") as forward:
                y = layer(x)
                # The input, which the first norm keeps, was there before; the output has come.
                grown_bytes = formulas.kept_bytes(
                    batch, sequence, width, heads, ranks, division
                ) + (unsplit_remainder_bytes() - remainder_bytes)
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
    """Run a layer in float16 with AdamW in float16, on one of 1, 2, 4 and 8 ranks."""
    trial = Trial("tensor-parallel-weights", width=width, heads=heads)
    for ranks in (1, 2, 4, 8):
        division: Division = "tensor" if ranks > 1 else "whole"
        with ranks_alone(ranks) as mesh:
            first = _layer(mesh, division, width, heads)
            x = _layer_input(mesh, division, 1, 8, width)
            first(x).sum().backward()  # libraries' workspaces
            del first
            torch.cuda.empty_cache()
            remainder_bytes = unsplit_remainder_bytes()
            with trial.stage("one GPU" if ranks == 1 else f"{ranks} ranks") as trained:
                layer = _layer(mesh, division, width, heads)
                optimizer = optimizer_of(layer)
                layer(x).sum().backward()
                optimizer.step()
                grown_bytes = 4 * formulas.parameters_bytes(width, ranks) + (
                    unsplit_remainder_bytes() - remainder_bytes
                )
                trained.expect(expected("growth", grown_bytes))
            del layer, optimizer, x
        start_afresh()
    return trial.outcome()


# ---- A feed-forward layer, cut in each way ----


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
    """Return the same for every order."""
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
    """Run a head cut by columns, and the loss: with logits gathered, and without."""
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
