"""Exercise 10: the line, the largest batch, why a retry fails, and a search that frees all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, NotFixed, Observation
from vramlab_course.tasks.batches import numbered_samples
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.limits import limit_memory
from vramlab_course.tasks.operations import base_name
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import number, parameters_of, require_close, to_host

if TYPE_CHECKING:
    from torch._ops import OpOverload

T4 = GPU("T4")

LENGTH = 512
"""Tokens of a sample. With a width of 1024 or 2048 a sample has a multiple of 2 MiB, so that no
block keeps a rest: lesson 02 is about those."""

Points = Sequence[Sequence[int]]
"""[batch, bytes] of each measurement."""


def _model(layers: int, width: int) -> torch.nn.Sequential:
    """Linear layers without bias: what the sum of a bias's gradient takes is no straight line."""
    modules: list[torch.nn.Module] = []
    for _ in range(layers):
        modules += [torch.nn.Linear(width, width, bias=False), torch.nn.GELU()]
    return torch.nn.Sequential(*modules).to("cuda")


def _peaks(layers: int, width: int, optimizer: str, batches: Sequence[int]) -> list[int]:
    """Peak of a training step for each batch; states and workspaces come before."""
    peaks = []
    with T4.attached():
        model = _model(layers, width)
        optimize = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[optimizer](
            model.parameters()
        )
        for batch in (1, *batches):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            x = torch.zeros(batch, LENGTH, width, device="cuda")
            model(x).square().mean().backward()
            optimize.step()
            optimize.zero_grad()
            peaks.append(torch.cuda.max_memory_allocated())
            del x
    return peaks[1:]


def _run(random: Random) -> dict[str, Any]:
    """Return a model and two batches; from 8 on, the peak is that of the backward pass."""
    small = random.randrange(8, 16)
    return {
        "layers": random.randrange(2, 6),
        "width": random.choice((1024, 2048)),
        "optimizer": random.choice(("SGD", "AdamW")),
        "batches": [small, small + random.randrange(3, 12)],
    }


_BASE = {"layers": 4, "width": 1024, "optimizer": "AdamW", "batches": [8, 16]}
_UNEVEN = {"layers": 3, "width": 2048, "optimizer": "SGD", "batches": [10, 13]}


def _line(measured: Points) -> tuple[float, float]:
    """Bytes at a batch of 0, and of a sample."""
    (small, small_bytes), (large, large_bytes) = measured
    slope = (large_bytes - small_bytes) / (large - small)
    return small_bytes - small * slope, slope


# peak_at: a point on the line


def _observe_peak(
    layers: int, width: int, optimizer: str, batches: list[int], batch: int
) -> Observation:
    *peaks, asked = _peaks(layers, width, optimizer, (*batches, batch))
    measured = [list(point) for point in zip(batches, peaks, strict=True)]
    return Observation({"measured": measured, "batch": batch}, asked)


PEAK = Diagnose(
    name="peak_at",
    points=2,
    minutes=10,
    visible=({**_BASE, "batch": 32}, {**_BASE, "batch": 10}, {**_UNEVEN, "batch": 40}),
    hidden=lambda random: [{**_run(random), "batch": random.randrange(8, 60)} for _ in range(4)],
    observe=_observe_peak,
    mistakes=(
        Mistake(
            "You scaled the whole peak with the batch. Parameters, gradients and optimizer states "
            "do not depend on the batch.",
            lambda measured, batch: measured[1][1] * batch // measured[1][0],
        ),
        Mistake(
            "You scaled the whole peak with the batch. Parameters, gradients and optimizer states "
            "do not depend on the batch.",
            lambda measured, batch: measured[0][1] * batch // measured[0][0],
        ),
        Mistake(
            "You counted the fixed part twice. The first measurement already includes it.",
            lambda measured, batch: round(measured[0][1] + batch * _line(measured)[1]),
        ),
        Mistake(
            "You took the difference between the two measurements as the cost of one sample. How "
            "many samples lie between them?",
            lambda measured, batch: (
                measured[0][1] + (batch - measured[0][0]) * (measured[1][1] - measured[0][1])
            ),
        ),
    ),
)


