"""Exercise 23: plan a training run step by step, find what helps most, and choose what fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import sqrt
from random import Random
from typing import Any

from vramlab.planner import Plan, about_bytes, estimate, largest_moments, simulate
from vramlab.programs.optimizer_states import STATES
from vramlab.programs.transformer_memory import (
    PRECISIONS,
    Sizes,
    bytes_per_parameter,
    head_kept,
    layer_kept_bytes,
)
from vramlab.units import MIB, format_bytes
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
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.gradients import Gradients, collect_gradients, require_gradients
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import as_data, is_one_of, whole
from vramlab_course.tasks.snapshots import Trace, sums, trace_of

A100 = GPU("A100-80GB")


def _sizes(layers: int, width: int, vocabulary: int) -> Sizes:
    """Return a decoder without biases, whose head is its own."""
    return Sizes(
        vocabulary,
        width=width,
        layers=layers,
        heads=width // 64,
        norm="rms",
        bias=False,
        tied=False,
        learned_positions=False,
    )


# fewest_gpus: so that states fit

MOST_GPUS = 1024
COPIED = "bfloat16, float32 master"


def _measure_fewest(
    layers: int, width: int, vocabulary: int, precision: str, optimizer: str, room_bytes: int
) -> int:
    sizes = _sizes(layers, width, vocabulary)
    ranks = 1
    while _states_of_a_rank(sizes, precision, optimizer, ranks) > room_bytes:
        ranks *= 2
    return ranks


def _states_of_a_rank(sizes: Sizes, precision: str, optimizer: str, ranks: int) -> int:
    """Weights, gradients and states of rank 0 after the backward pass of a second step."""
    from torch.distributed.tensor import DTensor

    from vramlab.planner.program import Training, first_rank_of

    plan = Plan(
        sizes,
        A100.name,
        batch=ranks,
        sequence=16,
        precision=precision,
        optimizer=optimizer,
        attention="math",
        data=ranks,
        zero=3 if ranks > 1 else 0,
    )
    with A100.attached(), first_rank_of(plan) as mesh:
        training = Training(plan, mesh)
        training.step()
        training.forward_and_backward()
        parameters = list(training.model.parameters())
        tensors = [*parameters, *(p.grad for p in parameters), *training.states()]
        local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
        states_bytes = sum(t.nbytes for t in local if t is not None and t.is_cuda)
        del training, parameters, tensors, local
    return states_bytes


def _parameters(layers: int, width: int, vocabulary: int) -> int:
    return _sizes(layers, width, vocabulary).parameters()


def _fewest(
    layers: int,
    width: int,
    vocabulary: int,
    precision: str,
    optimizer: str,
    room_bytes: int,
    *,
    bytes_of: Callable[[str, str], Mapping[str, int]] = bytes_per_parameter,
    left_out: Sequence[str] = (),
    undivided: Sequence[str] = (),
    round_up: bool = True,
) -> int:
    """Return the answer or a mistaken one: which parts of a parameter's bytes are left out, and
    which every GPU has as a whole."""
    parts = {**bytes_of(precision, optimizer), "casts": 0} | dict.fromkeys(left_out, 0)
    whole = sum(parts[name] for name in undivided)
    each = sum(parts.values()) - whole
    parameters = _parameters(layers, width, vocabulary)
    ranks = 1
    while parameters * (whole + each / ranks) > room_bytes and ranks < MOST_GPUS:
        ranks *= 2
    return ranks if round_up else max(ranks // 2, 1)


def _without_copies(precision: str, optimizer: str) -> dict[str, int]:
    in_16_bit = {"weights": 2, "gradients": 2, "states": 2 * STATES[optimizer]}
    return bytes_per_parameter(precision, optimizer) | (in_16_bit if precision == COPIED else {})


def _autocast_in_16_bit(precision: str, optimizer: str) -> dict[str, int]:
    in_16_bit = {"weights": 2, "gradients": 2} if PRECISIONS[precision].autocast else {}
    return bytes_per_parameter(precision, optimizer) | in_16_bit


def _case(
    precision: str,
    optimizer: str,
    times: float,
    layers: int = 2,
    width: int = 512,
    vocabulary: int = 4096,
) -> Config:
    """Return a case in which states are `times` as large as what a GPU has for them."""
    parts = {**bytes_per_parameter(precision, optimizer), "casts": 0}
    states_bytes = _parameters(layers, width, vocabulary) * sum(parts.values())
    return {
        "layers": layers,
        "width": width,
        "vocabulary": vocabulary,
        "precision": precision,
        "optimizer": optimizer,
        "room_bytes": round(states_bytes / times),
    }


def _hidden_fewest(random: Random) -> list[Config]:
    return [
        _case(
            precision,
            optimizer,
            # More than a power of two, and less than the next by what a mistake leaves out.
            random.choice((2, 4)) * random.uniform(1.05, 1.2),
            random.randrange(1, 4),
            64 * random.randrange(4, 9),
            1024 * random.randrange(1, 9),
        )
        for precision, optimizer in (
            ("float32", "adamw"),
            ("autocast bfloat16", "adamw"),
            ("pure bfloat16", "adamw"),
            (COPIED, "adamw"),
            (COPIED, "sgd with momentum"),
        )
    ]


FEWEST = Predict(
    name="fewest_gpus",
    points=3,
    minutes=15,
    visible=(
        _case("float32", "adamw", 0.9),
        _case("float32", "adamw", 4.1),
        _case("autocast bfloat16", "adamw", 4.2),
        _case(COPIED, "adamw", 2.2),
        _case("pure bfloat16", "sgd", 2.1),
    ),
    hidden=_hidden_fewest,
    measure=_measure_fewest,
    mistakes=of(
        _fewest,
        (
            "You counted autocast's weights and gradients as 16 bit. Autocast casts for each "
            "product; weights and gradients stay in float32.",
            {"bytes_of": _autocast_in_16_bit},
        ),
        (
            "You left out the master weights, or counted the optimizer states as 16 bit. With "
            "master weights the optimizer works in float32: 4 bytes for the copy, and 4 for each "
            "state.",
            {"bytes_of": _without_copies},
        ),
        (
            "You left out the gradients. At the end of the backward pass all of them are "
            "allocated.",
            {"left_out": ["gradients"]},
        ),
        ("You left out the optimizer states.", {"left_out": ["states"]}),
        (
            "You sharded only the optimizer states, as ZeRO-1 does. ZeRO-3 shards weights and "
            "gradients, too.",
            {"undivided": ["weights", "gradients"]},
        ),
        (
            "You rounded down. With the next smaller power of two, a GPU needs more memory than "
            "it has.",
            {"round_up": False},
        ),
    ),
)


# largest_micro_batch: from two peaks

LONG = 2048
"""Tokens of a sequence: so many that the loss is the peak for one sequence already, and peaks lie
on a line."""


def _observe_peaks(
    layers: int, width: int, vocabulary: int, share: int, fits: int, between: float
) -> Observation:
    """Simulate every micro-batch that divides a share, on one of two ranks under DDP.

    Args:
        layers: of the model.
        width: of the model.
        vocabulary: of the model.
        share: sequences of a step on each rank.
        fits: the largest micro-batch that fits; less than the share.
        between: how far the limit is from its peak to that of the next one, from 0 to 1.
    """
    plan = Plan(
        _sizes(layers, width, vocabulary),
        A100.name,
        batch=2 * share,
        sequence=LONG,
        precision="float32",
        implementation="fused",
        attention="efficient",
        data=2,
    )
    after = next(size for size in _divisors(share) if size > fits)
    peaks = {
        size: simulate(plan.but(micro_batch=size, batch=2 * size)).blocks_bytes
        for size in sorted({1, 2, fits, after})
    }
    limit_bytes = round(peaks[fits] + between * (peaks[after] - peaks[fits]))
    evidence = {
        "one_bytes": peaks[1],
        "two_bytes": peaks[2],
        "share": share,
        "limit_bytes": limit_bytes,
    }
    return Observation(evidence, fits)


def _divisors(share: int) -> list[int]:
    return [size for size in range(1, share + 1) if share % size == 0]


def _fitting(one_bytes: int, two_bytes: int, limit_bytes: int) -> int:
    """Sequences that fit, whether they divide a share or not."""
    return 1 + (limit_bytes - one_bytes) // (two_bytes - one_bytes)


def _largest(
    one_bytes: int,
    two_bytes: int,
    share: int,
    limit_bytes: int,
    *,
    proportional: bool = False,
    sizes: Callable[[int], list[int]] = _divisors,
) -> int:
    """Return the answer or a mistaken one: which sizes are tried, and how many sequences fit."""
    fits = limit_bytes // one_bytes
    if not proportional:
        fits = _fitting(one_bytes, two_bytes, limit_bytes)
    return max((size for size in sizes(share) if size <= fits), default=1)


def _hidden_peaks(random: Random) -> list[Config]:
    cases: list[Config] = []
    for share in (12, 20, 18):
        fits = random.choice([size for size in _divisors(share)[1:-1] if size > 2])
        cases.append(
            {
                "layers": random.randrange(3, 6),
                "width": 64 * random.randrange(6, 9),
                "vocabulary": 1024 * random.randrange(8, 13),
                "share": share,
                "fits": fits,
                "between": random.uniform(0.6, 0.95),
            }
        )
    return cases


LARGEST = Diagnose(
    name="largest_micro_batch",
    points=2,
    minutes=10,
    visible=(
        {
            "layers": 4,
            "width": 512,
            "vocabulary": 8192,
            "share": 12,
            "fits": 6,
            "between": 0.9,
        },
        {
            "layers": 3,
            "width": 512,
            "vocabulary": 9216,
            "share": 12,
            "fits": 4,
            "between": 0.89,
        },
        {
            "layers": 1,
            "width": 256,
            "vocabulary": 16384,
            "share": 16,
            "fits": 4,
            "between": 0.5,
        },
    ),
    hidden=_hidden_peaks,
    observe=_observe_peaks,
    mistakes=of(
        _largest,
        (
            "You took the whole peak as the cost of one sequence. Part of it does not depend on "
            "the batch: the two peaks show how much.",
            {"proportional": True},
        ),
        Mistake(
            "That many sequences would fit, but they do not divide a GPU's part of the batch. All "
            "micro-batches must have the same size.",
            lambda one_bytes, two_bytes, share, limit_bytes: _fitting(
                one_bytes, two_bytes, limit_bytes
            ),
        ),
        (
            "You considered only powers of two. Every divisor of a GPU's part of the batch is "
            "possible.",
            {"sizes": lambda share: [size for size in _divisors(share) if size & (size - 1) == 0]},
        ),
    ),
)


# best_change: from what came and went in a step

MARGIN = 1.3
"""How much more other plans take than the one that is looked for, at least: so much that a closed
form can choose cases."""

CHANGES = ("ZeRO-3", "checkpoints", "half the micro-batch")


def _observe_changes(
    layers: int, width: int, vocabulary: int, micro_batch: int, ranks: int
) -> Observation:
    """Record a step under DDP, simulate each change, and see which one lowers the peak most."""
    plan = _changed_plan(layers, width, vocabulary, micro_batch, ranks)
    peaks = {
        change: simulate(changed).blocks_bytes for change, changed in _changes_of(plan).items()
    }
    evidence = {
        "trace": _trace_of_step(plan),
        "states_bytes": _states_bytes(plan),
        "logits_bytes": _logits_bytes(plan),
        "ranks": ranks,
    }
    return Observation(evidence, min(peaks, key=peaks.__getitem__))


def _trace_of_step(plan: Plan) -> Trace:
    """Record forward and backward of a third step: in its second one DDP arranges its buckets."""
    from vramlab.planner.program import Training, first_rank_of

    with A100.attached(), first_rank_of(plan) as mesh:
        training = Training(plan, mesh)
        for _ in range(2):
            training.step()
        return trace_of(training.forward_and_backward)


def _changed_plan(layers: int, width: int, vocabulary: int, micro_batch: int, ranks: int) -> Plan:
    return Plan(
        _sizes(layers, width, vocabulary),
        A100.name,
        batch=2 * micro_batch * ranks,
        micro_batch=micro_batch,
        sequence=1024,
        precision="float32",
        implementation="fused",
        attention="efficient",
        data=ranks,
    )


def _changes_of(plan: Plan) -> dict[str, Plan]:
    return {
        "ZeRO-3": plan.but(zero=3),
        "checkpoints": plan.but(checkpointing="full"),
        "half the micro-batch": plan.but(micro_batch=plan.at_a_time // 2, batch=plan.batch // 2),
    }


def _states_bytes(plan: Plan) -> int:
    return 16 * plan.transformer.parameters()  # float32: weight, gradient, two states


def _logits_bytes(plan: Plan) -> int:
    return plan.run.rows_bytes(plan.transformer.vocabulary, "float32")


def _loss_bytes(plan: Plan) -> int:
    """Return what the loss holds when most is there in the backward pass, beside the layers.

    Not at the peak: in its second step DDP has two sets of buckets for a moment.
    """
    moments = largest_moments(plan).items()
    backward = [moment for place, moment in moments if place.startswith("backward")]
    most = max(backward, key=lambda moment: moment.total_bytes).bytes_by_category
    return most["activations"] + most["temporaries"] - _layers_bytes(plan)


def _about_loss_bytes(plan: Plan) -> int:
    """Return the same by formula, to choose cases: what the head saves, and logits' gradients."""
    return sum(head_kept(plan.transformer, plan.run).values()) + 2 * _logits_bytes(plan)


