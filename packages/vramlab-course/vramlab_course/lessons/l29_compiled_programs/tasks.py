"""Exercise 29: what a compiled block keeps, what a graph's pool tells, and recomputing by hand."""

from __future__ import annotations

from random import Random
from typing import Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import numbered_batch
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.gradients import Gradients, collect_gradients, require_gradients
from vramlab_course.tasks.repair import Repair, Run, room

T4 = GPU("T4")

# kept_bytes: a gated block, eager and compiled


def _measure_kept(rows: int, width: int, inner: int, compiled: bool) -> int:
    from vramlab.measure.partitions import kept_for_backward
    from vramlab_course.lessons.l29_compiled_programs.compiled import GatedBlock, as_function

    block = GatedBlock(width, inner).to(torch.bfloat16)
    x = torch.zeros(rows, width, dtype=torch.bfloat16, requires_grad=True)
    function, parameters = as_function(block)
    partition: Any = "min-cut" if compiled else "eager"
    return kept_for_backward(function, x, *parameters, partition=partition)


def _kept(
    rows: int,
    width: int,
    inner: int,
    compiled: bool,
    *,
    wide_bytes: int = 4,
    roots: bool = True,
    hidden: bool = True,
) -> int:
    """Return the answer, or a mistaken one."""
    kept = 2 * width + 2 * 2 * inner + (4 if roots else 0)  # normed; gate and up; a root each row
    if hidden:
        kept += 2 * inner
    if not compiled:
        kept += wide_bytes * width + 2 * width + 2 * inner  # wide, normed before its scale, silu
    return rows * kept


def _hidden_kept(random: Random) -> list[Config]:
    return [
        {
            "rows": 8 * random.randrange(2, 12),
            "width": 16 * random.randrange(2, 8),
            "inner": 16 * random.randrange(8, 20),
            "compiled": compiled,
        }
        for compiled in (False, True)
    ]


KEPT = Predict(
    name="kept_bytes",
    points=4,
    minutes=25,
    visible=(
        {"rows": 64, "width": 64, "inner": 256, "compiled": False},
        {"rows": 64, "width": 64, "inner": 256, "compiled": True},
    ),
    hidden=_hidden_kept,
    measure=_measure_kept,
    gpu=T4,
    mistakes=of(
        _kept,
        (
            "You counted the norm's full-width copy of x as bfloat16. It is float32.",
            {"wide_bytes": 2},
        ),
        (
            "You left out the roots: one float32 number per row, which are saved.",
            {"roots": False},
        ),
        (
            "You left out the input of the last product. Its weight's gradient needs it, and the "
            "partitioner saves the inputs of products.",
            {"hidden": False},
        ),
        Mistake(
            "You gave the eager answer for the compiled block. Which ops does the backward pass "
            "recompute?",
            lambda rows, width, inner, compiled: _kept(rows, width, inner, False),
        ),
    ),
)

# which_phase: told from pools

PHASES = ("no graphs", "recording", "replaying")


def _observe_phase(run: str, first: int, count: int) -> Observation:
    """Read some moments of a recorded run, one after the other.

    Args:
        run: its name in `vramlab_course.lessons.l29_compiled_programs.compiled`.
        first: the first moment.
        count: how many.
    """
    from vramlab_course.lessons.l29_compiled_programs.compiled import recorded

    moments = recorded().runs[run][first : first + count]
    allocated = [moment.allocated_bytes for moment in moments]
    reserved = [moment.reserved_bytes for moment in moments]
    pools = [moment.pool_bytes for moment in moments]
    evidence = {"allocated": allocated, "reserved": reserved, "pools": pools}
    return Observation(evidence, _phase(allocated, reserved, pools))


def _phase(
    allocated: list[int], reserved: list[int], pools: list[int], *, by_reserved: bool = False
) -> str:
    """Return the answer, or a mistaken one."""
    if not any(pools):
        return "no graphs"
    growing = reserved if by_reserved else pools
    return "recording" if growing[-1] > growing[0] else "replaying"


