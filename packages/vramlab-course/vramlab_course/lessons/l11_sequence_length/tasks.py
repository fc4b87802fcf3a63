"""Exercise 11: attention's memory over the length of a text, by kind; and a window that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.lessons.l11_sequence_length.attention_formulas import KINDS
from vramlab_course.tasks.batches import numbered_batch
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import is_plain, on_host, require_close, to_host
from vramlab_course.tasks.workspaces import take_workspaces

A100 = GPU("A100-40GB", alloc_conf=NO_RESTS)
T4 = GPU("T4")
"""Has no flash attention."""

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def _inputs(
    batch: int, heads: int, length: int, head_size: int, dtype: torch.dtype
) -> list[torch.Tensor]:
    shape = (batch, heads, length, head_size)
    return [torch.zeros(shape, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3)]


def _kept_bytes(
    kind: str,
    batch: int,
    heads: int,
    length: int,
    head_size: int,
    dtype: torch.dtype,
    dropout: bool = False,
) -> int:
    """Return what attention keeps, its inputs not counted."""
    from vramlab_course.lessons.l11_sequence_length.sequence_length_experiment import attend

    (chosen,) = (known for known in KINDS if known == kind)
    query, key, value = _inputs(batch, heads, length, head_size, dtype)
    return growth_bytes(lambda: attend(chosen, query, key, value, 0.1 if dropout else 0.0))


# squared_token_bytes: the coefficient of the square

_STEP = 128


def _measure_coefficient(
    layers: int, heads: int, batch: int, dtype: str, capped: bool, masked: bool, dropout: bool
) -> int:
    """Keep all layers' attention at three lengths; the second difference tells."""
    take_workspaces()

    def kept_bytes(length: int) -> int:
        query, key, value = _inputs(batch, heads, length, 64, getattr(torch, dtype))
        return growth_bytes(lambda: _layers(query, key, value, layers, capped, masked, dropout))

    first, second, third = (kept_bytes(times * _STEP) for times in (1, 2, 3))
    return (third - 2 * second + first) // (2 * _STEP * _STEP)


def _layers(
    x: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layers: int,
    capped: bool,
    masked: bool,
    dropout: bool,
) -> torch.Tensor:
    """Attend in layers, as the notebook shows it: (batch, heads, length, head size)."""
    length = x.size(-2)
    future = torch.ones(length, length, dtype=torch.bool, device="cuda").triu(1)
    for _ in range(layers):
        scores = x @ key.transpose(-2, -1) * 0.125
        if capped:
            scores = 50 * torch.tanh(scores / 50)
        if masked:
            scores = scores.masked_fill(future, float("-inf"))
        weights = torch.softmax(scores, -1)
        if dropout:
            weights = torch.nn.functional.dropout(weights, 0.1)
        x = weights @ value
    return x


def _coefficient(
    layers: int,
    heads: int,
    batch: int,
    dtype: str,
    capped: bool,
    masked: bool,
    dropout: bool,
    *,
    scores: int = 1,
    caps: int = 1,
    dropped: int = 1,
    mask_bytes: int | None = 1,
    future_for: str = "all",
) -> int:
    """Return the answer, or a mistaken one.

    So many tensors with a number for each score come from the softmax, from the cap and from
    dropout; dropout's mask has its bytes for each score, and `future` is there once, for each
    layer, or for each score.
    """
    item_bytes = ITEM_BYTES[dtype]
    mask_bytes = item_bytes if mask_bytes is None else mask_bytes
    each_bytes = (scores + capped * caps) * item_bytes
    each_bytes += dropout * (dropped * item_bytes + mask_bytes)
    all_scores = layers * heads * batch
    futures = {"none": 0, "all": 1, "layers": layers, "scores": all_scores}[future_for]
    return all_scores * each_bytes + masked * futures