def _layers_bytes(plan: Plan) -> int:
    return plan.transformer.layers * layer_kept_bytes(plan.transformer, plan.run)


def _about(plan: Plan) -> dict[str, Any]:
    """Return what a trace tells, in closed form: to choose cases."""
    return {
        "states_bytes": _states_bytes(plan),
        "layers_bytes": _layers_bytes(plan),
        "loss_bytes": _about_loss_bytes(plan),
        "ranks": plan.data,
    }


def _told_by(trace: Trace, logits_bytes: int) -> tuple[int, int]:
    """Return what is allocated before the first logits, and what the peak adds to it."""
    totals = [0, *sums(trace)]
    first = next(n for n, entry in enumerate(trace) if entry["size"] == logits_bytes)
    return totals[first], max(totals) - totals[first]


def _saved(
    states_bytes: int,
    layers_bytes: int,
    loss_bytes: int,
    ranks: int,
    *,
    zero_leaves: bool = True,
    checkpoints_loss: bool = False,
    halves_loss: bool = True,
) -> dict[str, float]:
    """Estimate what each change saves; or, mistaken: what ZeRO-3 leaves, and what happens to
    the loss."""
    return {
        "ZeRO-3": states_bytes * (ranks - 1) / ranks if zero_leaves else states_bytes,
        "checkpoints": layers_bytes + (loss_bytes if checkpoints_loss else 0),
        "half the micro-batch": (layers_bytes + (loss_bytes if halves_loss else 0)) / 2,
    }


