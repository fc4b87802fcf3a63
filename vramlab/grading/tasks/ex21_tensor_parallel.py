"""Exercise 21: what each rank holds and sends when layers are cut, and a product for two GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.grading.limits import limit_memory
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
from vramlab.units import MIB, format_bytes

if TYPE_CHECKING:
    import torch

GPU = "A100-40GB"
"""A grade names its GPU, so that it does not depend on the machine that grades."""


# parameter_bytes: a feed-forward layer, cut in any way


def _measure_parameters(up: str, down: str, width: int, inner: int, ranks: int) -> int:
    import torch

    import vramlab
    from vramlab.experiments.tensor_parallel import ranks_alone
    from vramlab.techniques.tensor_parallel import divided, order_plan

    with vramlab.VirtualGPU(GPU), ranks_alone(ranks) as mesh:
        with torch.device("meta"):
            layer = torch.nn.ModuleDict(
                {"up": torch.nn.Linear(width, inner), "down": torch.nn.Linear(inner, width)}
            ).half()
        before_bytes = torch.cuda.memory_allocated()
        layer = divided(layer, mesh, order_plan((up, down)))  # type: ignore[arg-type, assignment]
        held_bytes = torch.cuda.memory_allocated() - before_bytes
        del layer
    return held_bytes


def _parameters(
    up: str,
    down: str,
    width: int,
    inner: int,
    ranks: int,
    *,
    biases: Callable[[str, int, int], int] = lambda cut, outputs, ranks: (
        outputs // ranks if cut == "column" else outputs
    ),
    item_bytes: int = 2,
) -> int:
    """The answer, and the mistaken ones: for naming mistakes, not for grading."""
    both = biases(up, inner, ranks) + biases(down, width, ranks)
    return item_bytes * (2 * width * inner // ranks + both)


PARAMETERS = Predict(
    name="parameter_bytes",
    points=3,
    minutes=10,
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
    mistakes=(
        Mistake(
            "You cut every bias. Behind rows each rank has the sum over all ranks, to which all "
            "of the bias belongs.",
            lambda **case: _parameters(**case, biases=lambda cut, outputs, ranks: outputs // ranks),
        ),
        Mistake(
            "You cut no bias. Behind columns a rank has some of the outputs, and their biases.",
            lambda **case: _parameters(**case, biases=lambda cut, outputs, ranks: outputs),
        ),
        Mistake(
            "You forgot the biases.",
            lambda **case: _parameters(**case, biases=lambda cut, outputs, ranks: 0),
        ),
        Mistake(
            "You counted 4 bytes for each number. In float16 it is 2.",
            lambda **case: _parameters(**case, item_bytes=4),
        ),
    ),
)


# activation_bytes: what forward keeps of a transformer layer


def _measure_activations(
    division: str, batch: int, sequence: int, width: int, heads: int, ranks: int
) -> int:
    import vramlab
    from vramlab.experiments.tensor_parallel import read_layer

    with vramlab.VirtualGPU(GPU):
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
    """The answer, and the mistaken ones.

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
    minutes=20,
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
    mistakes=(
        Mistake(
            "You took the paper's count of a cut sequence. PyTorch keeps the inputs of both "
            "halves as they have been gathered.",
            lambda **case: _activations(**case, gathered=False),
        ),
        Mistake(
            "You took the papers' formulas as they are: both norms keep float32 statistics of "
            "each token, too, and PyTorch keeps inputs that it has gathered.",
            lambda **case: _activations(**case, gathered=False, statistics=0),
        ),
        Mistake(
            "You forgot what norms keep of each token: a mean and a scale in float32.",
            lambda **case: _activations(**case, statistics=0),
        ),
        Mistake(
            "You cut everything in both ways. Without the sequence, what lies outside of the "
            "matrices is on every rank.",
            lambda **case: _activations(**case, outside_cut=True),
        ),
    ),
)


# sent_bytes: around a ring, in a step