def _hidden_coefficients(random: Random) -> list[Config]:
    return [
        {
            "layers": random.randrange(2, 9),
            "heads": random.randrange(2, 13),
            "batch": random.randrange(2, 7),
            "dtype": dtype,
            "capped": capped,
            "masked": masked,
            "dropout": dropout,
        }
        for dtype, capped, masked, dropout in (
            ("float32", True, False, False),
            ("float32", False, True, True),
            ("float16", False, True, False),
            ("float16", True, False, True),
            ("bfloat16", True, True, True),
            ("bfloat16", False, False, False),
        )
    ]


_BERT = {"layers": 12, "heads": 12, "batch": 1, "dtype": "float32"}
_HALF = {"layers": 2, "heads": 4, "batch": 8, "dtype": "bfloat16"}

COEFFICIENT = Predict(
    name="squared_token_bytes",
    points=3,
    minutes=20,
    visible=(
        {**_BERT, "capped": False, "masked": False, "dropout": True},
        {**_BERT, "capped": True, "masked": False, "dropout": False},
        {**_HALF, "capped": False, "masked": True, "dropout": False},
        {**_HALF, "capped": True, "masked": True, "dropout": True},
    ),
    hidden=_hidden_coefficients,
    measure=_measure_coefficient,
    gpu=A100,
    mistakes=of(
        _coefficient,
        ("You left out dropout's mask: one byte per score.", {"mask_bytes": 0}),
        (
            "You counted only dropout's mask. Its output is saved too, by the product with the "
            "values.",
            {"dropped": 0},
        ),
        (
            "You gave dropout's mask as many bytes as a score. The mask is boolean: one byte per "
            "element.",
            {"mask_bytes": None},
        ),
        (
            "You counted the scores themselves. The softmax saves its output, not its input.",
            {"scores": 2},
        ),
        (
            "You left out the cap. tanh saves its output: one number per score.",
            {"caps": 0},
        ),
        (
            "You counted two tensors for the cap. tanh saves its output; multiplying or dividing "
            "by a number saves nothing.",
            {"caps": 2},
        ),
        (
            "You counted the causal mask `future` for each head and each sequence. It is one "
            "tensor, (length, length), shared by all of them.",
            {"future_for": "scores"},
        ),
        (
            "You counted the causal mask `future` once per layer. All layers use the same tensor.",
            {"future_for": "layers"},
        ),
        (
            "You left out the causal mask `future`: one byte per pair of tokens, saved because "
            "masked_fill's backward pass needs it.",
            {"future_for": "none"},
        ),
        ("You left out the batch. Each sequence has its own scores.", {"batch": 1}),
        ("You used 4 bytes per number. It depends on the dtype.", {"dtype": "float32"}),
    ),
)


# fused_kept_bytes: what flash and memory-efficient attention keep


def _measure_kept(kind: str, batch: int, heads: int, length: int, head_size: int) -> int:
    return _kept_bytes(kind, batch, heads, length, head_size, torch.float16)


def _kept(
    kind: str,
    batch: int,
    heads: int,
    length: int,
    head_size: int,
    *,
    outputs: int = 1,
    log_bytes: int = 4,
    seeds_bytes: int = 1024,
    host_seeds_bytes: int = 0,
    fill: int = 32,
) -> int:
    """Return the answer or a mistaken one: `host_seeds_bytes` counts seeds that are on the host."""
    kept_bytes = outputs * block_bytes(2 * batch * heads * length * head_size)
    if kind == "flash":
        return kept_bytes + block_bytes(log_bytes * batch * heads * length) + seeds_bytes
    rows = -(-length // fill) * fill
    return kept_bytes + block_bytes(log_bytes * batch * heads * rows) + host_seeds_bytes


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
    minutes=20,
    visible=(
        {"kind": "flash", "batch": 1, "heads": 12, "length": 2048, "head_size": 64},
        {"kind": "memory-efficient", "batch": 1, "heads": 12, "length": 2048, "head_size": 64},
        {"kind": "flash", "batch": 2, "heads": 3, "length": 100, "head_size": 64},
        {"kind": "memory-efficient", "batch": 2, "heads": 3, "length": 100, "head_size": 64},
    ),
    hidden=_hidden_kept,
    measure=_measure_kept,
    gpu=A100,
    mistakes=of(
        _kept,
        ("You left out flash attention's random state: two blocks.", {"seeds_bytes": 0}),
        (
            "You gave memory-efficient attention a random state on the GPU. It lives in host "
            "memory.",
            {"host_seeds_bytes": 1024},
        ),
        (
            "You gave the logsumexp two bytes per number. It is float32, whatever the dtype of "
            "the inputs.",
            {"log_bytes": 2},
        ),
        (
            "You left out the padding: memory-efficient attention pads each row of the logsumexp "
            "to a multiple of 32.",
            {"fill": 1},
        ),
        ("You left out the output. It is also saved for the backward pass.", {"outputs": 0}),
        ("You counted query, key and value. They were allocated before.", {"outputs": 4}),
    ),
)


