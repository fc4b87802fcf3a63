"""Exercise 20: what a rank keeps and sends at each stage of ZeRO, and a model to be sharded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from types import FunctionType
from typing import TYPE_CHECKING, Any

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
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import named_parameters_of

if TYPE_CHECKING:
    from vramlab.cuda_rules.collectives import Kind

T4 = GPU("T4")

STAGES = {"DDP": 0, "ZeRO-1": 1, "ZeRO-2": 2, "ZeRO-3": 3}


# kept_bytes: what a rank keeps between steps


def _measure_kept(stage: str, layers: int, width: int, ranks: int, rank: int) -> int:
    from vramlab_course.lessons.l20_zero.experiment import read_kept

    number = STAGES[stage]
    return read_kept(number, ranks, rank, layers=layers, width=width)  # type: ignore[arg-type]


def _rows(width: int, ranks: int, rank: int) -> tuple[int, int]:
    """Rows that a rank has, and rows that it has memory for."""
    each = -(-width // ranks)
    return max(min(width - rank * each, each), 0), each


def _kept(
    stage: str,
    layers: int,
    width: int,
    ranks: int,
    rank: int,
    *,
    even: bool = False,
    whole: bool = True,
    pad_states: bool = False,
    pad: bool = True,
) -> int:
    """Return the answer or a mistaken one: for naming mistakes, not for grading.

    Args:
        stage: as in the task; and so on.
        even: shards are a fraction of the rows, to the last bit.
        whole: ZeRO-1 deals out whole layers.
        pad_states: states are made for rows that are not there.
        pad: shards have memory for rows that are not there.
    """
    layer = 4 * width * width
    if stage == "DDP":
        return 16 // 4 * layers * layer
    if stage == "ZeRO-1":
        own = layers // ranks + (rank < layers % ranks)
        states = 2 * own * layer if whole else 2 * layers * layer // ranks
        return 2 * layers * layer + states
    if even:
        return 4 * layers * layer // ranks
    rows, each = _rows(width, ranks, rank)
    shard, states = (each if pad else rows), (each if pad_states else rows)
    return layers * 4 * width * (2 * shard + 2 * states)


def _kept_by_the_paper(stage: str, layers: int, width: int, ranks: int, rank: int) -> int:
    """Return what the paper's stages keep: parts divided evenly, parameters in stage 3 only."""
    parts = [4 * layers * width * width] * 4  # two states, gradients, parameters
    divided = {"DDP": 0, "ZeRO-1": 2, "ZeRO-2": 3, "ZeRO-3": 4}[stage]
    return sum(parts[divided:]) + sum(parts[:divided]) // ranks


def _kept_cases(random: Random) -> list[Config]:
    cases: list[Config] = []
    for stage in STAGES:
        ranks = random.choice((3, 5, 6, 7, 9, 10, 11))  # which do not divide the rows
        layers = random.randrange(ranks + 1, ranks + 4) if stage == "ZeRO-1" else 2
        places = [(ranks, 0), (ranks, ranks - 1)]
        if STAGES[stage] > 1:
            places[0] = 8, random.randrange(8)  # which divide the rows
        for count, rank in places:
            width = 128 * random.randrange(1, 4)
            cases.append(
                {"stage": stage, "layers": layers, "width": width, "ranks": count, "rank": rank}
            )
    # 256 rows, 24 ranks: 11 each, the last has 3.
    cases[-1] = {"stage": "ZeRO-3", "layers": 1, "width": 256, "ranks": 24, "rank": 23}
    return cases