def _best(**parts: Any) -> str:
    saved = _saved(**parts)
    return max(saved, key=saved.__getitem__)


def _best_by_trace(
    trace: Trace, states_bytes: int, logits_bytes: int, ranks: int, **mistaken: bool
) -> str:
    """Return the answer, or a mistaken one."""
    layers_bytes, loss_bytes = _told_by(trace, logits_bytes)
    return _best(
        states_bytes=states_bytes,
        layers_bytes=layers_bytes,
        loss_bytes=loss_bytes,
        ranks=ranks,
        **mistaken,
    )


def _by_largest(trace: Trace, states_bytes: int, logits_bytes: int, ranks: int) -> str:
    return "ZeRO-3" if states_bytes > sum(_told_by(trace, logits_bytes)) else "checkpoints"


def _hidden_changes(random: Random) -> list[Config]:
    """For each answer one, in which it saves clearly more than the others; and one of two ranks, in
    which it looks otherwise to who lets ZeRO-3 take all states away."""
    cases = [
        next(case for case in _draw_changes(random) if _is_clear(case, answer))
        for answer in (*CHANGES, "half the micro-batch")
    ]
    misleading = (
        case
        for case in _draw_changes(random, ranks=(2,))
        if any(_is_clear(case, answer) for answer in CHANGES) and _is_taken_for_zero(case)
    )
    return [*cases, next(misleading)]