# which_attention: told from what was kept

ANSWERS = ("step by step", "math", "memory-efficient", "flash")


def _observe_kind(
    kind: str, batch: int, heads: int, head_size: int, dropout: bool, first: int
) -> Observation:
    """Read what one attention keeps at three lengths: `first`, twice and three times as many."""
    take_workspaces()
    sizes = (head_size, torch.float16, dropout)
    readings = [
        [length, _kept_bytes(kind, batch, heads, length, *sizes)]
        for length in (first, 2 * first, 3 * first)
    ]
    evidence = {"batch": batch, "heads": heads, "head_size": head_size, "readings": readings}
    return Observation(evidence, kind)


def _per_score(batch: int, heads: int, readings: Sequence[Sequence[int]]) -> int:
    (length, first), (_, second), (_, third) = readings
    return round((third - 2 * second + first) / (2 * length * length * batch * heads))


def _by_slope(
    batch: int, heads: int, head_size: int, readings: Sequence[Sequence[int]], linear: str
) -> str:
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
    minutes=20,
    visible=(
        {**_ONE_LAYER, "kind": "math", "dropout": False},
        {**_ONE_LAYER, "kind": "step by step", "dropout": True},
        {**_ONE_LAYER, "kind": "flash", "dropout": False},
        {**_ONE_LAYER, "kind": "memory-efficient", "dropout": False},
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
    gpu=A100,
    mistakes=of(
        _by_slope,
        (
            "You compared only the growth in memory. Flash attention also saves its random state.",
            {"linear": "memory-efficient"},
        ),
        (
            "You compared only the growth in memory. Memory-efficient attention saves nothing "
            "besides its output and the logsumexp.",
            {"linear": "flash"},
        ),
        Mistake(
            "You left out dropout. Step by step, attention then saves more per score than the "
            "softmax.",
            _by_size,
        ),
    ),
)


# attention: a text of which each token sees a window

HEADS, HEAD_SIZE = 8, 64
SAME = 1e-4
"""Of the largest number of a tensor: kernels differ in the last bits."""


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int
) -> torch.Tensor:
    """Solve the task."""
    place = torch.arange(query.size(-2), device=query.device)
    distance = place[:, None] - place
    seen = (distance >= 0) & (distance < window)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)


def _random_inputs(run: Run, length: int, window: int) -> list[Any]:
    torch.manual_seed(length)
    shape = (1, HEADS, length, HEAD_SIZE)
    return [*(torch.randn(shape).to("cuda").requires_grad_() for _ in range(3)), window]


def _step(run: Run) -> torch.Tensor:
    output = run.program(*run.inputs)
    run.require_intact()
    shape = run.inputs[0].shape
    if not is_plain(output):
        raise NotFixed(f"It has to return a tensor; it returns a {type(output).__name__}.")
    if output.shape != shape:
        raise NotFixed(
            f"The output has the shape {tuple(output.shape)}; it must have the query's shape, "
            f"{tuple(shape)}."
        )
    if not output.requires_grad:
        raise NotFixed(
            "Query, key and value get no gradient: the output is not connected to them "
            "in the graph."
        )
    run.noted.append("forward pass")
    output.backward(numbered_batch(0, *shape))
    return output