_TRAINING = "compiled, CUDA graphs"

PHASE = Diagnose(
    name="which_phase",
    points=2,
    minutes=10,
    visible=(
        {"run": "compiled", "first": 1, "count": 4},
        {"run": _TRAINING, "first": 1, "count": 4},
        {"run": _TRAINING, "first": 7, "count": 4},
        {"run": _TRAINING, "first": 4, "count": 4},
    ),
    hidden=lambda random: [
        {"run": "eager", "first": random.randrange(1, 5), "count": 3},
        {"run": "shapes", "first": random.randrange(0, 2), "count": 3},
        {"run": _TRAINING, "first": random.choice((5, 6, 7)), "count": 3},
        {"run": "a graph by hand", "first": 2, "count": 3},
    ],
    observe=_observe_phase,
    gpu=T4,
    mistakes=of(
        _phase,
        (
            "You looked at the total reserved memory. Other blocks come and go, too: look at the "
            "private pools.",
            {"by_reserved": True},
        ),
        Mistake(
            "You took falling allocated memory as a sign of graph capture. It also falls without "
            "graphs, after each backward pass.",
            lambda allocated, reserved, pools: (
                "replaying" if min(allocated) < reserved[-1] / 4 else "no graphs"
            ),
        ),
    ),
)

# train_step: recomputing what is cheap, by hand

WIDTH, INNER, ROWS = 64, 512, 1024
HIDDEN_BYTES = 4 * ROWS * INNER
HOST_BYTES = 10 * HIDDEN_BYTES
"""May go to the host: the input, weights and gradients, to be looked at. With 16 blocks, 64 such
tensors are saved."""


def _blocks(run: Run, blocks: int) -> tuple[Any, ...]:
    from vramlab_course.lessons.l29_compiled_programs.compiled import GatedBlock

    torch.manual_seed(blocks)
    model = torch.nn.ModuleList(GatedBlock(WIDTH, INNER) for _ in range(blocks)).to("cuda")
    return model, numbered_batch(0, ROWS, WIDTH)


def _step(model: Any, x: torch.Tensor) -> None:
    for block in model:
        x = block(x)
    x.square().mean().backward()


def _step_again(model: Any, x: torch.Tensor) -> None:
    """Solve the task."""
    from torch.utils.checkpoint import checkpoint

    def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(gate) * up

    for block in model:
        normed = checkpoint(norm, x, block.scale, use_reentrant=False)
        hidden = checkpoint(gated, block.gate(normed), block.up(normed), use_reentrant=False)
        x = x + block.down(hidden)
    x.square().mean().backward()


def _held(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated: "
        f"{run.peak_bytes / HIDDEN_BYTES / run.case['blocks']:.1f} hidden layers per block. Which "
        "of them could be recomputed from others, without a product?"
    )


def _same_gradients(run: Run, expected: Gradients) -> None:
    run.require_no_more_flops("it recomputes products. Recompute only element-wise ops.")
    run.require_stayed(
        HOST_BYTES, "Here everything stays on the GPU; some of it can be recomputed."
    )
    require_gradients(run.results, expected)


STEP = Fix(
    name="train_step",
    points=4,
    minutes=25,
    visible=({"blocks": 16},),
    hidden=lambda random: [{"blocks": random.randrange(17, 20)}],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_blocks,
        reference=_step,
        fits=_step_again,
        limit=room(3 * HIDDEN_BYTES),
        allocated_room_bytes=4 * HIDDEN_BYTES,
        ran_out=_held,
        collect=collect_gradients,
        compare=_same_gradients,
    ),
)

EXERCISE = Exercise(
    name="29_compiled_programs",
    module=__name__,
    tasks=(KEPT, PHASE, STEP),
    core=("kept_bytes", "which_phase"),
)
