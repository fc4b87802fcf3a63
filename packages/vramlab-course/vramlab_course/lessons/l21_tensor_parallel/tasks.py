"""Exercise 21: what each rank holds and sends when layers are cut, and a product for two GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, NotFixed, Observation, Predict
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import on_host, require_close

A100 = GPU("A100-40GB")


# parameter_bytes: a feed-forward layer, cut in any way


def _measure_parameters(up: str, down: str, width: int, inner: int, ranks: int) -> int:
    from vramlab.programs.tensor_parallel import divided, order_plan
    from vramlab_course.lessons.l21_tensor_parallel.experiment import ranks_alone

    with ranks_alone(ranks) as mesh:
        with torch.device("meta"):
            layer = torch.nn.ModuleDict(
                {"up": torch.nn.Linear(width, inner), "down": torch.nn.Linear(inner, width)}
            ).half()
        plan = order_plan((up, down))  # type: ignore[arg-type]
        return growth_bytes(lambda: divided(layer, mesh, plan))


def _parameters(
    up: str,
    down: str,
    width: int,
    inner: int,
    ranks: int,
    *,
    biases: bool = True,
    cut_biases: Sequence[str] = ("column",),
    item_bytes: int = 2,
) -> int:
    """Return the answer or a mistaken one: behind which cuts a rank has a part of the bias."""
    numbers = 2 * width * inner // ranks
    for cut, outputs in ((up, inner), (down, width)):
        numbers += biases * outputs // (ranks if cut in cut_biases else 1)
    return item_bytes * numbers


PARAMETERS = Predict(
    name="parameter_bytes",
    points=3,
    minutes=10,
    rule=lambda up, down, **_: up if up == down else None,  # a bias behind each cut is a rule
    visible=(
        {"up": "column", "down": "row", "width": 1024, "inner": 4096, "ranks": 4},
        {"up": "row", "down": "column", "width": 1024, "inner": 4096, "ranks": 4},
        {"up": "column", "down": "column", "width": 1024, "inner": 2048, "ranks": 2},
        {"up": "row", "down": "row", "width": 2048, "inner": 4096, "ranks": 8},
    ),
    hidden=lambda random: [
        {
            "up": up,
            "down": down,
            "width": 2048 * random.randrange(1, 4),
            "inner": 2048 * random.randrange(1, 6),
            "ranks": random.choice((2, 4, 8)),
        }
        for up in ("column", "row")
        for down in ("column", "row")
    ],
    measure=_measure_parameters,
    gpu=A100,
    mistakes=of(
        _parameters,
        (
            "You cut every bias. After a row-parallel layer each rank has the sum over all ranks, "
            "so it needs the whole bias.",
            {"cut_biases": ("column", "row")},
        ),
        (
            "You cut no bias. After a column-parallel layer a rank has some of the outputs, so it "
            "needs only their biases.",
            {"cut_biases": ()},
        ),
        ("You left out the biases.", {"biases": False}),
        ("You used 4 bytes per element. In float16 it is 2.", {"item_bytes": 4}),
    ),
)


# activation_bytes: what forward keeps of a transformer layer


def _measure_activations(
    division: str, batch: int, sequence: int, width: int, heads: int, ranks: int
) -> int:
    from vramlab_course.lessons.l21_tensor_parallel.experiment import read_layer

    reading = read_layer(ranks, division, batch, sequence, width, heads)  # type: ignore[arg-type]
    return reading.kept_bytes


def _activations(
    division: str,
    batch: int,
    sequence: int,
    width: int,
    heads: int,
    ranks: int,
    *,
    gathered: bool = True,
    outside_cut: bool = False,
    statistics: int = 16,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        division: as in the task; and so on.
        gathered: with the sequence cut, both halves keep their gathered input.
        outside_cut: tensor parallelism cuts everything.
        statistics: bytes for each token.
    """
    sbh, scores = sequence * batch * width, heads * sequence**2 * batch
    inside = (24 * sbh + 5 * scores) // ranks
    tokens = sequence * batch
    if division == "tensor":
        return inside + 10 * sbh // (ranks if outside_cut else 1) + statistics * tokens
    inputs = 4 * sbh if gathered else 4 * sbh // ranks
    return inside + 6 * sbh // ranks + inputs + statistics * tokens // ranks