KEPT = Predict(
    name="kept_bytes",
    points=4,
    minutes=25,
    visible=(
        {"stage": "DDP", "layers": 3, "width": 256, "ranks": 4, "rank": 1},
        {"stage": "ZeRO-1", "layers": 3, "width": 256, "ranks": 2, "rank": 0},
        {"stage": "ZeRO-1", "layers": 3, "width": 256, "ranks": 4, "rank": 3},
        {"stage": "ZeRO-2", "layers": 2, "width": 256, "ranks": 10, "rank": 0},
        {"stage": "ZeRO-3", "layers": 2, "width": 256, "ranks": 10, "rank": 9},
        {"stage": "ZeRO-3", "layers": 1, "width": 128, "ranks": 4, "rank": 3},
    ),
    hidden=_kept_cases,
    measure=_measure_kept,
    gpu=T4,
    mistakes=of(
        _kept,
        (
            "You divided the shards evenly. FSDP2 shards whole rows, so the last ranks have fewer.",
            {"even": True},
        ),
        (
            "You divided ZeRO-1's optimizer states evenly. ZeroRedundancyOptimizer assigns whole "
            "parameters to ranks.",
            {"whole": False},
        ),
        Mistake(
            "You used the paper's formula, in which everything is divided evenly. PyTorch's stage "
            "1 assigns whole parameters to ranks; FSDP2, its stages 2 and 3, shards whole rows, "
            "and between two steps parameters are sharded in stage 2 as well.",
            _kept_by_the_paper,
        ),
        (
            "You divided states and shards evenly. ZeroRedundancyOptimizer assigns whole "
            "parameters to ranks, and FSDP2 shards whole rows.",
            {"whole": False, "even": True},
        ),
        (
            "You counted optimizer states for padding rows. Only tensors in collectives are "
            "padded: parameters and gradients.",
            {"pad_states": True},
        ),
        (
            "You counted only the rows that a rank owns. Shards of parameters and gradients go "
            "through collectives, so all are padded to the first rank's number of rows.",
            {"pad": False},
        ),
    ),
)


# sent_bytes: what a rank sends in a step


def _measure_sent(stage: str, layers: int, width: int, ranks: int) -> int:
    from vramlab.measure.collectives import record_collectives
    from vramlab_course.lessons.l20_zero.experiment import rank_alone
    from vramlab_course.lessons.l20_zero.zero import ZeroTraining

    with rank_alone(0, ranks):
        training = ZeroTraining(STAGES[stage], layers, width)  # type: ignore[arg-type]
        training.step()
        training.step()  # DDP has arranged its buckets by now
        with record_collectives() as collectives:
            training.step()
    return collectives.sent_bytes