def _measure_sent(
    division: str, shared_input: bool, batch: int, sequence: int, width: int, ranks: int
) -> int:
    import vramlab
    from vramlab.experiments.tensor_parallel import read_layer

    with vramlab.VirtualGPU(GPU):
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
    """The answer, and the mistaken ones.

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
    minutes=15,
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
    mistakes=(
        Mistake(
            "You shared the input in every case. Query, key and value each reduce its gradient "
            "if they do not.",
            lambda **case: _sent(**case, own_inputs=0),
        ),
        Mistake(
            "You counted forward only. Backward has its collectives, too.",
            lambda **case: _sent(**case, backward=False),
        ),
        Mistake(
            "You let an all-reduce send its tensor once. Around a ring it is a reduce-scatter and "
            "an all-gather.",
            lambda **case: _sent(**case, all_reduce=1),
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
    import vramlab
    from vramlab.experiments.tensor_parallel import read_order

    with vramlab.VirtualGPU(GPU):
        reading = read_order((first, second), ranks, rows, width)  # type: ignore[arg-type]
    evidence = {
        "forward": [[call.kind, call.whole_bytes] for call in reading.forward.calls],
        "backward": [[call.kind, call.whole_bytes] for call in reading.backward.calls],
    }
    return Observation(evidence, f"{first}, {second}")


def _cuts(forward: Calls, *, gather: str = "column", reduce: str = "row") -> str:
    """The answer, and the mistaken ones: which cut puts out what is gathered or reduced."""
    if len(forward) == 1:
        return "column, row"
    return ", ".join(gather if kind == "all-gather" else reduce for kind, _ in forward)


_CUTS = {"rows": 256, "width": 256, "ranks": 4}

WHICH = Diagnose(
    name="which_cuts",
    points=3,
    minutes=15,
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
    mistakes=(
        Mistake(
            "You have it the other way round. Columns put out pieces, to be gathered; rows put "
            "out partial sums, to be reduced.",
            lambda forward, backward: _cuts(forward, gather="row", reduce="column"),
        ),
        Mistake(
            "You read backward like forward. There columns reduce, and rows gather.",
            lambda forward, backward: _cuts([backward[-1], backward[0]]),
        ),
        Mistake(
            "You looked at the last collective only. Each matrix has one of its own, unless the "
            "first one's output can stay cut.",
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


def _matrices(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows on GPU 0, and both matrices on the host."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    up = torch.randn(WIDTH, INNER, generator=generator) / WIDTH**0.5
    down = torch.randn(INNER, WIDTH, generator=generator) / INNER**0.5
    return x.to("cuda:0"), up, down


def _cut(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import gelu

    sums = []
    for rank, (columns, rows) in enumerate(zip(up.chunk(2, dim=1), down.chunk(2), strict=True)):
        here = f"cuda:{rank}"
        columns, rows = columns.to(here), rows.to(here)
        sums.append(gelu(x.to(here) @ columns) @ rows)
    return sums[0] + sums[1].to("cuda:0")


def _try_feed_forward(answer: Any, seed: int) -> str:
    import torch

    import vramlab
    from vramlab.measure.links import record_links

    with vramlab.VirtualGPU("T4", 2, values=True):
        expected = _cut(*_matrices(seed)).cpu()
        limits = [torch.cuda.max_memory_reserved(gpu) + ROOM_BYTES for gpu in (0, 1)]
    with vramlab.VirtualGPU("T4", 2, values=True):
        for gpu, limit_bytes in enumerate(limits):
            limit_memory(limit_bytes, gpu)
        x, up, down = _matrices(seed)
        try:
            with record_links() as links:
                result = answer(x, up, down)
        except torch.cuda.OutOfMemoryError as error:
            held = [format_bytes(torch.cuda.max_memory_allocated(gpu)) for gpu in (0, 1)]
            raise NotFixed(
                f"It runs out of memory: {held[0]} were held on GPU 0, {held[1]} on GPU 1. Each "
                f"has room for half of both matrices, {format_bytes(MATRIX_BYTES)}, and for little "
                "more."
            ) from error
        peaks = [torch.cuda.max_memory_allocated(gpu) for gpu in (0, 1)]
        on_first = isinstance(result, torch.Tensor) and result.device == torch.device("cuda:0")
        values = result.detach().cpu() if on_first else None
    if values is None:
        raise NotFixed("It fits, but the result is not a tensor on GPU 0.")
    if values.shape != expected.shape or not torch.allclose(values, expected, atol=1e-4):
        raise NotFixed(
            "It fits, but the result is another. What does gelu need: pieces, or complete sums?"
        )
    if min(peaks) < MATRIX_BYTES:
        raise NotFixed(
            f"It fits, but one GPU held {format_bytes(min(peaks))} at most. Each shall hold half "
            "of both matrices at once, as if they stayed there."
        )
    moved_bytes = sum(links.bytes_by_link.values())
    if moved_bytes > 2 * STREAM_BYTES:
        raise NotFixed(
            f"It fits, but {format_bytes(moved_bytes)} go from GPU to GPU. "
            f"{format_bytes(2 * STREAM_BYTES)} are enough: the rows there, and a sum back."
        )
    return f"{format_bytes(moved_bytes)} from GPU to GPU, peaks " + " and ".join(
        format_bytes(peak) for peak in peaks
    )


def _hidden_feed_forward(random: Random) -> list[Config]:
    return [{"seed": random.randrange(1, 1000)}]


FEED_FORWARD = Fix(
    name="feed_forward",
    points=4,
    minutes=20,
    visible=({"seed": 0},),
    hidden=_hidden_feed_forward,
    trial=_try_feed_forward,
)

EXERCISE = Exercise(
    name="21_tensor_parallel",
    module=__name__,
    tasks=(PARAMETERS, ACTIVATIONS, SENT, WHICH, FEED_FORWARD),
)