_LAYER = {"batch": 2, "sequence": 256, "width": 512, "heads": 8, "ranks": 4}

ACTIVATIONS = Predict(
    name="activation_bytes",
    points=4,
    minutes=25,
    visible=(
        {**_LAYER, "division": "tensor"},
        {**_LAYER, "division": "sequence"},
        {**_LAYER, "division": "tensor", "ranks": 8},
        {**_LAYER, "division": "sequence", "sequence": 512, "heads": 4},
    ),
    hidden=lambda random: [
        {
            "division": division,
            "batch": 2 * random.randrange(1, 3),
            "sequence": 512,
            "width": 512 * random.randrange(1, 3),
            "heads": random.choice((8, 16)),
            "ranks": random.choice((2, 4, 8)),
        }
        for division in ("tensor", "sequence")
        for _ in range(2)
    ],
    measure=_measure_activations,
    gpu=A100,
    mistakes=of(
        _activations,
        (
            "You used the paper's formula for sequence parallelism. PyTorch saves the inputs of "
            "both halves after the all-gather.",
            {"gathered": False},
        ),
        (
            "You used the paper's formulas unchanged. Both norms also save float32 statistics per "
            "token, and PyTorch saves the inputs after the all-gather.",
            {"gathered": False, "statistics": 0},
        ),
        (
            "You left out what norms save per token: a mean and a scale in float32.",
            {"statistics": 0},
        ),
        (
            "You cut everything in both ways. Without sequence parallelism, each rank saves the "
            "whole activations outside the matrices.",
            {"outside_cut": True},
        ),
    ),
)


# sent_bytes: around a ring, in a step


def _measure_sent(
    division: str, shared_input: bool, batch: int, sequence: int, width: int, ranks: int
) -> int:
    from vramlab_course.lessons.l21_tensor_parallel.experiment import read_layer

    reading = read_layer(
        ranks,
        division,  # type: ignore[arg-type]
        batch,
        sequence,
        width,
        heads=8,
        shared_input=shared_input,
    )
    return reading.forward.sent_bytes + reading.backward.sent_bytes


