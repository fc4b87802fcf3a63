"""Exercise 09: what a layer of BERT keeps, which run it was, and a training step that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import check_order, pairs
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import items, numbers, parameters_of, require_close, to_host

T4 = GPU("T4")


def _measure_layer(
    batch: int,
    length: int,
    width: int,
    heads: int,
    feed_forward: int,
    *,
    train: bool,
    read_length: int | None = None,
    **how: Any,
) -> int:
    """Growth over the forward pass of one layer, whose input is there and whose output is held.

    Args:
        read_length: of another text, whose keys and values are looked at; the input's own if None.
        how: as `EncoderLayer` has it.
    """
    from vramlab_course.lessons.l09_bert_in_training.encoder import EncoderLayer

    layer = EncoderLayer(width, heads, feed_forward, **how).to("cuda")
    layer.train(train)
    x = torch.zeros(batch, length, width, device="cuda")
    read = x if read_length is None else torch.zeros(batch, read_length, width, device="cuda")
    layer(x[:1, :8])  # cuBLAS has its workspace from here on
    torch.cuda.empty_cache()
    return growth_bytes(lambda: layer(x, read))


# Sizes are so chosen that no block keeps a rest (lesson 02 is about those): every tensor has at
# most 1 MiB, or a multiple of 2 MiB, the masks of one byte for each element too.


def _large(random: Random) -> Config:
    """At least 4096 x 512 B for a mask of (batch, length, width)."""
    return {
        "batch": 8 * random.randrange(1, 4),
        "length": random.choice((512, 1024)),
        "width": random.choice((512, 1024)),
        "heads": random.choice((8, 16)),
        "feed_forward": 1024 * random.randrange(1, 5),
    }


def _small(random: Random) -> Config:
    """At most 1 MiB for each tensor, and not always a multiple of 512 B."""
    heads = random.randrange(1, 5)
    return {
        "batch": random.randrange(1, 4),
        "length": random.randrange(10, 120),
        "width": heads * random.randrange(8, 40),
        "heads": heads,
        "feed_forward": random.randrange(100, 700),
    }


_BASE = {"batch": 32, "length": 512, "width": 768, "heads": 12, "feed_forward": 3072}
_SQUARE = {"batch": 8, "length": 1024, "width": 512, "heads": 16, "feed_forward": 2048}
_TINY = {"batch": 2, "length": 10, "width": 24, "heads": 3, "feed_forward": 100}


# layer_bytes: what a layer keeps that reads another text


def _kept(
    batch: int,
    length: int,
    width: int,
    heads: int,
    feed_forward: int,
    read_length: int | None = None,
    activation: str = "gelu",
    *,
    hidden: int = 6,
    read: int = 2,
    inner: Mapping[str, int] = MappingProxyType({"relu": 1, "gelu": 2, "gated": 4}),
    scores: int = 1,
    statistics: int = 4,
    square_of: str = "",
    block: Callable[[int], int] = block_bytes,
) -> int:
    """So many tensors of each kind: (B, S, W), (B, R, W), (B, S, F), (B, H, S, R), (B, S)."""
    rows = batch * length
    read_length = length if read_length is None else read_length
    pairs = {"": length * read_length, "own": length * length, "read": read_length * read_length}
    return (
        hidden * block(4 * rows * width)
        + read * block(4 * batch * read_length * width)
        + inner[activation] * block(4 * rows * feed_forward)
        + scores * block(4 * batch * heads * pairs[square_of])
        + statistics * block(4 * rows)
    )


def _reading(sizes: Config, read_length: int, activation: str) -> Config:
    return {**sizes, "read_length": read_length, "activation": activation}


LAYER = Predict(
    name="layer_bytes",
    points=4,
    minutes=30,
    visible=(
        _reading(_BASE, 512, "gelu"),
        _reading(_SQUARE, 512, "relu"),
        _reading(_BASE, 1024, "gated"),
        _reading(_TINY, 25, "gated"),
    ),
    hidden=lambda random: [
        *(
            _reading(_large(random), random.choice((256, 2048)), activation)
            for activation in ("gelu", "relu", "gated")
        ),
        *(
            _reading(_small(random), random.randrange(10, 120), activation)
            for activation in ("relu", "gated")
        ),
    ],
    measure=lambda **sizes: _measure_layer(**sizes, train=False),
    gpu=T4,
    mistakes=of(
        _kept,
        (
            "You let the layer save the scores as well as the softmax. The backward pass of a "
            "softmax reads only its output.",
            {"scores": 2},
        ),
        ("You counted one softmax per sequence. Each attention head has its own.", {"heads": 1}),
        (
            "You sized the softmax as the square of x's own length. Each row belongs to a token "
            "of x, each column to a token of the text that is read.",
            {"square_of": "own"},
        ),
        (
            "You sized the softmax as the square of the length that is read. Each row belongs to "
            "a token of x, each column to a token of the text that is read.",
            {"square_of": "read"},
        ),
        (
            "You used one length for both sequences, as in BERT's layer. Keys and values have the "
            "length of the text that is read.",
            {"read_length": None},
        ),
        (
            "You gave query, or context, the length of the text that is read. Both have one row "
            "per token of x.",
            {"hidden": 5, "read": 3},
        ),
        (
            "You counted the layer's input. It was allocated before, by the layer below.",
            {"hidden": 7},
        ),
        (
            "You counted the text that is read. It was allocated before the forward pass.",
            {"read": 3},
        ),
        (
            "You let each layer norm save one tensor. Its backward pass reads its input, and the "
            "next operation reads its output: that is two tensors.",
            {"hidden": 4},
        ),
        (
            "You counted one tensor of the feed-forward size for every activation function. "
            "GELU's backward pass reads its input, and the second Linear layer saves its own "
            "input as well.",
            {"inner": {"relu": 1, "gelu": 1, "gated": 1}},
        ),
        (
            "You let ReLU save its input. Its derivative follows from its output, which the "
            "second Linear layer saves anyway.",
            {"inner": {"relu": 2, "gelu": 2, "gated": 4}},
        ),
        (
            "You gave the gated layer one tensor more than GELU. A product saves both of its "
            "factors, and the second Linear layer saves the product.",
            {"inner": {"relu": 1, "gelu": 2, "gated": 3}},
        ),
        (
            "You left out the gate. With it, the feed-forward part saves more than GELU's two "
            "tensors.",
            {"inner": {"relu": 1, "gelu": 2, "gated": 2}},
        ),
        (
            "You left out the layer norms' statistics: two numbers per token each.",
            {"statistics": 0},
        ),
        (
            "You left out the rounding: block sizes are multiples of 512 bytes.",
            {"block": int},
        ),
    ),
)


# train_extra_bytes: what dropout adds


def _measure_extra(batch: int, length: int, width: int, heads: int) -> int:
    trained, evaluated = (
        _measure_layer(batch, length, width, heads, feed_forward=width, train=train)
        for train in (True, False)
    )
    return trained - evaluated


def _added(
    batch: int,
    length: int,
    width: int,
    heads: int,
    *,
    dropped: int = 1,
    dropped_hidden: int = 0,
    masks: int = 2,
    score_masks: int = 1,
    mask_bits: int = 8,
    block: Callable[[int], int] = block_bytes,
) -> int:
    hidden, scores = batch * length * width, batch * heads * length * length
    return (
        dropped * block(4 * scores)
        + dropped_hidden * block(4 * hidden)
        + score_masks * block(mask_bits * scores // 8)
        + masks * block(mask_bits * hidden // 8)
    )


def _without_feed_forward(sizes: Config) -> Config:
    return {name: size for name, size in sizes.items() if name != "feed_forward"}


EXTRA = Predict(
    name="train_extra_bytes",
    points=3,
    minutes=10,
    visible=tuple(_without_feed_forward(sizes) for sizes in (_BASE, _SQUARE, _TINY)),
    hidden=lambda random: [
        *(_without_feed_forward(_large(random)) for _ in range(3)),
        *(_without_feed_forward(_small(random)) for _ in "ab"),
    ],
    measure=_measure_extra,
    gpu=T4,
    mistakes=of(
        _added,
        (
            "You counted only the masks. The next matmul also saves the softmax after dropout: "
            "another tensor, as large as the softmax.",
            {"dropped": 0},
        ),
        ("You left out the mask of the dropout on the softmax.", {"score_masks": 0}),
        (
            "You looked only at the softmax. The layer applies dropout in two more places.",
            {"masks": 0},
        ),
        (
            "You counted one mask of a hidden state. There is a dropout before each of the two "
            "additions.",
            {"masks": 1},
        ),
        (
            "You let the layer save the outputs of the dropouts before the additions. An addition "
            "saves neither of its inputs: only the masks stay.",
            {"dropped_hidden": 2},
        ),
        (
            "You counted a mask as float32. It has one byte per element: dropped or not.",
            {"mask_bits": 32},
        ),
        (
            "You counted a mask as one bit per element. PyTorch's bool takes a byte.",
            {"mask_bits": 1},
        ),
        (
            "You left out the rounding: block sizes are multiples of 512 bytes.",
            {"block": int},
        ),
    ),
)


# which_run: told from what one layer keeps

RUNS: Mapping[str, Mapping[str, Any]] = {
    "eval, eager": {"train": False},
    "train, eager": {"train": True},
    "train, eager, no dropout on the softmax": {"train": True, "attention_dropout": 0.0},
    "eval, sdpa": {"train": False, "attention": "sdpa"},
    "train, sdpa": {"train": True, "attention": "sdpa"},
}


def _observe_run(run: str, **sizes: Any) -> Observation:
    return Observation({"sizes": sizes, "kept": _measure_layer(**sizes, **RUNS[run])}, run)


def _nearest_run(sizes: Mapping[str, Any], kept: int) -> str:
    """Return the run whose additions to what all of them keep come closest."""
    additions = _additions(sizes)
    base = _kept(**sizes, scores=0)
    return min(additions, key=lambda run: abs(kept - base - additions[run]))


def _additions(sizes: Mapping[str, int]) -> dict[str, int]:
    rows = sizes["batch"] * sizes["length"]
    masks_bytes = 2 * rows * sizes["width"]
    scores = rows * sizes["heads"] * sizes["length"]
    return {
        "eval, eager": 4 * scores,
        "train, eager": 9 * scores + masks_bytes,
        "train, eager, no dropout on the softmax": 4 * scores + masks_bytes,
        "eval, sdpa": 0,
        "train, sdpa": masks_bytes,
    }


WHICH = Diagnose(
    name="which_run",
    points=4,
    minutes=20,
    visible=(
        {"run": "train, eager", **_BASE},
        {"run": "eval, sdpa", **_BASE},
        {"run": "train, sdpa", **_BASE},
        {"run": "train, eager, no dropout on the softmax", **_SQUARE},
    ),
    hidden=lambda random: [{"run": run, **_large(random)} for run in RUNS],
    observe=_observe_run,
    gpu=T4,
    mistakes=(
        Mistake(
            "You answered eval mode for a run without dropout on the softmax. The masks of the "
            "other two dropouts are still allocated.",
            instead(_nearest_run, {"train, eager, no dropout on the softmax": "eval, eager"}),
        ),
        Mistake(
            "Where no softmax is saved, you did not tell train mode from eval mode. Look for the "
            "masks of the dropouts before the additions: one byte per element.",
            instead(_nearest_run, {"train, sdpa": "eval, sdpa"}),
        ),
        Mistake(
            "You assumed dropout on the softmax in every run in train mode. That dropout costs "
            "five bytes per pair of tokens: are they there?",
            instead(_nearest_run, {"train, eager, no dropout on the softmax": "train, eager"}),
        ),
        Mistake(
            "You looked only for the softmax. Are there masks as well, as in train mode?",
            instead(
                _nearest_run,
                {
                    "train, eager": "eval, eager",
                    "train, eager, no dropout on the softmax": "eval, eager",
                    "train, sdpa": "eval, sdpa",
                },
            ),
        ),
        Mistake(
            "You answered eager for a run with sdpa. With sdpa, no tensor of length x length is "
            "saved.",
            instead(_nearest_run, {"eval, sdpa": "eval, eager", "train, sdpa": "train, eager"}),
        ),
    ),
)


# train: a program that keeps too much

ROOM_BYTES = 8 * MIB
"""Less than a softmax (16 MiB), and than the hidden states of all steps but one (1 MiB each)."""


BATCH, LENGTH, WIDTH, HEADS, FEED_FORWARD = 4, 512, 128, 4, 128

Load = Callable[[int], "tuple[torch.Tensor, torch.Tensor]"]


def _train(model: Any, load: Load, steps: int) -> Any:
    model.use_attention("sdpa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, norms = [], []
    for step in range(steps):
        x, target = load(step)
        outputs = model(x, hidden_states=True)
        loss = (outputs.last - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        norms.append([state.detach().norm() for state in outputs.hidden_states])
    return losses, norms


def _model_and_data(run: Run, layers: int, steps: int) -> tuple[Any, ...]:
    from vramlab_course.lessons.l09_bert_in_training.encoder import Encoder

    torch.manual_seed(layers)
    how = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    model = Encoder(layers, WIDTH, HEADS, FEED_FORWARD, **how).to("cuda")

    return model, run.noting(pairs(BATCH, LENGTH, WIDTH)), steps


def _where_it_ended(run: Run) -> str:
    ended = (
        f"{run.ran_out} in step {len(run.noted)} of {run.case['steps']}, with "
        f"{format_bytes(run.peak_bytes)} allocated. "
    )
    if len(run.noted) == 1:
        return ended + (
            "Not even one step fits. Which tensors of a layer have length x length elements, and "
            "which argument asks for them?"
        )
    return ended + (
        "The first step fits. Which tensors of earlier steps are still allocated, and which "
        "variable or graph references them?"
    )


def _report_and_weights(run: Run, report: Any) -> dict[str, torch.Tensor]:
    if not isinstance(report, tuple | list) or len(report) != 2:
        raise NotFixed("It has to return two results: the losses and the norms.")
    losses, norms = report
    steps, states = run.case["steps"], run.case["layers"] + 1
    weights = [to_host(weight).flatten() for weight in parameters_of(run.inputs[0])]
    return {
        "losses": torch.tensor(numbers(losses, steps, "a loss for each step")),
        "norms": torch.tensor(
            [
                numbers(row, states, "a list of norms for each step, one of every hidden state")
                for row in items(norms, steps, "a list of norms for each step")
            ]
        ),
        "weights": torch.cat(weights),
    }


def _same_training(run: Run, expected: dict[str, torch.Tensor]) -> None:
    check_order(run.noted, run.case["steps"])
    for name, wanted in expected.items():
        message = f"It fits, but the {name} differ from those of the original program."
        require_close(run.results[name], wanted, message)


TRAIN = Fix(
    name="train",
    points=4,
    minutes=30,
    visible=({"layers": 4, "steps": 5},),
    hidden=lambda random: [{"layers": random.randrange(3, 7), "steps": random.randrange(5, 7)}],
    trial=Repair(
        gpu=T4.but(values=True, alloc_conf=NO_RESTS),
        build=_model_and_data,
        reference=_train,
        limit=room(ROOM_BYTES),
        ran_out=_where_it_ended,
        collect=_report_and_weights,
        compare=_same_training,
    ),
)

EXERCISE = Exercise(
    name="09_bert_in_training",
    module=__name__,
    tasks=(LAYER, EXTRA, WHICH, TRAIN),
    core=("train_extra_bytes", "train"),
)