def _draw_changes(random: Random, ranks: Sequence[int] = (2, 2, 4, 8)) -> Iterator[Config]:
    while True:
        yield {
            "layers": random.randrange(1, 5),
            "width": 256 * random.randrange(2, 9),
            "vocabulary": 512 * random.randrange(9, 129, 2),  # no layer is as wide
            "micro_batch": 2 * random.randrange(1, 9),
            "ranks": random.choice(ranks),
        }


def _is_taken_for_zero(case: Config) -> bool:
    """Return whether ZeRO-3 would help most if it took all states away, and does not."""
    parts = _about(_changed_plan(**case))
    mistaken = _saved(**parts, zero_leaves=False)
    return _best(**parts) != "ZeRO-3" == max(mistaken, key=mistaken.__getitem__)


def _is_clear(case: Mapping[str, int], answer: str) -> bool:
    """Whether a change helps most, and the next one leaves much more of the peak."""
    plan = _changed_plan(**case)
    about = {name: about_bytes(changed) for name, changed in _changes_of(plan).items()}
    first, second, _ = sorted(about, key=about.__getitem__)
    by_hand = _best(**_about(plan))
    return first == by_hand == answer and about[second] >= MARGIN * about[first]


BEST = Diagnose(
    name="best_change",
    points=3,
    minutes=20,
    visible=(
        {"layers": 4, "width": 1024, "vocabulary": 4608, "micro_batch": 8, "ranks": 2},
        {"layers": 1, "width": 512, "vocabulary": 33280, "micro_batch": 8, "ranks": 2},
        {"layers": 4, "width": 2048, "vocabulary": 4608, "micro_batch": 2, "ranks": 8},
        {"layers": 4, "width": 1536, "vocabulary": 5632, "micro_batch": 4, "ranks": 2},
    ),
    hidden=_hidden_changes,
    observe=_observe_changes,
    mistakes=of(
        _best_by_trace,
        Mistake(
            "You chose by the largest term. What counts is how much of it a change saves: ZeRO-3 "
            "leaves each rank its shard, and checkpointing does not reduce the loss's memory.",
            _by_largest,
        ),
        (
            "You let ZeRO-3 remove all optimizer states. Each rank keeps its shard of them.",
            {"zero_leaves": False},
        ),
        (
            "You let checkpointing remove everything that is allocated at the peak. It saves "
            "activations of the layers, which were allocated before the logits; the rest belongs "
            "to the loss.",
            {"checkpoints_loss": True},
        ),
        (
            "You halved only the layers' part. Half the micro-batch halves everything that "
            "depends on the batch, including the loss's part.",
            {"halves_loss": False},
        ),
    ),
)