WINDOWS: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "In your mask, does True mean visible or hidden? The function expects one of the two.": (
        lambda distance, window: (distance < 0) | (distance >= window)
    ),
    "Can a token attend to later tokens?": lambda distance, window: distance.abs() < window,
    "Can a token attend to all tokens before it, or only to the window?": lambda distance, window: (
        distance >= 0
    ),
    "How many tokens can a token attend to: does the window include the token itself?": (
        lambda distance, window: (distance >= 0) & (distance <= window)
    ),
    "Can a token attend to itself?": lambda distance, window: (distance > 0) & (distance <= window),
}
"""Wrong windows, by distance, each with a question about it."""


def _is_same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    largest = float(wanted.nan_to_num().abs().max())
    return torch.allclose(found, wanted, atol=SAME * largest, equal_nan=True)


def _require_no_other_window(run: Run, output: torch.Tensor) -> None:
    """Ask about what some tokens see, where that explains the output."""
    query, key, value, window = run.inputs
    place = torch.arange(query.size(-2), device=query.device)
    some = place[:: max(1, len(place) // 64)]
    distance = some[:, None] - place
    for question, seen in WINDOWS.items():
        with run.work.pausing(), torch.no_grad():
            other = torch.nn.functional.scaled_dot_product_attention(
                query[:, :, some], key, value, attn_mask=seen(distance, window)
            )
        if _is_same(output[:, :, some.cpu()], to_host(other)):
            raise NotFixed(f"It fits, but its output is wrong. {question}")


def _output_and_gradients(run: Run, output: torch.Tensor) -> list[torch.Tensor]:
    inputs = run.inputs[:3]
    if any(tensor.grad is None for tensor in inputs):
        raise NotFixed("It fits, but query, key or value get no gradient.")
    found = on_host(output, "It fits, but the output is no longer a tensor on the GPU.")
    if run.expected is not None and not _is_same(found, run.expected[0]):
        _require_no_other_window(run, found)
    return [found, *(to_host(tensor.grad) for tensor in inputs)]


def _same_attention(run: Run, expected: list[torch.Tensor]) -> None:
    names = ("output", "gradient of query", "gradient of key", "gradient of value")
    for what, found, wanted in zip(names, run.results, expected, strict=True):
        message = (
            f"It fits, but its {what} is wrong. A token attends to itself and to the tokens right "
            "before it, as many as the window has, and to none after it; scores are divided by "
            "the square root of the head size."
        )
        require_close(found, wanted, message)


def _scores_bytes(run: Run) -> int:
    return int(4 * HEADS * run.case["length"] ** 2)


def _where_it_ended(run: Run) -> str:
    stage = "backward pass" if run.noted else "forward pass"
    return (
        f"{run.ran_out} in the {stage} over {run.case['length']:,} tokens, with "
        f"{format_bytes(run.peak_bytes)} allocated. All scores together are "
        f"{format_bytes(_scores_bytes(run))}: which of your tensors are as large?"
    )


ATTENTION = Fix(
    name="attention",
    points=4,
    minutes=30,
    visible=({"length": 2048, "window": 256},),
    hidden=lambda random: [
        {"length": 256 * random.randrange(6, 11), "window": 64 * random.randrange(2, 7)}
    ],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_random_inputs,
        call=_step,
        reference=_attention,
        limit=lambda own: 12 * 4 * HEADS * own.case["length"] * HEAD_SIZE + _scores_bytes(own) // 2,
        ran_out=_where_it_ended,
        collect=_output_and_gradients,
        compare=_same_attention,
        # Pieces of queries, each with the keys in its window, compute a tenth of all scores.
        least_share=0.05,
    ),
)

EXERCISE = Exercise(
    name="11_sequence_length",
    module=__name__,
    tasks=(COEFFICIENT, KEPT, WHICH, ATTENTION),
    core=("squared_token_bytes", "attention"),
)
