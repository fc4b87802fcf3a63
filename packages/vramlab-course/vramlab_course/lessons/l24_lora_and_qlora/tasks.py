"""Exercise 24: what frozen layers keep, weights of 4 bits, and a program that undoes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import Any

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Observation, Predict
from vramlab_course.tasks.batches import check_order, numbered_batch
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import to_host
from vramlab_course.tasks.weight_changes import require_same_training
from vramlab_course.tasks.workspaces import take_workspaces

T4 = GPU("T4", alloc_conf=NO_RESTS)


# four_bit_bytes: numbers, scales, and scales of scales


def _measure_four_bits(shapes: Sequence[Sequence[int]], block: int, double: bool) -> int:
    from vramlab_course.lessons.l24_lora_and_qlora.four_bits import quantize, quantize_scales

    def keep() -> list[Any]:
        kept: list[Any] = []
        for shape in shapes:
            packed, scales = quantize(torch.zeros(*shape, device="cuda"), block)
            kept += [packed, *(quantize_scales(scales) if double else [scales])]
        return kept

    return growth_bytes(keep)


def _four_bits(
    shapes: Sequence[Sequence[int]],
    block: int,
    double: bool,
    *,
    per_byte: int = 2,
    scales: bool = True,
    mean: bool = True,
    second: bool = True,
    second_block: int | None = 256,
    second_bytes: int = 4,
    first_per_byte: int = 1,
    first_stays: bool = False,
    filled: bool = True,
    rounded: Callable[[int], int] = block_bytes,
    in_all: Callable[[int], int] = int,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        shapes, block, double: as asked.
        per_byte: numbers in a byte.
        scales: whether there are any.
        mean: of the scales, which is taken off before they are quantized.
        second: whether scales have scales.
        second_block: scales that share a scale of theirs; None: as many as numbers share one.
        second_bytes: of a scale of scales.
        first_per_byte: scales in a byte, once they have been quantized.
        first_stays: scales are there in float32, too.
        filled: the last block of scales, which may be short, has a scale.
        rounded: rounds the size of a tensor.
        in_all: rounds the sum.
    """
    total = 0
    for shape in shapes:
        count = prod(shape)
        blocks = count // block
        total += rounded(count // per_byte)
        if not scales:
            continue
        total += rounded(blocks // first_per_byte if double else 4 * blocks)
        if double:
            shared_by = second_block or block
            seconds = -(-blocks // shared_by) if filled else blocks // shared_by
            total += rounded(second_bytes * seconds) if second else 0
            total += rounded(4) if mean else 0
            total += rounded(4 * blocks) if first_stays else 0
    return in_all(total)


def _hidden_four_bits(random: Random) -> list[dict[str, Any]]:
    return [
        {
            "shapes": [
                [64 * random.randrange(3, 40), 64 * random.randrange(3, 40)]
                for _ in range(random.randrange(1, 4))
            ],
            "block": random.choice((32, 64, 128)),
            "double": double,
        }
        for double in (False, True, True, False)
    ] + [
        # So few scales that they are a short block of their own, and so many that theirs are many.
        {"shapes": [[64, 64], [64 * random.randrange(60, 80), 4096]], "block": 64, "double": True}
    ]


FOUR_BITS = Predict(
    name="four_bit_bytes",
    points=3,
    minutes=15,
    visible=(
        {"shapes": [[4096, 4096]], "block": 64, "double": False},
        {"shapes": [[4096, 4096]], "block": 64, "double": True},
        {"shapes": [[1024, 1024], [512, 192]], "block": 32, "double": False},
        {"shapes": [[320, 192], [192, 64]], "block": 128, "double": True},
    ),
    hidden=_hidden_four_bits,
    measure=_measure_four_bits,
    gpu=T4,
    mistakes=of(
        _four_bits,
        ("You counted a byte per number. Two 4-bit numbers share one byte.", {"per_byte": 1}),
        ("You left out the scales.", {"scales": False}),
        (
            "You counted float32 scales in every case. Double quantization stores them in fewer "
            "bits.",
            {"double": False},
        ),
        (
            "You counted a byte per scale in every case. Without double quantization, scales are "
            "float32.",
            {"double": True},
        ),
        (
            "You left out the scales of the scales, which double quantization adds.",
            {"second": False},
        ),
        (
            "You used the same block size for the scales as for the weights. How many scales "
            "share a scale?",
            {"second_block": None},
        ),
        (
            "You left out the last block of scales, which is short. It has a scale, too.",
            {"filled": False},
        ),
        (
            "You counted a byte per scale of scales. The second level is not quantized: what is "
            "its dtype?",
            {"second_bytes": 1},
        ),
        (
            "You counted 4-bit scales, like the weights. Double quantization stores scales in "
            "more bits.",
            {"first_per_byte": 2},
        ),
        (
            "You kept the float32 scales beside the quantized ones. Which operation would read "
            "them?",
            {"first_stays": True},
        ),
        ("You left out the mean of the scales: one number on the GPU.", {"mean": False}),
        ("You left out the rounding: block sizes are multiples of 512 bytes.", {"rounded": int}),
        (
            "You rounded the sum. Each tensor has its own block and is rounded separately.",
            {"rounded": int, "in_all": block_bytes},
        ),
    ),
)


# kept_bytes: what the forward pass of a chain keeps


def _measure_kept(layers: Sequence[str], rows: int, width: int, rank: int) -> int:
    from vramlab_course.lessons.l24_lora_and_qlora.experiment import make_chain

    take_workspaces()
    chain: Any = make_chain(tuple(layers), width, rank)  # type: ignore[arg-type]
    x = torch.zeros(rows, width, device="cuda")
    output_bytes = block_bytes(4 * rows * width)
    return growth_bytes(lambda: chain(x)) - output_bytes


def _kept(
    layers: Sequence[str],
    rows: int,
    width: int,
    rank: int,
    *,
    from_first: bool = True,
    to_last: bool = False,
    frozen_keep: bool = False,
    adapted_keep: int = 1,
    thin: int = 1,
    gelu: bool = True,
    frozen_gelu: bool = True,
    output: bool = False,
    chain_input: bool = False,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        layers, rows, width, rank: as asked.
        from_first: nothing is recorded before the first layer that learns.
        to_last: nothing is recorded behind the last layer that learns.
        frozen_keep: frozen layers keep their inputs.
        adapted_keep: how often an adapted layer keeps its input.
        thin: how many thin tensors it keeps.
        gelu: GELUs keep their inputs.
        frozen_gelu: also those behind frozen layers.
        output: the last output is counted.
        chain_input: so is the first input.
    """
    wide, narrow = block_bytes(4 * rows * width), block_bytes(4 * rows * rank)
    total = wide * output
    recorded = not from_first
    last = max((number for number, layer in enumerate(layers) if layer != "frozen"), default=-1)
    for number, layer in enumerate(layers):
        learns = layer != "frozen"
        recorded = (recorded or learns) and not (to_last and number > last)
        keeps_input = recorded and (learns or frozen_keep) and (number > 0 or chain_input)
        total += wide * keeps_input * (adapted_keep if layer == "adapted" else 1)
        total += wide * (recorded and gelu and (learns or frozen_gelu))
        total += thin * narrow * (layer == "adapted")
    return total


def _hidden_kept(random: Random) -> list[dict[str, Any]]:
    kinds = ("frozen", "adapted", "learns")
    fixed = (
        ["frozen", "frozen", "adapted"],
        ["adapted", "frozen", "frozen", "frozen"],
        ["frozen", "frozen"],
        ["frozen", "learns", "frozen", "adapted"],
        ["learns", "frozen", "learns"],
    )
    drawn = [random.choice(kinds) for _ in range(6)]
    return [
        {
            "layers": layers,
            "rows": 128 * random.randrange(4, 20),
            "width": 128 * random.randrange(2, 6),
            "rank": random.choice((4, 8, 16)),
        }
        for layers in (*fixed, drawn)
    ]


KEPT = Predict(
    name="kept_bytes",
    points=4,
    minutes=20,
    rule=lambda layers, **_: frozenset(layers),
    visible=(
        {"layers": ["learns", "learns", "learns"], "rows": 2048, "width": 512, "rank": 8},
        {"layers": ["adapted", "adapted", "adapted"], "rows": 2048, "width": 512, "rank": 8},
        {"layers": ["adapted", "frozen", "frozen"], "rows": 2048, "width": 512, "rank": 8},
        {"layers": ["frozen", "frozen", "adapted"], "rows": 1024, "width": 256, "rank": 4},
    ),
    hidden=_hidden_kept,
    measure=_measure_kept,
    gpu=T4,
    mistakes=of(
        _kept,
        (
            "You started at the first layer. Before the first trainable layer, autograd records "
            "nothing.",
            {"from_first": False},
        ),
        (
            "You let frozen layers save their inputs. Only the gradient of a weight needs a "
            "layer's input.",
            {"frozen_keep": True},
        ),
        (
            "You stopped at the last trainable layer. How does its gradient get there from the "
            "loss?",
            {"to_last": True},
        ),
        (
            "You left out the input of adapted layers, because the large weight is frozen. What "
            "does the gradient of the adapter's first matrix need?",
            {"adapted_keep": 0},
        ),
        (
            "You let an adapted layer save its input twice. Both paths read the same tensor.",
            {"adapted_keep": 2},
        ),
        ("You left out the adapter's intermediate result, between its two matrices.", {"thin": 0}),
        (
            "You counted two small tensors per adapter. Its second matrix returns a full-width "
            "tensor; which operation would save it?",
            {"thin": 2},
        ),
        (
            "You left out GELU after frozen layers. Does the gradient pass through it?",
            {"frozen_gelu": False},
        ),
        ("You left out GELU, which saves its input, also after a frozen layer.", {"gelu": False}),
        (
            "You counted the chain's output. The question is what is saved besides it.",
            {"output": True},
        ),
        ("You counted the chain's input. It was allocated before.", {"chain_input": True}),
    ),
)


# which_tuning: told from a step's readings

WAYS = ("full", "LoRA", "QLoRA", "QLoRA, weights kept")


def _observe_tuning(way: str, rows: int, width: int, layers: int) -> Observation:
    """Read a step of a chain without GELUs, in bfloat16."""
    from vramlab_course.lessons.l24_lora_and_qlora.adapters import adapt
    from vramlab_course.programs.chains import linear_chain

    take_workspaces()
    names = [str(number) for number in range(layers)]
    before_bytes = torch.cuda.memory_allocated()
    chain: Any = linear_chain(layers, width, device="cuda", dtype=torch.bfloat16)
    if way != "full":
        adapt(
            chain,
            8,
            names,
            four_bits=names if way.startswith("QLoRA") else (),
            keeps_weight=way.endswith("kept"),
        )
    model_bytes = torch.cuda.memory_allocated() - before_bytes
    x = torch.zeros(rows, width, device="cuda", dtype=torch.bfloat16)
    learning = [each for each in chain.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learning)
    held_bytes = torch.cuda.memory_allocated()
    loss = chain(x).sum()
    forward_bytes = torch.cuda.memory_allocated() - held_bytes
    loss.backward()
    del loss
    optimizer.step()
    step_bytes = torch.cuda.memory_allocated() - held_bytes
    readings = {
        "parameters": layers * width * width,
        "model": model_bytes,
        "forward": forward_bytes,
        "gradients and states": step_bytes,
    }
    return Observation({"readings": readings}, way)


def _by_model(readings: dict[str, int]) -> str:
    """Told from what the weights take, and nothing else."""
    each = readings["model"] / readings["parameters"]
    return "QLoRA" if each < 1 else "LoRA"


def _by_step(readings: dict[str, int]) -> str:
    """Told from gradients and states, and nothing else."""
    each = readings["gradients and states"] / readings["parameters"]
    return "full" if each > 4 else "LoRA"


def _by_both(readings: dict[str, int]) -> str:
    """Told without a look at what forward left."""
    return "full" if _by_step(readings) == "full" else _by_model(readings)


WHICH = Diagnose(
    name="which_tuning",
    points=3,
    minutes=15,
    visible=(
        {"way": "full", "rows": 256, "width": 1024, "layers": 4},
        {"way": "LoRA", "rows": 256, "width": 1024, "layers": 4},
        {"way": "QLoRA, weights kept", "rows": 256, "width": 1024, "layers": 4},
    ),
    hidden=lambda random: [
        {
            "way": way,
            "rows": 64 * random.randrange(1, 5),
            "width": 256 * random.randrange(3, 6),
            "layers": random.randrange(3, 7),
        }
        for way in WAYS
    ],
    observe=_observe_tuning,
    gpu=T4,
    mistakes=(
        Mistake(
            "You looked only at the weights. What does the forward pass save?",
            _by_both,
        ),
        Mistake("You did not look at gradients and optimizer states.", _by_model),
        Mistake("You did not look at the memory of the weights.", _by_step),
    ),
)


# train: 4 bits that are 16 again after forward

WIDTH, ROWS, RANK = 512, 8, 4
ROOM_BYTES = 4 * MIB

Frozen = tuple["torch.Tensor", "torch.Tensor"]


def _build(run: Run, layers: int, steps: int) -> tuple[Any, ...]:
    from vramlab_course.lessons.l24_lora_and_qlora import four_bits

    torch.manual_seed(layers)
    frozen, adapters = [], []
    for _ in range(layers):
        weight = torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5
        frozen.append(four_bits.quantize(weight))
        down = torch.randn(RANK, WIDTH, device="cuda") / WIDTH**0.5
        up = torch.randn(WIDTH, RANK, device="cuda") / 8
        adapters.append((down.requires_grad_(), up.requires_grad_()))

    def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return four_bits.dequantize(packed, scales).view(WIDTH, WIDTH)

    load = run.noting(lambda index: numbered_batch(index, ROWS, WIDTH))
    return frozen, adapters, run.ours(dequantize), load, steps


def _train(
    frozen: Sequence[Frozen],
    adapters: Sequence[Frozen],
    dequantize: Callable[..., torch.Tensor],
    load: Callable[[int], torch.Tensor],
    steps: int,
) -> None:
    from torch.utils.checkpoint import checkpoint

    def layer(x: torch.Tensor, packed: Any, scales: Any, down: Any, up: Any) -> torch.Tensor:
        return torch.tanh(x @ dequantize(packed, scales).T + (x @ down.T) @ up.T)

    optimizer = torch.optim.AdamW([each for pair in adapters for each in pair])
    for step in range(steps):
        x = load(step)
        for (packed, scales), (down, up) in zip(frozen, adapters, strict=True):
            x = checkpoint(layer, x, packed, scales, down, up, use_reentrant=False)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _where_it_ended(run: Run) -> str:
    weights_bytes = run.case["layers"] * 4 * WIDTH * WIDTH
    return (
        f"{run.ran_out} in step {len(run.noted)} of {run.case['steps']}, with "
        f"{format_bytes(run.peak_bytes)} allocated. All weights together, in float32, are "
        f"{format_bytes(weights_bytes)}. Which operation saves a dequantized weight, and for "
        "which gradient?"
    )


def _collect(run: Run, returned: object) -> list[torch.Tensor]:
    """Return the adapters."""
    return [to_host(each) for pair in run.inputs[1] for each in pair]


def _compare(run: Run, expected: list[torch.Tensor]) -> None:
    check_order(run.noted, run.case["steps"])
    require_same_training(run.results, expected)


TRAIN = Fix(
    name="train",
    points=5,
    minutes=30,
    visible=({"layers": 12, "steps": 2},),
    hidden=lambda random: [{"layers": random.randrange(12, 19), "steps": 2}],
    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_build,
        reference=_train,
        least_share=0.6,  # a backward pass of one's own computes no layer again: two thirds
        limit=room(ROOM_BYTES),
        allocated_room_bytes=ROOM_BYTES,
        ran_out=_where_it_ended,
        collect=_collect,
        compare=_compare,
    ),
)

EXERCISE = Exercise(
    name="24_lora_and_qlora",
    module=__name__,
    tasks=(FOUR_BITS, KEPT, WHICH, TRAIN),
    core=("kept_bytes", "which_tuning"),
)
