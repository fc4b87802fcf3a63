"""Exercise 14: what checkpointing keeps and runs again, and a training step that has to fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import comb, isqrt
from typing import Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, NotFixed, Observation, Predict
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import revolve
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.gradients import Gradients, collect_gradients, require_gradients
from vramlab_course.tasks.readings import growth_bytes, peak_growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room

T4 = GPU("T4")


def _last(steps: int, segments: int, rest: bool = True) -> int:
    """Return steps of the last segment, which has the rest; or, mistaken, has it not."""
    return steps - (segments - 1) * (steps // segments) if rest else steps // segments


# kept_bytes: what the forward pass keeps


def _measure_kept(steps: int, segments: int, rows: int, width: int) -> int:
    from torch.utils.checkpoint import checkpoint_sequential

    from vramlab_course.programs.chains import mlp_chain, prepared

    x = torch.zeros(rows, width, device="cuda")
    chain = prepared(mlp_chain(steps, width), x)
    return growth_bytes(lambda: checkpoint_sequential(chain, segments, x, use_reentrant=False))


def _kept(
    steps: int,
    segments: int,
    rows: int,
    width: int,
    *,
    inputs: int = 0,
    each: int = 9,
    rest: bool = True,
) -> int:
    """Return the answer or a mistaken one: `each` recorded step keeps so many states."""
    states = segments - 1 + inputs + each * _last(steps, segments, rest)
    return states * 4 * rows * width


KEPT = Predict(
    name="kept_bytes",
    points=3,
    minutes=20,
    visible=(
        {"steps": 12, "segments": 1, "rows": 8192, "width": 64},
        {"steps": 12, "segments": 3, "rows": 8192, "width": 64},
        {"steps": 12, "segments": 12, "rows": 8192, "width": 64},
        {"steps": 14, "segments": 4, "rows": 4096, "width": 128},
    ),
    hidden=lambda random: [
        {
            "steps": segments * random.randrange(2, 5) + rest,
            "segments": segments,
            "rows": 8192 * random.randrange(1, 4),
            "width": 64,
        }
        for segments, rest in ((2, 0), (3, 2), (4, 0), (5, 3), (7, 6))
    ],
    measure=_measure_kept,
    gpu=T4,
    mistakes=of(
        _kept,
        (
            "You left out what a recorded step saves inside: the tensors before and after GELU.",
            {"each": 1},
        ),
        (
            "You gave all segments the same length. They have steps // segments steps, and the "
            "last one has the rest as well.",
            {"rest": False},
        ),
        (
            "You counted the input of the chain. It was allocated before the forward pass.",
            {"inputs": 1},
        ),
        (
            "You treated the last segment as checkpointed, too. Autograd records it in the first "
            "forward pass.",
            {"inputs": 1, "each": 0},
        ),
        ("You counted what training saves without checkpointing.", {"segments": 1}),
    ),
)


# peak_states: the peak of a step over single nodes


def _measure_peak(steps: int, segments: int) -> int:
    from torch.utils.checkpoint import checkpoint_sequential

    from vramlab_course.programs.chains import linear_chain, prepared

    rows, width = 8192, 64
    x = torch.zeros(rows, width, device="cuda")
    chain = prepared(linear_chain(steps, width), x)
    peak_bytes = peak_growth_bytes(
        lambda: checkpoint_sequential(chain, segments, x, use_reentrant=False).sum().backward()
    )
    # All gradients of the weights together take less than one state.
    return peak_bytes // (4 * rows * width)


def _peak(steps: int, segments: int, *, more: int = 0, rest: bool = True) -> int:
    """Return the answer or a mistaken one: for naming mistakes, not for grading."""
    return segments + _last(steps, segments, rest) + more


PEAK = Predict(
    name="peak_states",
    points=3,
    minutes=20,
    visible=(
        {"steps": 16, "segments": 1},
        {"steps": 16, "segments": 4},
        {"steps": 16, "segments": 16},
        {"steps": 18, "segments": 4},
    ),
    hidden=lambda random: [
        {"steps": segments * random.randrange(2, 7) + rest, "segments": segments}
        for segments, rest in ((1, 0), (2, 0), (3, 2), (5, 0), (6, 5), (9, 3))
    ],
    measure=_measure_peak,
    gpu=T4,
    mistakes=of(
        _peak,
        (
            "You counted what stays allocated after the forward pass. The backward pass of a "
            "layer also needs two gradients: of its output and of its input. By then, the last "
            "state has been freed.",
            {"more": -1},
        ),
        ("You counted the input of the chain. It was allocated before.", {"more": 1}),
        (
            "You gave all segments the same length. The last one has the rest as well.",
            {"rest": False},
        ),
        Mistake(
            "You used the square root for every number of segments. It gives the best number; the "
            "question is about the given one.",
            lambda steps, segments: 2 * isqrt(steps),
        ),
    ),
)


# revolve_forwards: how often Revolve runs a step forward


def _measure_revolve(steps: int, slots: int) -> int:
    from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.execute import execute
    from vramlab_course.programs.chains import linear_chain

    chain = linear_chain(steps, 8).to("cuda")
    x = torch.zeros(8, 8, device="cuda")
    return execute(revolve(steps, slots), chain, x, torch.sum).forwards


def _revolve(steps: int, slots: int) -> int:
    """Griewank and Walther's count of advances: for naming mistakes, not for grading."""
    times = 0
    while comb(slots + times, slots) < steps:
        times += 1
    return times * steps - (comb(slots + times, slots + 1) if times else 0)


