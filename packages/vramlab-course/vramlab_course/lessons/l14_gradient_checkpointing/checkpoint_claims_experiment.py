"""Lesson 14: the documents' claims of checkpointing: 20 % slower, and 10 times as large."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from vramlab.attachment import attached
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.flops import count_flops
from vramlab.units import GIB
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l14_gradient_checkpointing import checkpointing_formulas as formulas
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_formulas import ChainSizes
from vramlab_course.lessons.l14_gradient_checkpointing.torch_checkpointing import (
    enable_checkpointing,
)
from vramlab_course.programs.chains import Forward, mlp_chain, prepared, train

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


def _flops(model: nn.Module, train: Callable[[], object]) -> int:
    """FLOPs of a training step; its gradients are given back."""
    counter = count_flops()
    with counter:
        train()
    model.zero_grad()
    return counter.get_total_flops()


def _seconds(train: Callable[[], object], repetitions: int = 5) -> float | None:
    """Return the shortest of some repetitions on a real GPU; a virtual one has no time."""
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
    """Train BERT-base and GPT-2, each layer checkpointed, and the deepest chain that fits the GPU.

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
    """Return what checkpointing adds to a step, as a fraction of its time or its FLOPs."""
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


def _fits(forward: Forward, x: Tensor, steps: int) -> bool:
    """Whether a training step of a chain that deep runs; all it takes is given back."""
    try:
        train(forward, mlp_chain(steps, x.shape[1]).to("cuda"), x)
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True
