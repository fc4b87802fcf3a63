"""Exercise 25: a loss in pieces, what ranks send, what a peak is made of, attention in tiles."""

from __future__ import annotations

from random import Random
from typing import Any

from vramlab.units import MIB
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Observation, Predict
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import on_host, require_close
from vramlab_course.tasks.workspaces import take_workspaces

T4 = GPU("T4", alloc_conf=NO_RESTS)


# loss_mib: the peak of a loss in pieces


def _measure_loss(tokens: int, vocabulary: int, pieces: int) -> int:
    from vramlab_course.lessons.l25_long_context.chunked_loss import chunked_loss, whole_loss

    take_workspaces()
    hidden, head = (
        torch.zeros(rows, 64, device="cuda", requires_grad=True) for rows in (tokens, vocabulary)
    )
    targets = torch.zeros(tokens, dtype=torch.long, device="cuda")
    before_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    if pieces == 1:
        whole_loss(hidden, head, targets)
    else:
        chunked_loss(hidden, head, targets, pieces)
    return (torch.cuda.max_memory_allocated() - before_bytes) // MIB


def _loss(
    tokens: int,
    vocabulary: int,
    pieces: int,
    *,
    tensors: int = 2,
    rounded_up: bool = True,
    item_bytes: int = 4,
) -> int:
    """`tensors`: as large as a piece's logits, at a time."""
    rows = -(-tokens // pieces) if rounded_up else tokens // pieces
    return tensors * rows * vocabulary * item_bytes // MIB


LOSS = Predict(
    name="loss_mib",
    points=3,
    minutes=15,
    visible=(
        {"tokens": 2048, "vocabulary": 32768, "pieces": 1},
        {"tokens": 2048, "vocabulary": 32768, "pieces": 4},
        {"tokens": 2048, "vocabulary": 32768, "pieces": 32},
        {"tokens": 1000, "vocabulary": 131072, "pieces": 7},
    ),
    hidden=lambda random: [
        {
            "tokens": pieces * random.randrange(40, 90) + 1,  # one is left over
            "vocabulary": 131072 * random.randrange(1, 3),  # a row has whole MiB
            "pieces": pieces,
        }
        for pieces in (3, 7, 16)
    ],
    measure=_measure_loss,
    gpu=T4,
    mistakes=of(
        _loss,
        (
            "You counted only the logits. Their log-softmax is as large, and both are allocated "
            "at the same time.",
            {"tensors": 1},
        ),
        ("You processed all tokens at the same time in every case.", {"pieces": 1}),
        (
            "You rounded the tokens per chunk down. The remaining tokens belong to the chunks, "
            "too.",
            {"rounded_up": False},
        ),
        ("You used 2 bytes per element. In float32 it is 4.", {"item_bytes": 2}),
        ("You counted a gradient as well. The forward pass has none.", {"tensors": 3}),
    ),
)


# sent_bytes: what a rank sends in forward


def _measure_sent(way: str, ranks: int, tokens: int, heads: int, head_size: int) -> int:
    from vramlab.measure import record_collectives, record_sends
    from vramlab.programs.alone import alone
    from vramlab_course.lessons.l25_long_context.experiment import WAYS

    with alone(ranks):
        query, key, value = (
            torch.zeros(1, heads, tokens // ranks, head_size, device="cuda") for _ in range(3)
        )
        with record_sends() as sends, record_collectives() as collectives:
            WAYS[way](query, key, value)
    return sends.sent_bytes + collectives.sent_bytes


def _sent(
    way: str,
    ranks: int,
    tokens: int,
    heads: int,
    head_size: int,
    *,
    turns_less: int = 1,
    ring_tensors: int = 2,
    ulysses_tensors: int = 4,
    own_share: bool = False,
    whole: bool = False,
) -> int:
    """`own_share`: what stays at home is sent as well; `whole`: a rank has all tokens."""
    part = 4 * heads * head_size * (tokens if whole else tokens // ranks)
    if way == "ring":
        return ring_tensors * part * (ranks - turns_less)
    away = ranks if own_share else ranks - 1
    return ulysses_tensors * part * away // ranks


def _hidden_sent(random: Random) -> list[dict[str, Any]]:
    return [
        {
            "way": way,
            "ranks": ranks,
            "tokens": 64 * ranks * random.randrange(2, 12),
            "heads": ranks * random.randrange(1, 4),
            "head_size": random.choice((32, 64)),
        }
        for way in ("ring", "Ulysses")
        for ranks in (2, random.choice((3, 4, 6)), 8)
    ]


SENT = Predict(
    name="sent_bytes",
    points=4,
    minutes=20,
    visible=(
        {"way": "ring", "ranks": 4, "tokens": 4096, "heads": 8, "head_size": 64},
        {"way": "Ulysses", "ranks": 4, "tokens": 4096, "heads": 8, "head_size": 64},
        {"way": "ring", "ranks": 8, "tokens": 4096, "heads": 8, "head_size": 64},
        {"way": "Ulysses", "ranks": 8, "tokens": 4096, "heads": 8, "head_size": 64},
    ),
    hidden=_hidden_sent,
    measure=_measure_sent,
    gpu=T4,
    mistakes=of(
        _sent,
        (
            "You counted one turn of the ring too many. Before the last turn, every block has "
            "visited every rank.",
            {"turns_less": 0},
        ),
        ("You sent queries around the ring. They stay on their rank.", {"ring_tensors": 3}),
        (
            "You left out Ulysses' all-to-all that sends the attention output back.",
            {"ulysses_tensors": 3},
        ),
        ("For Ulysses, you also sent what each rank keeps for itself.", {"own_share": True}),
        ("You gave each rank the whole sequence. It has a part of it.", {"whole": True}),
    ),
)


# what_peaks: told from three peaks

CAUSES = ("scores", "logits", "layers")


def _peak(cause: str, tokens: int, vocabulary: int, layers: int) -> int:
    """Return the peak of a step beyond the model, whose cause is made to be the largest part."""
    from vramlab.programs.transformer import Transformer
    from vramlab.programs.transformer_memory import Sizes

    sizes = Sizes(
        vocabulary=vocabulary, positions=tokens, width=128, layers=layers, heads=4, bias=False
    )
    attention: Any = "eager" if cause == "scores" else "efficient"
    with torch.device("cuda"):
        model = Transformer(sizes, attention=attention, dropout=0.0)
    text = torch.zeros(1, tokens, dtype=torch.long, device="cuda")
    take_workspaces()
    before_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    model(text, text).backward()
    return torch.cuda.max_memory_allocated() - before_bytes


def _observe_peak(cause: str, tokens: int) -> Observation:
    """Read a small transformer's peak, with twice the text, and with half the vocabulary."""
    vocabulary, layers = {"scores": (2048, 4), "logits": (65_536, 1), "layers": (1024, 12)}[cause]
    readings = {
        "peak": _peak(cause, tokens, vocabulary, layers),
        "twice the tokens": _peak(cause, 2 * tokens, vocabulary, layers),
        "half the vocabulary": _peak(cause, tokens, vocabulary // 2, layers),
    }
    return Observation({"readings": readings}, cause)


def _what_peaks(readings: dict[str, int]) -> str:
    """Return the answer, for naming mistakes."""
    if readings["half the vocabulary"] < 0.7 * readings["peak"]:
        return "logits"
    return "scores" if readings["twice the tokens"] > 2.5 * readings["peak"] else "layers"


PEAKS = Diagnose(
    name="what_peaks",
    points=3,
    minutes=15,
    visible=(
        {"cause": "scores", "tokens": 1024},
        {"cause": "logits", "tokens": 1024},
        {"cause": "layers", "tokens": 1024},
    ),
    hidden=lambda random: [
        {"cause": cause, "tokens": 128 * random.randrange(6, 13)} for cause in CAUSES
    ],
    observe=_observe_peak,
    gpu=T4,
    mistakes=(
        Mistake(
            "You looked only at the sequence length. Logits and layers both grow linearly with it.",
            instead(_what_peaks, {"layers": "logits"}),
        ),
        Mistake(
            "You assigned everything that grows linearly with the tokens to the layers. Which "
            "part depends on the vocabulary size?",
            instead(_what_peaks, {"logits": "layers"}),
        ),
        Mistake(
            "You took more than twice the memory as linear growth. Which tensor grows with the "
            "square of the tokens?",
            instead(_what_peaks, {"scores": "layers"}),
        ),
    ),
)


# attend: with a bias for the distance, never all scores at once

HEADS, HEAD_SIZE, TILE = 2, 32, 256
ROOM_BYTES = 3 * MIB


def _build(run: Run, tokens: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(tokens)
    shape = HEADS, tokens, HEAD_SIZE
    query, key, value = (torch.randn(shape, generator=generator).to("cuda") for _ in range(3))
    return query, key, value, torch.tensor([0.02, 0.3]).to("cuda")


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slopes: torch.Tensor
) -> torch.Tensor:
    places = torch.arange(query.shape[1], device="cuda")
    output = torch.empty_like(query)
    for start in range(0, query.shape[1], TILE):
        rows = slice(start, start + TILE)
        scores = query[:, rows] @ key.transpose(1, 2) * HEAD_SIZE**-0.5
        distance = (places[rows, None] - places).abs()
        scores -= slopes[:, None, None] * distance
        output[:, rows] = scores.softmax(-1) @ value
    return output


def _in_tiles(*inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return _attend(*inputs)


def _collect(run: Run, returned: object) -> torch.Tensor:
    return on_host(returned, "It has to return the attention output: a tensor on the GPU.")


def _compare(run: Run, expected: torch.Tensor) -> None:
    require_close(run.results, expected, "It fits, but the attention output is wrong.")


def _where_it_ended(run: Run) -> str:
    tokens = run.case["tokens"]
    scores_mib = HEADS * tokens * tokens * 4 // MIB
    return (
        f"{run.ran_out}. All scores of {tokens:,} tokens are {scores_mib} MiB. Which of them does "
        "a row of the output need?"
    )


ATTEND: Fix = Fix(
    name="attend",
    points=5,
    minutes=30,
    visible=({"tokens": 2048},),
    hidden=lambda random: [{"tokens": 64 * random.randrange(26, 38) + random.randrange(1, 64)}],
    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_build,
        reference=_in_tiles,
        limit=room(ROOM_BYTES),
        ran_out=_where_it_ended,
        collect=_collect,
        compare=_compare,
    ),
)

EXERCISE = Exercise(
    name="25_long_context",
    module=__name__,
    tasks=(LOSS, SENT, PEAKS, ATTEND),
    core=("loss_mib", "what_peaks"),
)