REVOLVE = Predict(
    name="revolve_forwards",
    points=3,
    minutes=30,
    visible=(
        {"steps": 1, "slots": 1},
        {"steps": 4, "slots": 1},
        {"steps": 4, "slots": 2},
        {"steps": 12, "slots": 3},
        {"steps": 20, "slots": 30},
    ),
    hidden=lambda random: [
        *(
            {"steps": random.randrange(slots + 2, 60), "slots": slots}
            for slots in (1, 2, 3, 4, 6, 8)
        ),
        {"steps": comb(6, 3), "slots": 3},  # a chain that just needs no further repetition
        {"steps": comb(6, 3) + 1, "slots": 3},
        {"steps": random.randrange(5, 20), "slots": 20},
    ],
    measure=_measure_revolve,
    gpu=T4,
    mistakes=(
        Mistake(
            "You counted only the advances. Every step also runs again, to be recorded.",
            _revolve,
        ),
        Mistake(
            "You gave the input no slot. It occupies one of them.",
            lambda steps, slots: _revolve(steps, slots + 1) + steps,
        ),
        Mistake(
            "You restarted from the chain's input for every step. States stored in the other "
            "slots shorten the way.",
            lambda steps, slots: steps * (steps + 1) // 2,
        ),
        Mistake(
            "You ran every step at most twice. With few slots, some steps run more often.",
            lambda steps, slots: 2 * steps - 1,
        ),
    ),
)


# which_strategy: told from memory and FLOPs

STRATEGIES = ("nothing", "segments", "each step", "each step, reentrant", "products kept")


def _observe_strategy(strategy: str, steps: int, segments: int, rows: int) -> Observation:
    """Train an MLP chain for a step, and read its memory and FLOPs.

    Args:
        strategy: one of `STRATEGIES`.
        steps: length of the chain.
        segments: for "segments": 2 to steps // 2.
        rows: of a state, which has 64 columns.
    """
    from torch.utils.flop_counter import FlopCounterMode

    from vramlab_course.programs.chains import mlp_chain, prepared

    width = 64
    reentrant = strategy == "each step, reentrant"
    x = torch.zeros(rows, width, device="cuda", requires_grad=reentrant)
    chain = prepared(mlp_chain(steps, width), x)
    x.grad = None
    forward = _forward(strategy, segments)
    kept_bytes = growth_bytes(lambda: forward(chain, x))
    counter = FlopCounterMode(display=False)
    with counter:
        loss = forward(chain, x).sum()
        forward_flops = counter.get_total_flops()
        loss.backward()
    readings = {
        "steps": steps,
        "state": 4 * rows * width,
        "kept": kept_bytes,
        "forward FLOPs": forward_flops,
        "backward FLOPs": counter.get_total_flops() - forward_flops,
    }
    return Observation({"readings": readings}, strategy)


def _forward(
    strategy: str, segments: int
) -> Callable[[torch.nn.Sequential, torch.Tensor], torch.Tensor]:
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    from vramlab_course.lessons.l14_gradient_checkpointing.torch_checkpointing import (
        each_step,
        selective,
    )

    def in_segments(chain: Any, x: Any) -> Any:
        return checkpoint_sequential(chain, segments, x, use_reentrant=False)

    def reentrant(chain: Any, x: Any) -> Any:
        for step in chain:
            x = checkpoint(step, x, use_reentrant=True)
        return x

    ways: dict[str, Callable[[Any, Any], Any]] = {
        "nothing": lambda chain, x: chain(x),
        "segments": in_segments,
        "each step": each_step,
        "each step, reentrant": reentrant,
        "products kept": selective,
    }
    return ways[strategy]


def _by_memory(readings: Mapping[str, int]) -> str:
    """As if FLOPs had not been read."""
    each = readings["kept"] / readings["steps"] / readings["state"]
    if each > 8:
        return "nothing"
    return "each step" if each < 2 else "products kept"


def _by_flops(readings: Mapping[str, int]) -> str:
    """As if memory had not been read."""
    again = readings["backward FLOPs"] / readings["forward FLOPs"]
    if again < 2:
        return "nothing"
    return "each step, reentrant" if again > 2.75 else "each step"