def _sent(
    division: str,
    shared_input: bool,
    batch: int,
    sequence: int,
    width: int,
    ranks: int,
    *,
    own_inputs: int = 2,
    backward: bool = True,
    all_reduce: int = 2,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        division: as in the task; and so on.
        own_inputs: all-reduces more in backward where inputs are not shared.
        backward: whether there is one.
        all_reduce: how often a tensor goes around in an all-reduce.
    """
    around = (ranks - 1) * 2 * batch * sequence * width // ranks
    if division == "sequence":
        return (8 if backward else 4) * around
    calls = (4 if backward else 2) + (0 if shared_input or not backward else own_inputs)
    return all_reduce * calls * around


_SENT = {"batch": 2, "sequence": 256, "width": 512, "ranks": 4}

SENT = Predict(
    name="sent_bytes",
    points=3,
    minutes=20,
    visible=(
        {**_SENT, "division": "tensor", "shared_input": True},
        {**_SENT, "division": "tensor", "shared_input": False},
        {**_SENT, "division": "sequence", "shared_input": True},
        {**_SENT, "division": "tensor", "shared_input": True, "ranks": 2},
    ),
    hidden=lambda random: [
        {
            "division": division,
            "shared_input": shared_input,
            "batch": random.randrange(2, 5),
            "sequence": 64 * random.randrange(1, 5),
            "width": 256 * random.randrange(1, 4),
            "ranks": random.choice((2, 4, 8)),
        }
        for division, shared_input in (("tensor", True), ("tensor", False), ("sequence", True))
    ],
    measure=_measure_sent,
    gpu=A100,
    mistakes=of(
        _sent,
        (
            "You counted one shared input in every case. If query, key and value do not share it, "
            "each all-reduces its gradient.",
            {"own_inputs": 0},
        ),
        (
            "You counted only the forward pass. The backward pass has collectives, too.",
            {"backward": False},
        ),
        (
            "You counted an all-reduce as sending its tensor once. In a ring it is a "
            "reduce-scatter and an all-gather.",
            {"all_reduce": 1},
        ),
    ),
)


# which_cuts: told from collectives

Calls = Sequence[Sequence[Any]]
"""[kind, bytes] of each collective."""


def _observe_cuts(first: str, second: str, rows: int, width: int, ranks: int) -> Observation:
    """Read a feed-forward layer in float16 whose input and output are whole on every rank.

    Args:
        first: how the matrix (W, 4 W) is cut.
        second: how the matrix (4 W, W) is cut.
        rows: of the input.
        width: W.
        ranks: how many there are.
    """
    from vramlab_course.lessons.l21_tensor_parallel.experiment import read_order

    reading = read_order((first, second), ranks, rows, width)  # type: ignore[arg-type]
    evidence = {
        "forward": [[call.kind, call.whole_bytes] for call in reading.forward.calls],
        "backward": [[call.kind, call.whole_bytes] for call in reading.backward.calls],
    }
    return Observation(evidence, f"{first}, {second}")


def _cuts(
    forward: Calls, backward: Calls = (), *, gather: str = "column", reduce: str = "row"
) -> str:
    """Return the answer or a mistaken one: which cut puts out what is gathered or reduced."""
    if len(forward) == 1:
        return "column, row"
    return ", ".join(gather if kind == "all-gather" else reduce for kind, _ in forward)


_CUTS = {"rows": 256, "width": 256, "ranks": 4}

WHICH = Diagnose(
    name="which_cuts",
    points=3,
    minutes=20,
    visible=(
        {**_CUTS, "first": "column", "second": "row"},
        {**_CUTS, "first": "row", "second": "column"},
        {**_CUTS, "first": "row", "second": "row"},
    ),
    hidden=lambda random: [
        {
            "first": first,
            "second": second,
            "rows": 64 * random.randrange(1, 8),
            "width": 64 * random.randrange(1, 8),
            "ranks": random.choice((2, 4)),
        }
        for first in ("column", "row")
        for second in ("column", "row")
    ],
    observe=_observe_cuts,
    gpu=A100,
    mistakes=of(
        _cuts,
        (
            "You swapped columns and rows. A column cut produces parts, which are gathered; a row "
            "cut produces partial sums, which are reduced.",
            {"gather": "row", "reduce": "column"},
        ),
        Mistake(
            "You read the backward pass like the forward pass. In the backward pass, a column cut "
            "reduces and a row cut gathers.",
            lambda forward, backward: _cuts([backward[-1], backward[0]]),
        ),
        Mistake(
            "You looked only at the last collective. Each matrix has its own, unless the first "
            "one's output can stay sharded.",
            lambda forward, backward: ", ".join(
                2 * ["column" if forward[-1][0] == "all-gather" else "row"]
            ),
        ),
    ),
)


# feed_forward: two matrices that one GPU has no room for

WIDTH, INNER, ROWS = 1024, 8192, 64
MATRIX_BYTES = 4 * WIDTH * INNER
STREAM_BYTES = 4 * ROWS * WIDTH
ROOM_BYTES = 4 * MIB
LEAST_OF_HALF = 0.9
"""Of the operations with half of both matrices, so many are computed by each GPU at least."""


def _matrices(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows on GPU 0, and both matrices on the host."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    up = torch.randn(WIDTH, INNER, generator=generator) / WIDTH**0.5
    down = torch.randn(INNER, WIDTH, generator=generator) / INNER**0.5
    return x.to("cuda:0"), up, down


def _cut(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    sums = []
    for rank, (columns, rows) in enumerate(zip(up.chunk(2, dim=1), down.chunk(2), strict=True)):
        here = f"cuda:{rank}"
        columns, rows = columns.to(here), rows.to(here)
        sums.append(torch.nn.functional.gelu(x.to(here) @ columns) @ rows)
    return sums[0] + sums[1].to("cuda:0")


def _with_links(run: Run) -> object:
    """Run the program, and note the bytes that go from GPU to GPU."""
    from vramlab.measure.p2p_copies import record_links

    with record_links() as links:
        result: object = run.program(*run.inputs)
    run.noted.append(sum(links.bytes_by_link.values()))
    return result


def _what_they_hold(run: Run) -> str:
    first, second = map(format_bytes, run.peaks_bytes)
    return (
        f"It runs out of memory with {first} allocated on GPU 0 and {second} on GPU 1. Each has "
        f"room for half of both matrices, {format_bytes(MATRIX_BYTES)}, and little more."
    )


def _product(run: Run, result: object) -> torch.Tensor:
    message = "It fits, but the result is not a tensor on GPU 0."
    product = on_host(result, message)
    if result.device != torch.device("cuda:0"):  # type: ignore[attr-defined]
        raise NotFixed(message)
    return product


def _same_product(run: Run, expected: torch.Tensor) -> None:
    message = (
        "It fits, but the result is wrong. What does gelu need: parts of the sum, or complete sums?"
    )
    require_close(run.results, expected, message)
    if min(run.peaks_bytes) < MATRIX_BYTES:
        raise NotFixed(
            f"It fits, but one GPU never held more than {format_bytes(min(run.peaks_bytes))}. "
            "Each GPU has to hold half of both matrices at the same time."
        )
    for gpu in range(2):
        share = run.work.on_gpus.get(gpu, 0) / (run.expected_work.on_gpu / 2)
        if share < LEAST_OF_HALF:
            raise NotFixed(f"It fits, but GPU {gpu} computes {share:.0%} of its half.")
    run.require_no_more_flops("one GPU computes the other's half.")
    moved_bytes = _moved_bytes(run)
    if moved_bytes > 2 * STREAM_BYTES:
        raise NotFixed(
            f"It fits, but sends {format_bytes(moved_bytes)} between GPUs or to the host. "
            f"{format_bytes(2 * STREAM_BYTES)} are enough: the rows in one direction, and a sum "
            "back."
        )


def _moved_bytes(run: Run) -> int:
    """Add up what goes from GPU to GPU, also by way of the host."""
    return int(run.noted[0]) + run.work.to_host_bytes


def _moved_and_peaks(run: Run) -> str:
    peaks = " and ".join(map(format_bytes, run.peaks_bytes))
    return f"{format_bytes(_moved_bytes(run))} from GPU to GPU, peaks {peaks}"


FEED_FORWARD = Fix(
    name="feed_forward",
    points=4,
    minutes=25,
    visible=({"seed": 0},),
    hidden=lambda random: [{"seed": random.randrange(1, 1000)}],
    trial=Repair(
        gpu=GPU("T4", 2, values=True),
        build=lambda run, seed: _matrices(seed),
        call=_with_links,
        reference=_cut,
        limit=room(ROOM_BYTES),
        ran_out=_what_they_hold,
        collect=_product,
        compare=_same_product,
        report=_moved_and_peaks,
    ),
)

EXERCISE = Exercise(
    name="21_tensor_parallel",
    module=__name__,
    tasks=(PARAMETERS, ACTIVATIONS, SENT, WHICH, FEED_FORWARD),
    core=("parameter_bytes", "feed_forward"),
)