# backward: pieces, and checkpoints

WIDTH, WORDS, LAYERS = 256, 2048, 24
LEAST_ROWS = 256
"""Of a piece; fewer would leave a GPU idle."""
ROOM_BYTES = 2 * MIB
SAME = 1e-4


def _own_backward(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Solve the task."""
    from torch.utils.checkpoint import checkpoint

    pieces = len(inputs) // LEAST_ROWS
    for x, words in zip(inputs.tensor_split(pieces), targets.tensor_split(pieces), strict=True):
        rows = len(x)
        for layer in model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        loss = torch.nn.functional.cross_entropy(model.head(x), words)
        (loss * rows / len(inputs)).backward()
        del x, loss


def _whole_backward(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Run the original program."""
    torch.nn.functional.cross_entropy(model.head(model.layers(inputs)), targets).backward()


def _model_and_data(run: Run, rows: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Note how many rows the head's weight is multiplied with at a time."""
    torch.manual_seed(rows)
    model = torch.nn.Module()
    model.layers = torch.nn.Sequential(
        *(
            torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.GELU())
            for _ in range(LAYERS)
        )
    )
    model.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
    with torch.no_grad():
        for weight in model.layers.parameters():
            weight.mul_(2.7)  # so that outputs do not vanish over many layers
    model.to("cuda")
    run.work.watchers.append(partial(_note_rows, run.noted, _memory_of(model.head.weight)))
    inputs, targets = torch.randn(rows, WIDTH), torch.randint(WORDS, (rows,))
    # Rows differ from piece to piece, so that it shows who is counted too much.
    inputs *= torch.linspace(0.5, 2, rows)[:, None]
    return model, inputs.to("cuda"), targets.to("cuda")


def _note_rows(
    noted: list[int], weight: int, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Note the rows of a product with a weight, called by a module or a function."""
    tensors = [tensor for tensor in args if isinstance(tensor, torch.Tensor)]
    others = [tensor for tensor in tensors if _memory_of(tensor) != weight]
    if len(others) < len(tensors) and others and others[-1].shape[-1:] == (WIDTH,):
        noted.append(others[-1].numel() // WIDTH)


def _memory_of(tensor: torch.Tensor) -> int:
    """Return what tells the memory of a tensor from that of others, as long as it is there."""
    return int(tensor.untyped_storage()._cdata)


def _which_term(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated. Its pieces have had "
        f"{run.noted or 'no'} rows. Which term is largest now: the layers' activations or the "
        "logits?"
    )


def _same_gradients(run: Run, expected: Gradients) -> None:
    least = min(run.noted, default=0)
    if sum(run.noted) < run.case["rows"]:
        raise NotFixed(
            f"It fits, but only {sum(run.noted)} of {run.case['rows']} rows have been multiplied "
            "with the weight of model.head."
        )
    if least < LEAST_ROWS:
        raise NotFixed(
            f"It fits, but the head computes {least} rows at a time. Use at least {LEAST_ROWS}: "
            "fewer leave a GPU idle."
        )
    try:
        require_gradients(run.results, expected, SAME)
    except NotFixed as error:
        raise NotFixed(
            f"{error} Does every row count equally, whichever piece it is in?"
        ) from error


BACKWARD = Fix(
    name="backward",
    points=3,
    minutes=20,
    visible=({"rows": 1024}, {"rows": 1101}),
    hidden=lambda random: [{"rows": 1024 + random.randrange(20, 200)}],
    trial=Repair(
        gpu=A100.but(values=True),
        build=_model_and_data,
        reference=_whole_backward,
        fits=_own_backward,
        limit=room(ROOM_BYTES),
        ran_out=_which_term,
        collect=collect_gradients,
        compare=_same_gradients,
    ),
)


# choose: the cheapest plan that fits

OPTIONS = ("zero", "micro_batch", "checkpointing")


@dataclass(frozen=True)
class Problem:
    """A model, sequences and GPUs."""

    layers: int
    width: int
    vocabulary: int
    share: int
    """Sequences of a step, for each GPU."""
    ranks: int

    @property
    def plan(self) -> Plan:
        """The cheapest: all at once, nothing divided."""
        return Plan(
            _sizes(self.layers, self.width, self.vocabulary),
            A100.name,
            batch=self.share * self.ranks,
            sequence=1024,
            precision="float32",
            implementation="fused",
            attention="efficient",
            data=self.ranks,
        )

    def plans(self) -> list[Plan]:
        """Give all that may be chosen, the cheapest first."""
        ways = product(("none", "full"), (0, 3), reversed(_divisors(self.share)))
        return [
            self.plan.but(checkpointing=checkpointing, zero=zero, micro_batch=micro_batch)
            for checkpointing, zero, micro_batch in ways
        ]

    def facts(self, loss_bytes: Callable[[Plan], int] = _loss_bytes) -> dict[str, int]:
        """Give what steps 1 and 2 of the lesson find."""
        one = self.plan.but(micro_batch=1, batch=self.ranks)
        sizes = one.transformer
        inputs = one.but(checkpointing="full").run
        return {
            "layers": self.layers,
            "states_bytes": 16 * sizes.parameters(),
            "layers_bytes": _layers_bytes(one),
            "inputs_bytes": sizes.layers * layer_kept_bytes(sizes, inputs),
            "loss_bytes": loss_bytes(one),
            # embedding and head, and three layers
            "gathered_bytes": 4 * (2 * sizes.vocabulary * sizes.width + 3 * 12 * sizes.width**2),
            "share": self.share,
            "ranks": self.ranks,
        }


def _by_hand(facts: Mapping[str, int], plan: Plan) -> float:
    """Return a plan's peak from the facts: what a good answer adds up."""
    states = facts["states_bytes"]
    if plan.zero:
        states = states // facts["ranks"] + facts["gathered_bytes"]
    kept = facts["layers_bytes"] + facts["loss_bytes"]
    if plan.checkpointing == "full":
        again = facts["layers_bytes"] // facts["layers"]
        kept = facts["inputs_bytes"] + max(again, facts["loss_bytes"])
    return states + plan.at_a_time * kept


def _case_of(problem: Problem, kind: tuple[str, int]) -> Config | None:
    """Return a case whose cheapest plan is of a kind, by a margin, if the problem has one.

    Args:
        problem: in question.
        kind: checkpointing, and the stage of ZeRO.
    """
    facts = problem.facts(_about_loss_bytes)
    cheaper, cheaper_by_hand = float("inf"), float("inf")
    for plan in problem.plans():
        peak, by_hand = about_bytes(plan), _by_hand(facts, plan)
        limit_bytes = sqrt(peak * cheaper)
        is_clear = cheaper > MARGIN * peak and by_hand < 0.95 * limit_bytes < cheaper_by_hand
        if (plan.checkpointing, plan.zero) == kind and cheaper < float("inf") and is_clear:
            return {**vars(problem), "limit_bytes": round(limit_bytes)}
        cheaper, cheaper_by_hand = min(cheaper, peak), min(cheaper_by_hand, by_hand)
    return None


def _is_below(plan: Plan, limit_bytes: int) -> bool:
    """Return whether a plan's peak is below a limit, by a formula if it is far from it."""
    about = about_bytes(plan)
    if about > MARGIN * limit_bytes or limit_bytes > MARGIN * about:
        return about < limit_bytes
    return estimate(plan).peak_bytes < limit_bytes


def _price(plan: Plan) -> tuple[bool, int, int]:
    """To be compared: checkpoints cost most, then ZeRO-3, then small micro-batches."""
    return plan.checkpointing != "none", plan.zero, -plan.at_a_time


def _chosen_plan(answer: Callable[..., Any], limit_bytes: int, **sizes: int) -> Plan:
    """Return the plan with the options that are answered.

    Raises:
        NotFixed: they are none.
    """
    problem = Problem(**sizes)
    answered: Any = as_data(answer(**problem.facts(), limit_bytes=limit_bytes))
    if not isinstance(answered, dict) or set(answered) != set(OPTIONS):
        raise NotFixed(f"It has to return a dict with the keys {', '.join(OPTIONS)}.")
    zero, micro_batch, checkpointing = (answered[name] for name in OPTIONS)
    if (zero := whole(zero)) not in (0, 3):
        raise NotFixed(f"zero is {answered['zero']!r}; it has to be 0 or 3.")
    if not is_one_of(checkpointing, ("none", "full")):
        raise NotFixed(f"checkpointing is {checkpointing!r}; it has to be 'none' or 'full'.")
    if (micro_batch := whole(micro_batch)) not in _divisors(problem.share):
        raise NotFixed(
            f"micro_batch is {answered['micro_batch']!r}; it has to divide a GPU's part of the "
            f"batch, {problem.share} sequences."
        )
    return problem.plan.but(zero=zero, micro_batch=micro_batch, checkpointing=checkpointing)


def _in_words(plan: Plan) -> str:
    zero = "ZeRO-3" if plan.zero else "DDP"
    checkpoints = "checkpoints" if plan.checkpointing == "full" else "no checkpoints"
    return f"{zero}, {plan.at_a_time} at a time, {checkpoints}"


def _two_steps(run: Run) -> None:
    from vramlab.planner.program import Training, first_rank_of

    plan = run.program
    # Two micro-batches hold all that more of them do.
    short = plan.but(batch=min(2, plan.micro_batches) * plan.at_a_time * plan.ranks)
    with first_rank_of(short) as mesh:
        training = Training(short, mesh)
        training.step()
        training.step()
        del training


def _left_out(run: Run) -> str:
    return (
        f"{run.ran_out} with {_in_words(run.program)}, with {format_bytes(run.peak_bytes)} "
        "allocated. What is largest there, and what have you left out?"
    )


def _cheapest(run: Run, expected: object) -> None:
    limit_bytes, plan = run.limit_bytes, run.program
    sizes = {name: size for name, size in run.case.items() if name != "limit_bytes"}
    plans = Problem(**sizes).plans()
    cheapest = next(other for other in plans if _is_below(other, limit_bytes))
    if _price(plan) > _price(cheapest):
        raise NotFixed(f"{_in_words(plan)}: it fits. {_too_much(plan, cheapest)}")


def _too_much(plan: Plan, cheapest: Plan) -> str:
    """Name what the plan does not need."""
    if plan.checkpointing != cheapest.checkpointing:
        return "A cheaper plan also fits: one without checkpointing."
    if plan.zero != cheapest.zero:
        return "A cheaper plan also fits: one without ZeRO."
    return "A cheaper plan also fits: one with larger micro-batches."


def _hidden_choose(random: Random) -> list[Config]:
    """Return a case for each kind of plan, from models of a form that has such a case."""
    cases: list[Config] = []
    for kind, layers, widths, ranks in (
        (("none", 0), 4, (4, 9), 4),
        (("none", 3), 4, (6, 9), 8),
        (("full", 3), 8, (3, 5), 8),
    ):
        case = None
        while case is None:
            width, vocabulary = 256 * random.randrange(*widths), 2048 * random.randrange(1, 4)
            share = random.choice((4, 8, 16))
            case = _case_of(Problem(layers, width, vocabulary, share, ranks), kind)
        cases.append(case)
    return cases


DEEP = {"layers": 8, "width": 1024, "vocabulary": 4096, "share": 8, "ranks": 8}
WIDE = {"layers": 4, "width": 2048, "vocabulary": 4096, "share": 8, "ranks": 8}

CHOOSE = Fix(
    name="choose",
    is_plain=True,
    points=4,
    minutes=25,
    visible=(
        {**DEEP, "limit_bytes": 4900 * MIB},
        {**WIDE, "limit_bytes": 2600 * MIB},
        {**DEEP, "limit_bytes": 750 * MIB},
    ),
    hidden=_hidden_choose,
    trial=Repair(
        gpu=A100,
        accept=_chosen_plan,
        call=_two_steps,
        limit=lambda own: own.case["limit_bytes"],
        ran_out=_left_out,
        compare=_cheapest,
        report=lambda run: f"{_in_words(run.program)}: {run.peak_report}",
    ),
)

EXERCISE = Exercise(
    "23_capstone",
    __name__,
    (FEWEST, LARGEST, BEST, BACKWARD, CHOOSE),
    core=("fewest_gpus", "best_change"),
)
