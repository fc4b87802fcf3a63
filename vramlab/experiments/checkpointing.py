"""Lesson 14: what checkpointing a chain saves, and what it costs."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from vramlab.attachment import attached
from vramlab.checkpointing import (
    Schedule,
    recompute_all,
    revolve,
    segments,
    simulate,
    store_all,
)
from vramlab.checkpointing.execute import execute
from vramlab.experiments.outcome import Outcome
from vramlab.experiments.registry import Conditions, experiment
from vramlab.experiments.trial import Trial, expected
from vramlab.formulas import checkpointing as formulas
from vramlab.formulas.checkpointing import ChainSizes
from vramlab.formulas.storage import block_bytes, tensor_bytes
from vramlab.formulas.training import SCALAR_BYTES
from vramlab.measure.flops import count_flops
from vramlab.units import GIB

STEPS, BATCH, WIDTH = 16, 8192, 256
"""The chain of the lesson: 16 steps over (8192, 256), so that a state has 8 MiB."""

Run = Callable[[nn.Sequential, Tensor], Tensor]
"""A forward pass over a chain."""


class MLPStep(nn.Sequential):
    """One step of the chain: Linear to four times the width, GELU, Linear back; no biases."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Linear(width, 4 * width, bias=False),
            nn.GELU(),
            nn.Linear(4 * width, width, bias=False),
        )


def mlp_chain(steps: int, width: int) -> nn.Sequential:
    """A chain of steps with inner activations, nine times a state in all."""
    return nn.Sequential(*(MLPStep(width) for _ in range(steps)))


def linear_chain(steps: int, width: int) -> nn.Sequential:
    """A chain of steps that keep a state each and nothing else: the documents' nodes."""
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(steps)))


def prepared(chain: nn.Sequential, x: Tensor) -> nn.Sequential:
    """The chain on the GPU, after a step that brings cuBLAS's workspaces; without gradients."""
    chain.to("cuda")
    chain(x[:8]).sum().backward()
    chain.zero_grad()
    return chain


# ---- The strategies, memory and FLOPs ----


@dataclass(frozen=True)
class Exchange:
    """What a strategy saves and costs: one point of the chart."""

    strategy: str
    """What it is called."""
    by_torch: bool
    """Whether torch.utils.checkpoint does it, or a schedule of vramlab.checkpointing."""
    predicted_peak_bytes: int
    """Peak beyond parameters, input and workspaces, from a closed form."""
    peak_bytes: int
    """The same, measured."""
    predicted_flops: int
    """Of one training step's matrix products, from a closed form."""
    flops: int
    """The same, counted."""


def exchanges(steps: int = STEPS, batch: int = BATCH, width: int = WIDTH) -> tuple[Exchange, ...]:
    """Measure one training step of an MLP chain under each strategy, on the current GPU.

    FLOPs are counted in a step of its own: torch's counter holds on to tensors, which would change
    the peak.
    """
    root = isqrt(steps)
    sizes = formulas.mlp_sizes(batch, width)
    flops = formulas.mlp_flops(batch, width)
    x = torch.zeros(batch, width, device="cuda")
    chain = prepared(mlp_chain(steps, width), x)
    points = []
    schedules = [
        store_all(steps),
        *(segments(steps, count) for count in (root, steps)),
        *(revolve(steps, slots) for slots in (2, 3, root, 2 * root)),
        recompute_all(steps),
    ]
    for schedule in schedules:
        run: Callable[[], object] = functools.partial(execute, schedule, chain, x, torch.sum)
        peak_bytes, counted = _measure(chain, run)
        points.append(
            Exchange(
                strategy=schedule.name,
                by_torch=False,
                predicted_peak_bytes=formulas.peak_bytes(schedule, sizes),
                peak_bytes=peak_bytes,
                predicted_flops=flops.step(steps, simulate(schedule).forwards),
                flops=counted,
            )
        )
    # checkpoint() of every step runs all of them again, the last included; it stops each before its
    # last product, which nothing in the backward pass reads.
    stopped = flops.step(steps, 2 * steps) - steps * flops.last_product
    each_bytes = formulas.peak_bytes(segments(steps, steps), sizes) + SCALAR_BYTES
    by_torch: list[tuple[str, Run, int, int]] = [
        ("checkpoint, each step", each_step, each_bytes, stopped),
        (
            "selective: products kept",
            selective,
            formulas.selective_bytes(steps, sizes),
            flops.step(steps, steps),
        ),
    ]
    for name, forward, predicted_bytes, predicted_flops in by_torch:
        peak_bytes, counted = _measure(chain, functools.partial(_train, forward, chain, x))
        points.append(Exchange(name, True, predicted_bytes, peak_bytes, predicted_flops, counted))
    return tuple(points)