# largest_batch: where the line meets the room


def _observe_largest(
    layers: int, width: int, optimizer: str, batches: list[int], room_mib: int
) -> Observation:
    """Try: the largest batch whose peak is not above the room."""
    peaks = _peaks(layers, width, optimizer, batches)
    measured = [list(point) for point in zip(batches, peaks, strict=True)]
    low, high = batches[0], 512  # low is not above, high is
    while high - low > 1:
        middle = (low + high) // 2
        try:
            (peak_bytes,) = _peaks(layers, width, optimizer, [middle])
            is_above = peak_bytes > room_mib * MIB
        except torch.cuda.OutOfMemoryError:
            is_above = True  # of the whole GPU
        low, high = (low, middle) if is_above else (middle, high)
    return Observation({"measured": measured, "room": room_mib * MIB}, low)


def _largest(
    measured: Points, room: int, *, fixed: int = 1, more: int = 0, multiple: int = 1
) -> int:
    """Return the answer or a mistaken one: for naming mistakes, not for grading."""
    fixed_bytes, sample_bytes = _line(measured)
    return int((room - fixed * fixed_bytes) // sample_bytes + more) // multiple * multiple


LARGEST = Diagnose(
    name="largest_batch",
    points=2,
    minutes=10,
    visible=({**_BASE, "room_mib": 1024}, {**_UNEVEN, "room_mib": 4096}),
    hidden=lambda random: [
        {**_run(random), "room_mib": 512 * random.randrange(6, 12)} for _ in range(3)
    ],
    observe=_observe_largest,
    mistakes=of(
        _largest,
        (
            "You divided the available memory by the cost of a sample. Subtract the fixed part "
            "first.",
            {"fixed": 0},
        ),
        Mistake(
            "You scaled the whole peak with the batch. Parameters, gradients and optimizer states "
            "do not depend on the batch.",
            lambda measured, room: room * measured[1][0] // measured[1][1],
        ),
        (
            "Your batch is one sample too large: it is the first that does not fit. Round down.",
            {"more": 1},
        ),
        (
            "You rounded to a multiple of 8. That can help speed; memory has no such steps.",
            {"multiple": 8},
        ),
    ),
)


# why_again: from readings around a retry

KINDS = (
    "retried inside except",
    "the error is kept",
    "an earlier loss is kept",
    "still too large",
)


def _observe_retry(kind: str, layers: int, batch: int) -> Observation:
    """Let a step fail, and a smaller one after it, in one of four ways.

    Args:
        kind: one of `KINDS`.
        layers: of a width of 1024.
        batch: that fails; half of it is tried again.
    """
    half_bytes, whole_bytes = (
        peak - 1 for peak in _peaks(layers, 1024, "SGD", [batch // 2, batch])
    )
    # Half of the batch fits, and the whole does not; or, if it is too large, neither.
    limit_bytes = half_bytes - 16 * MIB if kind == KINDS[3] else (half_bytes + whole_bytes) // 2
    with T4.attached():
        readings = _read_retry(kind, layers, batch, half_bytes, limit_bytes)
    return Observation({"readings": readings}, kind)


def _read_retry(
    kind: str, layers: int, batch: int, half_bytes: int, limit_bytes: int
) -> dict[str, int]:
    """Allocated bytes around a step that fails, and around its retry, which fails too."""
    readings: dict[str, int] = {}
    kept: list[object] = []
    model = _model(layers, 1024)
    optimizer = torch.optim.SGD(model.parameters())

    def read(place: str) -> None:
        readings[place] = torch.cuda.memory_allocated()

    def step(size: int) -> None:
        x = torch.zeros(size, LENGTH, 1024, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def retry() -> None:
        torch.cuda.empty_cache()
        read("when the retry begins")
        try:
            step(batch // 2)
        except torch.cuda.OutOfMemoryError:
            return
        raise RuntimeError(f"the retry of {kind!r} did not fail")

    step(1)
    read("model and workspaces")
    readings["the retry needs besides"] = half_bytes - readings["model and workspaces"]
    readings["may be used"] = limit_bytes
    limit_memory(limit_bytes)
    if kind == "an earlier loss is kept":
        kept.append(model(torch.zeros(batch * 2 // 3, LENGTH, 1024, device="cuda")).square().sum())
    read("before the step")
    try:
        step(batch)
    except torch.cuda.OutOfMemoryError as error:
        read("in the except block")
        if kind == "retried inside except":
            retry()
        if kind == "the error is kept":
            kept.append(error)
    else:
        raise RuntimeError(f"the first step of {kind!r} did not fail")
    optimizer.zero_grad()
    read("after the except block")
    if kind != "retried inside except":
        retry()
    return readings


def _why_it_stays(readings: Mapping[str, int]) -> str:
    idle = readings["model and workspaces"] + 8 * MIB
    if readings["when the retry begins"] <= idle:
        return "still too large"
    if readings["before the step"] > idle:
        return "an earlier loss is kept"
    if readings["after the except block"] > idle:
        return "the error is kept"
    return "retried inside except"


WHY = Diagnose(
    name="why_again",
    points=4,
    minutes=20,
    visible=(
        {"kind": "retried inside except", "layers": 4, "batch": 32},
        {"kind": "still too large", "layers": 4, "batch": 32},
        {"kind": "an earlier loss is kept", "layers": 3, "batch": 48},
        {"kind": "the error is kept", "layers": 5, "batch": 30},
    ),
    hidden=lambda random: [
        {"kind": kind, "layers": random.randrange(3, 7), "batch": 6 * random.randrange(4, 9)}
        for kind in KINDS
    ],
    observe=_observe_retry,
    mistakes=(
        Mistake(
            'You answered "retried inside except" whenever much is allocated as the retry '
            "begins. How much was allocated before the step, and how much is left after the "
            "block?",
            instead(
                _why_it_stays,
                {
                    "an earlier loss is kept": "retried inside except",
                    "the error is kept": "retried inside except",
                },
            ),
        ),
        Mistake(
            "You did not look at what was allocated before the step.",
            instead(_why_it_stays, {"an earlier loss is kept": "the error is kept"}),
        ),
        Mistake(
            "You did not look at what stays allocated after the except block. A retry inside the "
            "block finds more allocated than is left after it.",
            instead(_why_it_stays, {"the error is kept": "retried inside except"}),
        ),
        Mistake(
            "You answered that the error is kept, but the retry ran inside the except block. "
            "After the block, everything was freed.",
            instead(_why_it_stays, {"retried inside except": "the error is kept"}),
        ),
        Mistake(
            "You looked for a reference that keeps memory, and there is none. Compare what is "
            "allocated when the retry begins with the model alone.",
            instead(_why_it_stays, {"still too large": "retried inside except"}),
        ),
    ),
)


# gradient_of_all: a search for the batch that holds on to what failed

SEARCH_GPU = T4.but(values=True)
LAYERS, TOKENS, WIDTH = 4, 512, 128
SAMPLE_BYTES = 4 * TOKENS * WIDTH  # 256 KiB
LEAST_PIECE = 0.6
"""Of the samples that fit, a piece has so many at least: halving finds all of them, other ways to
go down nearly as many."""

SAME = 1e-4
"""Relative: sums in another order differ in the last bits; a piece too many or too few does not."""


def _model_and_samples(run: Run, count: int, halvings: int) -> tuple[Any, ...]:
    torch.manual_seed(0)
    model = _model(LAYERS, WIDTH)
    run.work.watchers.append(partial(_note_samples, run.noted))

    @run.ours
    def load(start: int, stop: int) -> torch.Tensor:
        run.noted.append((start, stop))
        return numbered_samples(start, stop, TOKENS, WIDTH)

    return model, load, count


def _note_samples(
    noted: list[Any], func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Note how many samples go into a product; loads are noted as pairs."""
    if base_name(func) in ("mm", "addmm", "bmm", "baddbmm"):
        numbers = max(tensor.numel() for tensor in args if isinstance(tensor, torch.Tensor))
        noted.append(numbers / (TOKENS * WIDTH))


def _loads(run: Run) -> list[tuple[int, int]]:
    return [noted for noted in run.noted if isinstance(noted, tuple)]


def _require_large_pieces(run: Run) -> None:
    pieces = [noted for noted in run.noted if not isinstance(noted, tuple)]
    small = [samples for samples in pieces if samples < LEAST_PIECE * _fitting(run)]
    if 2 * sum(small) > sum(pieces):
        raise NotFixed(
            f"It fits, but computes most of it in pieces of {max(small):.3g} samples or fewer, "
            f"although {_fitting(run)} fit. How can it find out how many do?"
        )


def _in_pieces(model: Any, load: Any, count: int, pieces: int = 4) -> float:
    total = 0.0
    size = count // pieces
    for start in range(0, count, size):
        loss = model(load(start, start + size)).square().sum()
        loss.backward()
        total += float(loss.detach())
    return total


def _fitting(run: Run) -> int:
    return int(run.case["count"] >> run.case["halvings"])


def _less_than_twice(own: Run) -> int:
    """Return a limit with which a batch twice too large passes forward, and fails in backward."""
    with SEARCH_GPU.attached():
        model, load, count = _model_and_samples(own, 2 * _fitting(own), 0)
        _in_pieces(model, load, count, pieces=1)
        return torch.cuda.max_memory_allocated() - _fitting(own) * SAMPLE_BYTES


def _smallest_tried(run: Run) -> str:
    smallest = min((stop - start for start, stop in _loads(run)), default=0)
    return (
        f"{run.ran_out} even with {smallest} samples, although {_fitting(run)} fit. What still "
        "references the tensors of the batch that failed?"
    )


def _gradient_and_loss(run: Run, total: Any) -> tuple[torch.Tensor, float]:
    count, calls = run.case["count"], len(_loads(run))
    # tries, pieces, and two to spare
    if calls > run.case["halvings"] + 1 + count // _fitting(run) + 2:
        raise NotFixed(
            f"It fits, but calls load() {calls} times. Pieces of {_fitting(run)} samples would "
            "fit if nothing referenced the tensors of those that failed."
        )
    gradients = [parameter.grad for parameter in parameters_of(run.inputs[0])]
    found = [to_host(gradient).flatten() for gradient in gradients if gradient is not None]
    if len(found) < len(gradients):
        raise NotFixed("It fits, but some parameters have no gradient at the end.")
    loss = number(total, "It has to return the loss of all samples: a number.")
    return torch.cat(found), loss


def _same_gradient(run: Run, expected: tuple[torch.Tensor, float]) -> None:
    _require_large_pieces(run)
    (gradient, total), (wanted, wanted_total) = run.results, expected
    ratio = float(gradient.norm() / wanted.norm())
    require_close(
        gradient,
        wanted,
        f"It fits, but the gradient is wrong: {ratio:.2f} times as long as it should be. Does "
        "every sample count once? A backward pass that fails can leave some of its gradients "
        "behind.",
    )
    if abs(total - wanted_total) > SAME * abs(wanted_total):
        raise NotFixed("The gradient is right, but the loss of all samples is wrong.")


SEARCH = Fix(
    name="gradient_of_all",
    points=5,
    minutes=30,
    visible=({"count": 64, "halvings": 2}, {"count": 48, "halvings": 1}),
    hidden=lambda random: [
        {"count": 16 * random.randrange(4, 6), "halvings": halvings} for halvings in (1, 3)
    ],
    trial=Repair(
        gpu=SEARCH_GPU,
        build=_model_and_samples,
        reference=_in_pieces,
        limit=_less_than_twice,
        ran_out=_smallest_tried,
        collect=_gradient_and_loss,
        compare=_same_gradient,
        report=lambda run: (
            f"{len(_loads(run))} calls of load() within {format_bytes(run.limit_bytes)}"
        ),
    ),
)

EXERCISE = Exercise(
    name="10_batch_size",
    module=__name__,
    tasks=(PEAK, LARGEST, WHY, SEARCH),
    core=("largest_batch", "why_again"),
)
