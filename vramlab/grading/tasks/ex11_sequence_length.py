"""Exercise 11: attention's memory over the length of a text, by kind; and a text that must fit."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.formulas.storage import block_bytes
from vramlab.grading.limits import limited, peak_report
from vramlab.grading.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    Mistake,
    NotFixed,
    Observation,
    Predict,
)
from vramlab.grading.workspaces import take_workspaces
from vramlab.units import format_bytes

if TYPE_CHECKING:
    import torch

GPU = "A100-40GB"
"""A grade names its GPU, so that it does not depend on the machine that grades."""
OLD_GPU = "T4"
"""Has no flash attention."""

NO_RESTS = "expandable_segments:True"
"""Blocks keep no rests then: lesson 02 is about those."""

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def _inputs(
    batch: int, heads: int, length: int, head_size: int, dtype: torch.dtype
) -> list[torch.Tensor]:
    import torch

    shape = (batch, heads, length, head_size)
    return [torch.zeros(shape, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3)]


# squared_token_bytes: the coefficient of the square

_STEP = 128


def _measure_coefficient(layers: int, heads: int, batch: int, dtype: str, dropout: bool) -> int:
    """Keep attention step by step of all layers at three lengths; the second difference tells."""
    import torch

    import vramlab
    from vramlab.experiments.sequence_length import attend

    kept = []
    with vramlab.VirtualGPU(GPU, alloc_conf=NO_RESTS):
        take_workspaces()
        for length in (_STEP, 2 * _STEP, 3 * _STEP):
            query, key, value = _inputs(batch, heads, length, 64, getattr(torch, dtype))
            before_bytes = torch.cuda.memory_allocated()
            for _ in range(layers):
                query = attend("step by step", query, key, value, 0.1 if dropout else 0.0)
            kept.append(torch.cuda.memory_allocated() - before_bytes)
            del query, key, value
    return (kept[2] - 2 * kept[1] + kept[0]) // (2 * _STEP * _STEP)


def _coefficient(
    layers: int, heads: int, batch: int, item_bytes: int, dropout: bool, dropped: int | None = None
) -> int:
    """`dropped`: what dropout adds for each score, if not its result and a mask of one byte."""
    added = item_bytes + 1 if dropped is None else dropped
    return layers * heads * batch * (item_bytes + (added if dropout else 0))


def _hidden_coefficients(random: Random) -> list[Config]:
    return [
        {
            "layers": random.randrange(2, 13),
            "heads": random.randrange(2, 17),
            "batch": random.randrange(2, 9),
            "dtype": dtype,
            "dropout": dropout,
        }
        for dtype in ITEM_BYTES
        for dropout in (False, True)
    ]


COEFFICIENT = Predict(
    name="squared_token_bytes",
    points=3,
    minutes=10,
    visible=(
        {"layers": 12, "heads": 12, "batch": 1, "dtype": "float32", "dropout": False},
        {"layers": 12, "heads": 12, "batch": 1, "dtype": "float32", "dropout": True},
        {"layers": 2, "heads": 4, "batch": 8, "dtype": "float16", "dropout": False},
        {"layers": 2, "heads": 4, "batch": 8, "dtype": "bfloat16", "dropout": True},
    ),
    hidden=_hidden_coefficients,
    measure=_measure_coefficient,
    mistakes=(
        Mistake(
            "You forgot dropout's mask: one byte for each score.",
            lambda layers, heads, batch, dtype, dropout: _coefficient(
                layers, heads, batch, ITEM_BYTES[dtype], dropout, ITEM_BYTES[dtype]
            ),
        ),
        Mistake(
            "You counted the mask of dropout only. Its result is kept too, by the product with "
            "the values.",
            lambda layers, heads, batch, dtype, dropout: _coefficient(
                layers, heads, batch, ITEM_BYTES[dtype], dropout, 1
            ),
        ),
        Mistake(
            "You gave dropout's mask as many bytes as a score. It is boolean.",
            lambda layers, heads, batch, dtype, dropout: _coefficient(
                layers, heads, batch, ITEM_BYTES[dtype], dropout, 2 * ITEM_BYTES[dtype]
            ),
        ),
        Mistake(
            "You counted the scores themselves. The softmax keeps its result, not what went in.",
            lambda layers, heads, batch, dtype, dropout: (
                _coefficient(layers, heads, batch, ITEM_BYTES[dtype], dropout)
                + layers * heads * batch * ITEM_BYTES[dtype]
            ),
        ),
        Mistake(
            "You forgot the batch: each text has scores of its own.",
            lambda layers, heads, batch, dtype, dropout: _coefficient(
                layers, heads, 1, ITEM_BYTES[dtype], dropout
            ),
        ),
        Mistake(
            "You took every number for four bytes. It depends on the dtype.",
            lambda layers, heads, batch, dtype, dropout: _coefficient(
                layers, heads, batch, 4, dropout
            ),
        ),
    ),
)


# fused_kept_bytes: what flash and memory-efficient attention keep


def _measure_kept(kind: str, batch: int, heads: int, length: int, head_size: int) -> int:
    import torch

    import vramlab
    from vramlab.experiments.sequence_length import attend
    from vramlab.formulas.attention import KINDS

    (chosen,) = (known for known in KINDS if known == kind)
    with vramlab.VirtualGPU(GPU, alloc_conf=NO_RESTS):
        query, key, value = _inputs(batch, heads, length, head_size, torch.float16)
        before_bytes = torch.cuda.memory_allocated()
        output = attend(chosen, query, key, value)
        kept_bytes = torch.cuda.memory_allocated() - before_bytes
        del query, key, value, output
    return kept_bytes


def _kept(
    kind: str,
    batch: int,
    heads: int,
    length: int,
    head_size: int,
    *,
    log_bytes: int = 4,
    seeds: int = 1024,
    fill: int = 32,
) -> int:
    output_bytes = block_bytes(2 * batch * heads * length * head_size)
    if kind == "flash":
        return output_bytes + block_bytes(log_bytes * batch * heads * length) + seeds
    rows = -(-length // fill) * fill
    return output_bytes + block_bytes(log_bytes * batch * heads * rows)


def _hidden_kept(random: Random) -> list[Config]:
    return [
        {
            "kind": kind,
            "batch": random.randrange(1, 9),
            "heads": random.randrange(1, 17),
            "length": length,
            "head_size": random.choice((32, 64, 128)),
        }
        for kind in ("flash", "memory-efficient")
        for length in (random.randrange(33, 600), 32 * random.randrange(2, 64))
    ]


KEPT = Predict(
    name="fused_kept_bytes",
    points=4,
    minutes=15,
    visible=(
        {"kind": "flash", "batch": 1, "heads": 12, "length": 2048, "head_size": 64},
        {"kind": "memory-efficient", "batch": 1, "heads": 12, "length": 2048, "head_size": 64},
        {"kind": "flash", "batch": 2, "heads": 3, "length": 100, "head_size": 64},
        {"kind": "memory-efficient", "batch": 2, "heads": 3, "length": 100, "head_size": 64},
    ),
    hidden=_hidden_kept,
    measure=_measure_kept,
    mistakes=(
        Mistake(
            "You forgot flash attention's random state: two blocks.",
            lambda **case: _kept(**case, seeds=0),
        ),
        Mistake(
            "You gave memory-efficient attention a random state on the GPU; it has it on the host.",
            lambda kind, **case: _kept(kind, **case) + (1024 if kind != "flash" else 0),
        ),
        Mistake(
            "You gave the logsumexp two bytes. It is float32, whatever the inputs are.",
            lambda **case: _kept(**case, log_bytes=2),
        ),
        Mistake(
            "You forgot that memory-efficient attention fills up each row of the logsumexp to a "
            "multiple of 32.",
            lambda **case: _kept(**case, fill=1),
        ),
        Mistake(
            "You forgot the output: it is part of what is kept.",
            lambda kind, batch, heads, length, head_size: (
                _kept(kind, batch, heads, length, head_size)
                - block_bytes(2 * batch * heads * length * head_size)
            ),
        ),
        Mistake(
            "You counted query, key and value. They were there before.",
            lambda kind, batch, heads, length, head_size: (
                _kept(kind, batch, heads, length, head_size)
                + 3 * block_bytes(2 * batch * heads * length * head_size)
            ),
        ),
    ),
)


# which_attention: told from what was kept

ANSWERS = ("step by step", "math", "memory-efficient", "flash")


def _observe_kind(
    kind: str, batch: int, heads: int, head_size: int, dropout: bool, first: int
) -> Observation:
    """Read what one attention keeps at three lengths: `first`, twice and three times as many."""
    import torch

    import vramlab
    from vramlab.experiments.sequence_length import attend
    from vramlab.formulas.attention import KINDS

    (chosen,) = (known for known in KINDS if known == kind)
    readings = []
    with vramlab.VirtualGPU(GPU, alloc_conf=NO_RESTS):
        take_workspaces()
        for length in (first, 2 * first, 3 * first):
            query, key, value = _inputs(batch, heads, length, head_size, torch.float16)
            before_bytes = torch.cuda.memory_allocated()
            output = attend(chosen, query, key, value, 0.1 if dropout else 0.0)
            readings.append([length, torch.cuda.memory_allocated() - before_bytes])
            del query, key, value, output
    evidence = {"batch": batch, "heads": heads, "head_size": head_size, "readings": readings}
    return Observation(evidence, kind)


def _per_score(batch: int, heads: int, readings: Sequence[Sequence[int]]) -> int:
    (length, first), (_, second), (_, third) = readings
    return round((third - 2 * second + first) / (2 * length * length * batch * heads))


def _by_slope(batch: int, heads: int, readings: Sequence[Sequence[int]], linear: str) -> str:
    kept = _per_score(batch, heads, readings)
    return linear if kept == 0 else "step by step" if kept in (2, 5) else "math"


def _by_size(batch: int, heads: int, head_size: int, readings: Sequence[Sequence[int]]) -> str:
    """Take more than four bytes a score for math: as if dropout were off."""
    kept = _per_score(batch, heads, readings)
    if kept:
        return "math" if kept >= 4 else "step by step"
    extra = readings[0][1] - 2 * batch * heads * readings[0][0] * head_size
    return "flash" if extra > 4 * batch * heads * readings[0][0] else "memory-efficient"


_ONE_LAYER = {"batch": 1, "heads": 12, "head_size": 64, "first": 512}

WHICH = Diagnose(
    name="which_attention",
    points=4,
    minutes=15,
    visible=(
        {**_ONE_LAYER, "kind": "math", "dropout": False},
        {**_ONE_LAYER, "kind": "step by step", "dropout": True},
        {**_ONE_LAYER, "kind": "flash", "dropout": False},
    ),
    hidden=lambda random: [
        {
            "kind": kind,
            "batch": random.randrange(1, 5),
            "heads": random.randrange(2, 17),
            "head_size": random.choice((32, 64, 128)),
            "dropout": dropout,
            "first": 128 * random.randrange(1, 6),
        }
        for kind in ANSWERS
        for dropout in (False, True)
    ],
    observe=_observe_kind,
    mistakes=(
        Mistake(
            "You told a kind without a square from the growth alone. Flash attention keeps its "
            "random state besides.",
            lambda batch, heads, head_size, readings: _by_slope(
                batch, heads, readings, "memory-efficient"
            ),
        ),
        Mistake(
            "You told a kind without a square from the growth alone. Memory-efficient attention "
            "keeps nothing besides its output and the logsumexp.",
            lambda batch, heads, head_size, readings: _by_slope(batch, heads, readings, "flash"),
        ),
        Mistake(
            "You forgot that there may be dropout: step by step it keeps more for each score than "
            "the softmax.",
            _by_size,
        ),
    ),
)


# attention: a text that does not fit

HEADS, HEAD_SIZE = 8, 64
SAME = 1e-5


def _by_hand(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    import torch

    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    weights: torch.Tensor = scores.masked_fill(future, float("-inf")).softmax(-1)
    return weights @ value


def _try_attention(answer: Any, length: int, short: int) -> str:
    """Compare values over a short text, then see whether a long one fits.

    Two runs, because a GPU's fused kernels cannot compute values here: with values, PyTorch's math
    path stands in for them, and needs the square.
    """
    import torch

    import vramlab

    with vramlab.VirtualGPU(OLD_GPU, values=True):
        torch.manual_seed(short)
        tensors = [torch.randn(2, 2, short, 16).to("cuda") for _ in range(3)]
        expected = _output_and_gradients(_by_hand, tensors)
        found = _output_and_gradients(answer, tensors)
    if found[0].shape != expected[0].shape:
        raise NotFixed(
            f"It gives {tuple(found[0].shape)} for a query of {tuple(expected[0].shape)}; the "
            "output has the query's shape."
        )
    for what, one, other in zip(
        ("output", "gradient of query", "gradient of key", "gradient of value"),
        expected,
        found,
        strict=True,
    ):
        if not torch.allclose(one, other, rtol=0, atol=SAME):
            off = (one - other).abs().max().item()
            raise NotFixed(
                f"Over {short} tokens its {what} is another one, by up to {off:.2g}. A token must "
                "not see later tokens, and the scores are divided by the root of the head size."
            )
    scores_bytes = 4 * HEADS * length * length
    limit_bytes = 12 * 4 * HEADS * length * HEAD_SIZE + scores_bytes // 2
    stage = "forward pass"

    def where(held_bytes: int) -> str:
        return (
            f"in the {stage} over {length:,} tokens, where it holds {format_bytes(held_bytes)}. "
            f"All scores together are {format_bytes(scores_bytes)}: which of your tensors are as "
            "large?"
        )

    with vramlab.VirtualGPU(OLD_GPU):
        inputs = _inputs(1, HEADS, length, HEAD_SIZE, torch.float32)
        with limited(limit_bytes, where):
            output = answer(*inputs)
            stage = "backward pass"
            output.backward(torch.zeros_like(output))
        if any(tensor.grad is None for tensor in inputs):
            raise NotFixed("It fits, but query, key or value get no gradient.")
        return peak_report(limit_bytes)


def _output_and_gradients(attention: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """On the host: the output, and the gradients of its square's sum."""
    inputs = [tensor.clone().requires_grad_() for tensor in tensors]
    output = attention(*inputs)
    if output.requires_grad:
        output.square().sum().backward()
    gradients = [t.new_zeros(t.shape) if t.grad is None else t.grad for t in inputs]
    return [each.detach().cpu() for each in (output, *gradients)]


ATTENTION = Fix(
    name="attention",
    points=4,
    minutes=20,
    visible=({"length": 4096, "short": 48},),
    hidden=lambda random: [
        {"length": 1024 * random.randrange(3, 6), "short": random.randrange(33, 90)}
    ],
    trial=_try_attention,
)

EXERCISE = Exercise(
    name="11_sequence_length",
    module=__name__,
    tasks=(COEFFICIENT, KEPT, WHICH, ATTENTION),
)