def each_step(chain: nn.Sequential, x: Tensor) -> Tensor:
    """Each step is checkpointed."""
    for step in chain:
        x = checkpoint(step, x, use_reentrant=False)
    return x


def keep_products(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """The policy of selective checkpointing: outputs of matrix products are kept."""
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


def selective(chain: nn.Sequential, x: Tensor) -> Tensor:
    """Each step is checkpointed but for its matrix products."""
    contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
    for step in chain:
        x = checkpoint(step, x, use_reentrant=False, context_fn=contexts)
    return x


def _train(forward: Run, chain: nn.Sequential, x: Tensor) -> None:
    loss = forward(chain, x).sum()
    loss.backward()


def _measure(chain: nn.Module, train: Callable[[], object]) -> tuple[int, int]:
    """Peak bytes beyond what was there, and FLOPs, of a training step each."""
    before_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    train()
    peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
    chain.zero_grad()
    counter = count_flops()
    with counter:
        train()
    chain.zero_grad()
    return peak_bytes, counter.get_total_flops()


@experiment(
    "checkpoint-strategies",
    lesson="14",
    question="What does each strategy hold at its peak?",
    source="000 §5.3, 001 §4.2, 004",
)
def checkpoint_strategies(steps: int = STEPS, batch: int = BATCH, width: int = WIDTH) -> Outcome:
    """A chain of MLP steps under every schedule, as executed with real recomputation.

    Args:
        steps: length of the chain.
        batch: rows of a state.
        width: columns of a state.
    """
    trial = Trial("checkpoint-strategies", steps=steps, batch=batch, width=width)
    sizes = formulas.mlp_sizes(batch, width)
    x = torch.zeros(batch, width, device="cuda")
    with trial.stage("parameters, workspaces"):
        chain = prepared(mlp_chain(steps, width), x)
    root = isqrt(steps)
    schedules = [
        store_all(steps),
        segments(steps, root),
        segments(steps, steps),
        revolve(steps, 2),
        revolve(steps, root),
        recompute_all(steps),
    ]
    for schedule in schedules:
        _scheduled_stage(trial, schedule, chain, x, sizes)
    return trial.outcome()


def _scheduled_stage(
    trial: Trial, schedule: Schedule, chain: nn.Sequential, x: Tensor, sizes: ChainSizes
) -> None:
    """A stage that runs a schedule."""
    before_bytes = torch.cuda.memory_allocated()
    predicted_bytes = before_bytes + formulas.peak_bytes(schedule, sizes)
    with trial.stage(schedule.name, expected("peak", predicted_bytes)):
        execute(schedule, chain, x, torch.sum)
    chain.zero_grad()


@experiment(
    "checkpoint-sqrt",
    lesson="14",
    question="Does memory grow with the square root of the depth?",
    source="001 §4.2, 004",
)
def checkpoint_sqrt(
    roots: Sequence[int] = (2, 4, 6, 8, 10), batch: int = BATCH, width: int = WIDTH
) -> Outcome:
    """Chains of Linear steps, each state a node: all stored, and in sqrt(n) segments.

    Args:
        roots: of the depths.
        batch: rows of a state.
        width: columns of a state.
    """
    trial = Trial("checkpoint-sqrt", roots=list(roots), batch=batch, width=width)
    sizes = formulas.linear_sizes(batch, width)
    x = torch.zeros(batch, width, device="cuda")
    for root in roots:
        steps = root * root
        chain = prepared(linear_chain(steps, width), x)
        for schedule in (store_all(steps), segments(steps, root)):
            before_bytes = torch.cuda.memory_allocated()
            peak_bytes = formulas.peak_bytes(schedule, sizes)
            name = f"{steps} steps, {schedule.name}"
            with trial.stage(name, expected("peak", before_bytes + peak_bytes)):
                execute(schedule, chain, x, torch.sum)
            chain.zero_grad()
    return trial.outcome()


@experiment(
    "checkpoint-sequential",
    lesson="14",
    question="What does torch's checkpoint_sequential hold, reentrant and not?",
    source="000 §5.3",
)
def checkpoint_sequential_both(
    steps: int = 12, counts: Sequence[int] = (3, 4, 12), batch: int = BATCH, width: int = WIDTH
) -> Outcome:
    """A chain of MLP steps through torch's own checkpointing, forward and backward.

    Args:
        steps: length of the chain.
        counts: numbers of segments.
        batch: rows of a state.
        width: columns of a state.
    """
    trial = Trial(
        "checkpoint-sequential", steps=steps, counts=list(counts), batch=batch, width=width
    )
    sizes = formulas.mlp_sizes(batch, width)
    for reentrant in (False, True):
        # Reentrant checkpoints need an input that requires a gradient.
        x = torch.zeros(batch, width, device="cuda", requires_grad=reentrant)
        chain = prepared(mlp_chain(steps, width), x)
        x.grad = None
        for count in counts:
            before_bytes = torch.cuda.memory_allocated()
            name = f"{count} segments, {'reentrant' if reentrant else 'not reentrant'}"
            held_bytes = formulas.segments_held_bytes(steps, count, sizes)
            with trial.stage(f"{name}: forward", expected("growth", held_bytes)):
                y = checkpoint_sequential(chain, count, x, use_reentrant=reentrant)
            schedule = segments(steps, count)
            peak_bytes = (
                formulas.reentrant_segments_bytes(steps, count, sizes)
                if reentrant
                else formulas.peak_bytes(schedule, sizes)
            )
            with trial.stage(
                f"{name}: backward", expected("peak", before_bytes + peak_bytes + SCALAR_BYTES)
            ):
                loss = y.sum()
                del y
                loss.backward()
            chain.zero_grad()
            del loss
            x.grad = None
    return trial.outcome()


# ---- The documents' claims: 20 % slower, 10 times as large ----


LAYERS, HIDDEN = 12, 768
"""Of BERT-base and GPT-2."""

LAYERS_COUNTED = 2
"""Of these, FLOPs are counted: all layers take the same, and counting takes long."""


def _bert(layers: int) -> Any:
    from transformers import BertConfig, BertModel

    settings = {"num_hidden_layers": layers, "attn_implementation": "eager"}
    return BertModel(BertConfig.from_dict(settings), add_pooling_layer=False)


def _gpt2(layers: int) -> Any:
    from transformers import GPT2Config, GPT2Model

    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    settings = {**none, "n_layer": layers, "attn_implementation": "eager"}
    return GPT2Model(GPT2Config.from_dict(settings))


def enable_checkpointing(model: Any, use_reentrant: bool = False) -> None:
    """Checkpoint each layer of a transformers model, by the name that its version has for it."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})


def _flops(model: nn.Module, train: Callable[[], object]) -> int:
    """FLOPs of a training step; its gradients are given back."""
    counter = count_flops()
    with counter:
        train()
    model.zero_grad()
    return counter.get_total_flops()


def _seconds(train: Callable[[], object], repetitions: int = 5) -> float | None:
    """The shortest of some repetitions on a real GPU; a virtual one has no time."""
    gpu = attached()
    if gpu is None or gpu.virtual:
        return None
    times: list[float] = []
    for _ in range(repetitions):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        train()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return min(times)


@experiment(
    "checkpoint-slowdown",
    lesson="14",
    question="Is checkpointing 20 % slower, and does a model 10 times as large fit?",
    source="003, 004",
    figures=("checkpoint-slowdown",),
    conditions=Conditions(
        why="counted FLOPs are the same on every GPU; the documents' figures come from the readme "
        "of openai/gradient-checkpointing (TensorFlow, a GTX 1080, times not FLOPs)",
    ),
)
def checkpoint_slowdown(batch: int = 32, sequence: int = 512) -> Outcome:
    """BERT-base and GPT-2 with each layer checkpointed, and the deepest chain that fits the GPU.

    BERT's layer ends in dropout and a norm, which keep their inputs, so that all of it runs again.
    GPT-2's, without dropout, ends in a matrix product whose result nothing keeps: torch stops
    before it.

    Args:
        batch: of the transformers.
        sequence: tokens of each.
    """
    trial = Trial("checkpoint-slowdown", batch=batch, sequence=sequence)
    forward, last = formulas.transformer_flops(LAYERS, HIDDEN, batch, sequence)
    # Beside the layers BERT keeps its embeddings' dropout mask, GPT-2 a mask of the future.
    dropped_bytes = block_bytes(tensor_bytes((batch, sequence, HIDDEN), "bool"))
    future_bytes = block_bytes(tensor_bytes((batch, 1, sequence, sequence)))
    for name, build, again, added_bytes in (
        ("BERT-base", _bert, forward, dropped_bytes),
        ("GPT-2", _gpt2, forward - last, future_bytes),
    ):
        kept_bytes = formulas.transformer_kept_bytes(LAYERS, HIDDEN, batch, sequence, added_bytes)
        trial.find(
            "checkpoint-slowdown",
            _slowdown(trial, name, build, (batch, sequence), kept_bytes),
            predicted=again / (3 * forward),
            index=0,
            part=f"slower: {name}",
            note=_SLOWDOWN,
        )
    depths = deepest_chains()
    for strategy in ("each step", "segments"):
        trial.find(
            "checkpoint-slowdown",
            depths[strategy].measured / depths["store all"].measured,
            predicted=depths[strategy].predicted / depths["store all"].predicted,
            index=1,
            part=f"as deep: {strategy}",
            note=_SLOWDOWN,
        )
    return trial.outcome()


def _slowdown(
    trial: Trial, name: str, build: Callable[[int], Any], shape: tuple[int, int], kept_bytes: int
) -> float:
    """What checkpointing adds to a training step, as a share of it: of its time, or its FLOPs."""
    tokens = torch.zeros(shape, dtype=torch.long, device="cuda")
    stored_cost, checkpointed_cost = _both_flops(build, tokens)
    gc.collect()  # the counter leaves tensors behind
    with torch.device("cuda"):
        model = build(LAYERS).train()
    model.config.use_cache = False
    times = []
    for way in ("stored", "checkpointed"):
        if way == "checkpointed":
            enable_checkpointing(model)
        prediction = [expected("growth", kept_bytes)] if way == "checkpointed" else []
        with trial.stage(f"{name}, {way}: forward", *prediction):
            output = model(tokens).last_hidden_state
        with trial.stage(f"{name}, {way}: backward", expected("peak")):
            output.sum().backward()
        del output
        times.append(_seconds(functools.partial(_train_on, model, tokens)))
        model.zero_grad()
    if times[0] is not None and times[1] is not None:
        stored_cost, checkpointed_cost = times[0], times[1]
    return checkpointed_cost / stored_cost - 1


def _both_flops(build: Callable[[int], Any], tokens: Tensor) -> tuple[float, float]:
    """FLOPs of a training step of a few layers, stored and checkpointed."""
    with torch.device("cuda"):
        model = build(LAYERS_COUNTED).train()
    model.config.use_cache = False
    train = functools.partial(_train_on, model, tokens)
    stored = _flops(model, train)  # cuBLAS's workspaces come in this step
    enable_checkpointing(model)
    return stored, _flops(model, train)


def _train_on(model: Any, tokens: Tensor) -> None:
    model(tokens).last_hidden_state.sum().backward()


_SLOWDOWN = (
    "published as a rule of thumb, in time, for feed-forward models on a GTX 1080 with TensorFlow. "
    "Here the share is of FLOPs (of time on a real GPU), and the depth that of chains of MLP steps"
)


@dataclass(frozen=True)
class Depth:
    """The deepest chain that can be trained on the GPU."""

    predicted: int
    measured: int
    """The deepest that ran without running out of memory; one step more did not."""


def deepest_chains(states: int = 64, width: int = 1024) -> dict[str, Depth]:
    """Train deeper and deeper chains of MLP steps until the GPU is full, by strategy.

    A large real GPU is filled up to `_ROOM_BYTES` first: it would compute for minutes.

    Args:
        states: a state takes this part of the GPU's free memory.
        width: columns of a state.
    """
    gc.collect()
    torch.cuda.empty_cache()
    x = torch.zeros(8, width, device="cuda")
    prepared(mlp_chain(1, width), x)
    free_bytes, _ = torch.cuda.mem_get_info()
    gpu, ballast = attached(), None
    if gpu is not None and not gpu.virtual and free_bytes > _ROOM_BYTES:
        ballast = torch.empty(free_bytes - _ROOM_BYTES, dtype=torch.uint8, device="cuda")
        free_bytes, _ = torch.cuda.mem_get_info()
    batch = free_bytes // states // (4 * width) // 512 * 512
    x = torch.zeros(batch, width, device="cuda")
    free_bytes, _ = torch.cuda.mem_get_info()
    sizes = formulas.mlp_sizes(batch, width)
    found = {}
    for strategy, forward in (
        ("store all", _plain),
        ("each step", _all_segments),
        ("segments", functools.partial(_best_segments, sizes)),
    ):
        predicted = formulas.deepest(free_bytes, strategy, sizes)
        depth = predicted
        while not _fits(forward, x, depth):
            depth -= 1
        while depth >= predicted and _fits(forward, x, depth + 1):
            depth += 1
        found[strategy] = Depth(predicted, depth)
    del ballast
    return found


_ROOM_BYTES = 16 * GIB
"""What the deepest chains are searched in, on a real GPU that has more."""


def _plain(chain: nn.Sequential, x: Tensor) -> Tensor:
    output: Tensor = chain(x)
    return output


def _all_segments(chain: nn.Sequential, x: Tensor) -> Tensor:
    return _in_segments(chain, len(chain), x)


def _best_segments(sizes: ChainSizes, chain: nn.Sequential, x: Tensor) -> Tensor:
    return _in_segments(chain, formulas.best_count(len(chain), sizes), x)


def _in_segments(chain: nn.Sequential, count: int, x: Tensor) -> Tensor:
    output: Tensor = checkpoint_sequential(chain, count, x, use_reentrant=False)
    return output


def _fits(forward: Run, x: Tensor, steps: int) -> bool:
    """Whether a training step of a chain that deep runs; all it takes is given back."""
    try:
        _train(forward, mlp_chain(steps, x.shape[1]).to("cuda"), x)
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True