def _sent(
    stage: str,
    layers: int,
    width: int,
    ranks: int,
    *,
    pad: bool = True,
    times: Mapping[str, int] | None = None,
    broadcast: bool = True,
    ring: bool = True,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        stage: as in the task; and so on.
        pad: FSDP2 sends rows that pad the shards.
        times: how often parameters or gradients go around, by stage.
        broadcast: ZeRO-1 sends updated parameters as well.
        ring: a rank keeps its own part, which it need not send.
    """
    rows = -(-width // ranks) * ranks if pad and stage in ("ZeRO-2", "ZeRO-3") else width
    whole = layers * 4 * width * rows
    around = (ranks - 1) * whole // ranks if ring else whole
    often = {"DDP": 2, "ZeRO-1": 2, "ZeRO-2": 2, "ZeRO-3": 3} | dict(times or {})
    return often[stage] * around + (whole if stage == "ZeRO-1" and broadcast else 0)


SENT = Predict(
    name="sent_bytes",
    points=3,
    minutes=20,
    visible=(
        {"stage": "DDP", "layers": 2, "width": 256, "ranks": 4},
        {"stage": "ZeRO-1", "layers": 2, "width": 256, "ranks": 4},
        {"stage": "ZeRO-2", "layers": 2, "width": 256, "ranks": 4},
        {"stage": "ZeRO-3", "layers": 2, "width": 256, "ranks": 4},
        {"stage": "ZeRO-3", "layers": 2, "width": 256, "ranks": 3},
    ),
    hidden=lambda random: [
        {
            "stage": stage,
            "layers": random.randrange(1, 4),
            "width": 128 * random.randrange(1, 4),
            # DDP's pieces are whole bytes where the ranks divide everything.
            "ranks": random.choice((3, 5, 6, 7) if rest else (2, 8, 16)),
        }
        for stage in STAGES
        for rest in ((False, True) if STAGES[stage] > 1 else (False,))
    ],
    measure=_measure_sent,
    gpu=T4,
    mistakes=of(
        _sent,
        (
            "You left out the rows that pad the shards. They are sent like all others.",
            {"pad": False},
        ),
        (
            "You counted one all-gather of the parameters under ZeRO-3. After the forward pass "
            "they are freed, so the backward pass gathers them again.",
            {"times": {"ZeRO-3": 2}},
        ),
        (
            "You used the paper's ZeRO-1. In PyTorch, DDP all-reduces all gradients to all ranks, "
            "and then each rank broadcasts the parameters that it has updated.",
            {"broadcast": False},
        ),
        (
            "You sent a rank's own part, too. Around a ring of N ranks, each sends N - 1 of N "
            "parts.",
            {"ring": False},
        ),
    ),
)


# which_stage: told from what a rank measured


def _observe_stage(stage: str, layers: int, width: int, ranks: int) -> Observation:
    """Read one rank of many, in float32 with AdamW.

    Args:
        stage: one of `STAGES`.
        layers: how many.
        width: of each, a multiple of the ranks.
        ranks: how many there are.
    """
    from vramlab_course.lessons.l20_zero.experiment import read_rank

    reading = read_rank(STAGES[stage], ranks, layers=layers, width=width)  # type: ignore[arg-type]
    readings = {
        "parameters": reading.parameters,
        "ranks": ranks,
        "kept": reading.kept_bytes,
        "added by forward": reading.after_forward_bytes,
        "sent": reading.collectives.sent_bytes,
    }
    return Observation({"readings": readings}, stage)


def _by_traffic(readings: Mapping[str, int], two: str) -> str:
    """Return the stage by what is sent alone; `two` where parameters go around about twice."""
    around = (readings["ranks"] - 1) / readings["ranks"] * 4 * readings["parameters"]
    return two if readings["sent"] < 2.5 * around else "ZeRO-3"


def _by_kept(readings: Mapping[str, int], divided: str) -> str:
    """Return the stage by what is kept alone."""
    each = readings["kept"] / readings["parameters"]
    if each > 15:
        return "DDP"
    return "ZeRO-1" if each > 8 else divided


WHICH = Diagnose(
    name="which_stage",
    points=3,
    minutes=10,
    visible=tuple({"stage": stage, "layers": 4, "width": 512, "ranks": 4} for stage in STAGES),
    hidden=lambda random: [
        {
            "stage": stage,
            "layers": random.randrange(4, 7),
            "width": 128 * random.randrange(2, 5),
            "ranks": random.choice((4, 8)),
        }
        for stage in STAGES
    ],
    observe=_observe_stage,
    gpu=T4,
    mistakes=(
        *of(
            _by_kept,
            *(
                (
                    "You looked only at what is allocated between steps. There, ZeRO-2 and ZeRO-3 "
                    "are the same.",
                    {"divided": stage},
                )
                for stage in ("ZeRO-3", "ZeRO-2")
            ),
        ),
        *of(
            _by_traffic,
            *(
                (
                    "You looked only at what is sent. Two stages send about three times the "
                    "parameters, and two about twice.",
                    {"two": stage},
                )
                for stage in ("DDP", "ZeRO-2")
            ),
        ),
    ),
)


# shard: a model whose parameters do not fit together

WIDTH, OUTPUTS, RANKS = 512, 64, 8
LAYER_BYTES = 4 * WIDTH * WIDTH


def _model(layers: int) -> torch.nn.Module:
    """Return a stack of layers and a head, by these names, without memory."""
    model = torch.nn.Sequential()
    model.layers = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))
    )
    model.head = torch.nn.Linear(WIDTH, OUTPUTS, bias=False)
    return model.to("meta")


def _reference(model: Any, fully_shard: Callable[..., Any]) -> None:
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=True)
    fully_shard(model)


NEEDED: tuple[Kind, ...] = ("all-gather", "reduce-scatter")
"""What brings parameters, and takes gradients away."""


def _step_of_rank(run: Run) -> torch.nn.Module:
    """Be a rank of `RANKS` for a step."""
    from vramlab.measure import record_collectives
    from vramlab_course.lessons.l20_zero.experiment import rank_alone, warm_up

    with rank_alone(0, RANKS):
        with run.work.pausing():
            warm_up()
            model = _model(run.case["layers"])
        before = _parts(model)
        run.program(model, _in_order())
        if _parts(model) != before:
            raise NotFixed("The model has different modules or parameters than before.")
        _require_shards(model)
        model.to_empty(device="cuda")
        x = torch.arange(4.0 * WIDTH, device="cuda").remainder(7).reshape(4, WIDTH)
        with record_collectives() as collectives:
            model(x).square().mean().backward()
        run.noted += [
            (kind, sum(call.whole_bytes for call in collectives.of(kind))) for kind in NEEDED
        ]
    return model


def _parts(model: torch.nn.Module) -> list[object]:
    """Return a model's modules, by identity and name, and its parameters, by name and shape."""
    modules = [(name, id(module)) for name, module in model.named_modules()]
    shapes = [(name, tuple(each.shape)) for name, each in named_parameters_of(model)]
    return [*modules, *shapes]


def _in_order() -> Callable[..., Any]:
    """PyTorch's `fully_shard`, which says what is wrong where inner modules come too late."""
    from torch.distributed.fsdp import fully_shard

    done: list[torch.nn.Module] = []

    def shard(module: Any, **options: Any) -> Any:
        modules = module if isinstance(module, list | tuple) else [module]
        inside = [inner for outer in done for inner in outer.modules()]
        if any(each is inner for each in modules for inner in inside):
            raise NotFixed(
                "fully_shard() is called on a module whose parameters are sharded already, as "
                "part of an outer module. Which of the two has to come first?"
            )
        done.extend(modules)
        return fully_shard(module, **options)

    return shard


def _require_shards(model: torch.nn.Module) -> None:
    """Require that every parameter is divided among all ranks, and nothing else is changed."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, OffloadPolicy
    from torch.distributed.tensor import DTensor

    for module in model.modules():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()
            group = state._fsdp_param_group
            kept = group is None or (
                type(group.offload_policy) is OffloadPolicy and group.gradient_divide_factor is None
            )
            if state._mp_policy != MixedPrecisionPolicy() or not kept:
                raise NotFixed(
                    "A precision policy, an offload policy or a gradient divide factor changes "
                    "what is computed, or where. Change only how the model is sharded."
                )

    if changed := _changed_part(model):
        raise NotFixed(
            f"A hook, or a forward() of your own, on {changed} changes what is computed. Change "
            "only how the model is sharded."
        )
    left = [
        name
        for name, parameter in named_parameters_of(model)
        if not isinstance(parameter, DTensor)
        or parameter.device_mesh.size() != RANKS
        or not parameter.placements[0].is_shard()
    ]
    if left:
        raise NotFixed(
            f"{len(left)} parameters are not sharded over all {RANKS} ranks, {left[0]} among "
            "them. Their gradients are not reduced over the ranks, so the ranks would train "
            "different weights."
        )


def _changed_part(model: torch.nn.Module) -> str:
    """Give a part that computes something else than it did, besides what FSDP does; or ""."""
    for name, module in model.named_modules():
        attributes = vars(module)
        hooks = [
            hook
            for key, value in attributes.items()
            if key.endswith(("_hooks", "_pre_hooks"))
            for hook in value.values()
        ]
        if "forward" in attributes or not all(map(_is_of_fsdp, hooks)):
            return name or "the model"
    return next((name for name, each in named_parameters_of(model) if each._backward_hooks), "")


def _is_of_fsdp(hook: Any) -> bool:
    function = getattr(hook, "__func__", hook)
    return isinstance(function, FunctionType) and function.__globals__["__name__"].startswith(
        "torch.distributed.fsdp."
    )


def _held_layers(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated; a layer has "
        f"{format_bytes(LAYER_BYTES)}. How many layers are gathered at the same time, and when "
        "are they freed?"
    )


def _shapes_of_gradients(run: Run, model: torch.nn.Module) -> dict[str, tuple[int, ...] | None]:
    return {
        name: None if parameter.grad is None else tuple(parameter.grad.shape)
        for name, parameter in named_parameters_of(model)
    }


def _whole_step(run: Run, expected: dict[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        if run.results[name] != shape:
            raise NotFixed(
                f"It fits, but the gradient of {name} is {run.results[name]}, not {shape}."
            )
    gradients_bytes = sum(4 * math.prod(shape) for shape in expected.values())
    for kind, sent_bytes in run.noted:
        if sent_bytes < gradients_bytes:
            raise NotFixed(
                f"It fits, but {kind} sends {format_bytes(sent_bytes)}, although all parameters "
                f"have {format_bytes(gradients_bytes)}. Each parameter has to come from the other "
                "ranks, and each gradient has to go there."
            )
    if run.work.flops != run.expected_work.flops:
        raise NotFixed(
            f"It fits, but the step takes {run.work.flops:,} FLOPs; the original model takes "
            f"{run.expected_work.flops:,}."
        )


SHARD = Fix(
    name="shard",
    points=4,
    minutes=20,
    visible=({"layers": 24},),
    hidden=lambda random: [{"layers": random.randrange(25, 32)}],
    # No other rank sends what a simulated rank receives, so there are no values. That the work was
    # done shows in the model, which is the same, in its gradients, and in the FLOPs of the step.
    trial=Repair(
        gpu=T4,
        call=_step_of_rank,
        reference=_reference,
        limit=room(2 * LAYER_BYTES),
        ran_out=_held_layers,
        collect=_shapes_of_gradients,
        compare=_whole_step,
    ),
)


EXERCISE = Exercise(
    "20_zero",
    __name__,
    (KEPT, SENT, WHICH, SHARD),
    core=("kept_bytes", "shard"),
)