def _both(readings: Mapping[str, int]) -> str:
    """Memory and FLOPs together: for naming mistakes, not for grading."""
    by_memory, by_flops = _by_memory(readings), _by_flops(readings)
    if by_flops == "nothing":
        return by_memory
    kept_states = readings["kept"] // readings["state"]
    return by_flops if kept_states == readings["steps"] else "segments"


WHICH = Diagnose(
    name="which_strategy",
    points=4,
    minutes=20,
    visible=(
        {"strategy": "segments", "steps": 12, "segments": 4, "rows": 8192},
        {"strategy": "products kept", "steps": 12, "segments": 4, "rows": 8192},
        {"strategy": "each step, reentrant", "steps": 9, "segments": 3, "rows": 8192},
    ),
    hidden=lambda random: [
        {
            "strategy": strategy,
            "steps": random.randrange(8, 17),
            "segments": random.randrange(2, 5),
            "rows": 8192 * random.randrange(1, 3),
        }
        for strategy in (*STRATEGIES, "segments")
    ],
    observe=_observe_strategy,
    gpu=T4,
    mistakes=(
        Mistake(
            "You looked only at the memory. The FLOPs of the backward pass show whether anything "
            "was recomputed, and how much.",
            _by_memory,
        ),
        Mistake(
            "You looked only at the FLOPs. What the forward pass saves per step is the clearer "
            "evidence.",
            _by_flops,
        ),
        Mistake(
            "You swapped the two implementations. Only one of them stops before the last product "
            "of a step, which nothing in the backward pass reads.",
            instead(
                _both,
                {"each step": "each step, reentrant", "each step, reentrant": "each step"},
            ),
        ),
    ),
)


# train_step: checkpoint a deep model within a budget of FLOPs

ROWS, WIDTH = 512, 64
STATE_BYTES = 4 * ROWS * WIDTH
ROOM_BYTES = 2 * MIB
"""Beyond what checkpoints of every block reserve; a tenth of what is missing without them."""

BUDGET = 1.2
"""FLOPs, times those of the program as it is. One more forward pass would be 1.33."""


def _model(blocks: int) -> torch.nn.Sequential:
    model = torch.nn.Sequential(
        *(
            torch.nn.Sequential(
                torch.nn.Dropout(0.1),
                torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False),
                torch.nn.GELU(),
                torch.nn.Linear(4 * WIDTH, WIDTH, bias=False),
            )
            for _ in range(blocks)
        )
    )
    for parameter in model.parameters():
        torch.nn.init.orthogonal_(
            parameter, gain=1.5
        )  # so that gradients do not vanish over the blocks
    return model.to("cuda")


def _train_step(model: torch.nn.Sequential, x: torch.Tensor) -> None:
    """One way to do it."""
    from torch.utils.checkpoint import checkpoint

    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    x.square().mean().backward()


def _as_it_was(model: torch.nn.Sequential, x: torch.Tensor) -> None:
    model(x).square().mean().backward()


def _model_and_input(run: Run, blocks: int) -> tuple[torch.nn.Sequential, torch.Tensor]:
    torch.manual_seed(blocks)
    model = _model(blocks)
    x = torch.randn(ROWS, WIDTH, device="cuda")
    torch.manual_seed(blocks + 1)
    return model, x


def _recorded_blocks(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated. A recorded block saves "
        f"more than nine times {format_bytes(STATE_BYTES)}; its input alone takes that once. How "
        "many blocks are recorded at a time?"
    )


def _same_within_budget(run: Run, expected: Gradients) -> None:
    try:
        require_gradients(run.results, expected)
    except NotFixed as error:
        raise NotFixed(
            f"{error} Which random numbers does dropout draw when a block runs again?"
        ) from error
    if run.times_the_flops > BUDGET:
        raise NotFixed(
            f"It fits, and the gradients are right, but it takes {run.times_the_flops:.2f} times "
            f"the FLOPs of the original program; {BUDGET} times are allowed. Which products run "
            "again although nothing reads their result?"
        )


TRAIN = Fix(
    name="train_step",
    points=4,
    minutes=25,
    visible=({"blocks": 24},),
    hidden=lambda random: [{"blocks": random.randrange(20, 29)}],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_input,
        reference=_as_it_was,
        fits=_train_step,
        limit=room(ROOM_BYTES),
        ran_out=_recorded_blocks,
        collect=collect_gradients,
        compare=_same_within_budget,
        report=lambda run: f"{run.peak_report}, {run.times_the_flops:.2f} times the FLOPs",
    ),
)

EXERCISE = Exercise(
    name="14_gradient_checkpointing",
    module=__name__,
    tasks=(KEPT, PEAK, REVOLVE, WHICH, TRAIN),
    core=("kept_bytes", "train_step"),
)
