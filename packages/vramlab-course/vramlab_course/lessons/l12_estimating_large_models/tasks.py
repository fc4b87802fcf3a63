"""Exercise 12: bytes per parameter, bytes per layer, and runs that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

from vramlab import catalogue
from vramlab.programs.transformer_memory import (
    PRECISIONS,
    Attention,
    Sizes,
    bytes_per_parameter,
    check_kernels,
    layer_terms,
)
from vramlab.programs.transformer_memory import Run as TransformerRun
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
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import is_one_of, whole
from vramlab_course.tasks.snapshots import (
    Trace,
    live,
    position_of_peak,
    trace_of,
    trace_so_far,
)

A100 = GPU("A100-40GB")

# lasting_bytes: weights, gradients, states

NAMES = {
    "float32": "float32",
    "autocast": "autocast bfloat16",
    "pure": "pure bfloat16",
    "master": "bfloat16, float32 master",
}
"""The precisions of the exercise, and what they are called in
vramlab.programs.transformer_memory."""

OPTIMIZERS = {"SGD": "sgd", "SGD with momentum": "sgd with momentum", "AdamW": "adamw"}


def _measure_lasting(rows: int, precision: str, optimizer: str) -> int:
    """Return what one weight (rows, 1024) leaves on the GPU after a step, before zero_grad()."""
    from vramlab.programs import optimizers
    from vramlab.programs.master_weights import MasterWeights

    chosen = PRECISIONS[NAMES[precision]]
    weights = getattr(torch, chosen.weights)

    def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return optimizers.OPTIMIZERS[OPTIMIZERS[optimizer]](parameters)

    def train(rows: int) -> list[object]:
        layer = torch.nn.Linear(1024, rows, bias=False, device="cuda", dtype=weights)
        parameters = list(layer.parameters())
        instance = MasterWeights(parameters, make) if chosen.master else make(parameters)
        context = torch.autocast("cuda", dtype=torch.bfloat16) if chosen.autocast else nullcontext()
        with context:
            loss = layer(torch.zeros(1, 1024, device="cuda", dtype=weights)).sum()
        loss.backward()
        instance.step()
        return [layer, instance]

    train(8)  # cuBLAS's workspaces come here
    torch.cuda.empty_cache()
    return growth_bytes(lambda: train(rows))


def _lasting(
    rows: int,
    precision: str,
    optimizer: str,
    *,
    names: Mapping[str, str] = NAMES,
    casts: bool = False,
    copies: bool = True,
    **instead: int,
) -> int:
    """Return the answer or a mistaken one: precisions are taken for others, casts are counted,
    copies are not; or `instead` has other bytes per parameter."""
    each = {**bytes_per_parameter(names[precision], OPTIMIZERS[optimizer]), **instead}
    if not casts:
        each["casts"] = 0
    if precision == "master" and not copies:
        each["weights"] = 2
    return 1024 * rows * sum(each.values())


def _states_in_the_weights_dtype(rows: int, precision: str, optimizer: str) -> int:
    count = {"SGD": 0, "SGD with momentum": 1, "AdamW": 2}[optimizer]
    size = 2 if precision in ("pure", "master") else 4
    return _lasting(rows, precision, optimizer, states=size * count)


# Rows are multiples of 1024, so that every tensor is a multiple of 2 MiB and keeps no rest.

LASTING = Predict(
    name="lasting_bytes",
    points=3,
    minutes=10,
    visible=(
        {"rows": 1024, "precision": "float32", "optimizer": "AdamW"},
        {"rows": 1024, "precision": "autocast", "optimizer": "AdamW"},
        {"rows": 2048, "precision": "pure", "optimizer": "AdamW"},
        {"rows": 2048, "precision": "master", "optimizer": "AdamW"},
        {"rows": 1024, "precision": "master", "optimizer": "SGD with momentum"},
        {"rows": 1024, "precision": "pure", "optimizer": "SGD"},
    ),
    hidden=lambda random: [
        {"rows": 1024 * random.randrange(1, 9), "precision": precision, "optimizer": optimizer}
        for precision in NAMES
        for optimizer in random.sample(list(OPTIMIZERS), 2)
    ],
    measure=_measure_lasting,
    gpu=A100,
    mistakes=of(
        _lasting,
        (
            "You counted autocast's casts. They are freed after the backward pass.",
            {"casts": True},
        ),
        (
            "You counted weights under autocast as 16 bit. Only their casts are; the weights stay "
            "float32.",
            {"names": {**NAMES, "autocast": NAMES["pure"]}},
        ),
        ("You left out the master weights, a float32 copy.", {"copies": False}),
        Mistake(
            "You counted the optimizer states beside master weights as 16 bit. States have the "
            "dtype of what the optimizer updates: the float32 master weights.",
            _states_in_the_weights_dtype,
        ),
        (
            "You counted gradients as float32 in every case. A gradient has the dtype of its "
            "parameter.",
            {"gradients": 4},
        ),
        (
            "You left out the gradients, or counted them as an optimizer state. They add one more "
            "number per parameter.",
            {"gradients": 0},
        ),
    ),
)


# layer_bytes: what a layer keeps


def _sizes(width: int, heads: int) -> Sizes:
    return Sizes(vocabulary=1024, positions=2048, width=width, heads=heads)


def _layer_run(batch: int, sequence: int, precision: str, attention: Attention) -> TransformerRun:
    return TransformerRun(batch, sequence, NAMES[precision], attention=attention)


def _measure_layer(
    batch: int, sequence: int, width: int, heads: int, precision: str, attention: Attention
) -> int:
    from vramlab_course.lessons.l12_estimating_large_models.transformer_tables import measure_layer

    return measure_layer(_sizes(width, heads), _layer_run(batch, sequence, precision, attention))


def _layer(
    batch: int,
    sequence: int,
    width: int,
    heads: int,
    precision: str,
    attention: Attention,
    leave_out: tuple[str, ...] = (),
) -> int:
    """Return the answer, without the terms whose names have one of the given words."""
    terms = layer_terms(_sizes(width, heads), _layer_run(batch, sequence, precision, attention))
    return sum(size for name, size in terms.items() if not any(word in name for word in leave_out))


def _paper_times(
    batch: int, sequence: int, width: int, heads: int, precision: str, attention: Attention
) -> int:
    tokens, scores = batch * sequence * width, batch * heads * sequence * sequence
    times = 2 if precision == "float32" else 1
    kept = 34 * tokens + (5 * scores if attention == "eager" else 0)
    if attention == "flash":
        kept += 4 * batch * heads * sequence + 1024
    return times * kept + 16 * batch * sequence


_LAYER: dict[str, Any] = {
    "batch": 2,
    "sequence": 256,
    "width": 512,
    "heads": 8,
    "precision": "pure",
    "attention": "eager",
}


def _draw_layer(random: Random, precision: str, attention: str) -> Config:
    heads = random.choice((4, 8, 16))
    return {
        "batch": random.randrange(1, 6),
        "sequence": 128 * random.randrange(1, 6),
        "width": 64 * heads,
        "heads": heads,
        "precision": precision,
        "attention": attention,
    }


LAYER = Predict(
    name="layer_bytes",
    points=4,
    minutes=25,
    visible=(
        _LAYER,
        {**_LAYER, "precision": "float32"},
        {**_LAYER, "attention": "flash"},
        {**_LAYER, "sequence": 512, "batch": 1, "heads": 16, "width": 1024},
    ),
    hidden=lambda random: [
        _draw_layer(random, precision, attention)
        for precision, attention in (("pure", "eager"), ("float32", "eager"), ("pure", "flash"))
    ],
    measure=_measure_layer,
    gpu=A100,
    mistakes=of(
        _layer,
        Mistake(
            "You counted float32 as twice 16 bit. Dropout's masks have one byte per element in "
            "both.",
            _paper_times,
        ),
        (
            "You left out what the norms save besides their input: two float32 numbers per token.",
            {"leave_out": ("statistics",)},
        ),
        (
            "You left out dropout's masks: one byte per element.",
            {"leave_out": ("mask",)},
        ),
        Mistake(
            "You counted the scores with flash attention, too. Flash attention recomputes them in "
            "the backward pass.",
            lambda batch, heads, sequence, attention, **case: (
                _layer(batch, sequence, heads=heads, attention=attention, **case)
                + (attention == "flash") * 5 * batch * heads * sequence**2
            ),
        ),
        (
            "You left out what flash attention saves instead of the scores: one float32 per query "
            "and head, and two blocks for its random state.",
            {"leave_out": ("logsumexp", "seeds")},
        ),
        (
            "You counted the scores once. The softmax saves its output, and the product after "
            "dropout saves its input.",
            {"leave_out": ("operand",)},
        ),
    ),
)


# which_run: told from what was allocated

RUNS: Mapping[str, Mapping[str, str]] = {
    "float32": {"precision": "float32"},
    "autocast": {"precision": "autocast float16"},
    "autocast with checkpoints": {"precision": "autocast float16", "checkpointing": "full"},
    "pure 16 bit": {"precision": "pure bfloat16"},
}


def _observe_run(run: str, layers: int, width: int, batch: int, sequence: int) -> Observation:
    from vramlab_course.lessons.l12_estimating_large_models.transformer_step import (
        TransformerTraining,
    )

    sizes = Sizes(vocabulary=1024, positions=sequence, width=width, layers=layers, heads=8)
    attention: Attention = "efficient"
    chosen = TransformerRun(batch, sequence, attention=attention, **RUNS[run])  # type: ignore[arg-type]
    readings = {}
    training = TransformerTraining(sizes, chosen)
    readings["model"] = torch.cuda.memory_allocated()
    training.step()
    readings["kept"] = growth_bytes(training.forward)
    shape = {"layers": layers, "width": width, "batch": batch, "sequence": sequence}
    return Observation(
        {"parameters": sizes.parameters(), "readings": readings, "shape": shape}, run
    )


def _by_weights(
    parameters: int, readings: Mapping[str, int], shape: Mapping[str, int], other: str
) -> str:
    """Told from the weights alone; `other` where they are float32."""
    return "pure 16 bit" if readings["model"] < 3 * parameters else other


def _without_checkpoints(
    parameters: int, readings: Mapping[str, int], shape: Mapping[str, int]
) -> str:
    tokens = shape["batch"] * shape["sequence"]
    each = readings["kept"] / (tokens * shape["width"] * shape["layers"])
    return _by_weights(parameters, readings, shape, "float32" if each > 52 else "autocast")


_SHAPE = {"layers": 4, "width": 512, "batch": 16, "sequence": 512}

WHICH = Diagnose(
    name="which_run",
    points=4,
    minutes=20,
    visible=tuple({"run": run, **_SHAPE} for run in RUNS),
    hidden=lambda random: [
        {
            "run": run,
            "layers": random.randrange(3, 6),
            "width": random.choice((384, 512, 640)),
            "batch": 4 * random.randrange(4, 9),
            "sequence": random.choice((384, 512)),
        }
        for run in RUNS
    ],
    observe=_observe_run,
    gpu=A100,
    mistakes=of(
        _by_weights,
        (
            "You looked only at the weights. Autocast leaves them in float32; what is saved per "
            "token separates the two.",
            {"other": "float32"},
        ),
        (
            "You answered autocast for every run with float32 weights. How many bytes does it "
            "save per element of the hidden state?",
            {"other": "autocast"},
        ),
        Mistake(
            "You did not notice recomputation. With activation checkpointing only the layers' "
            "inputs are saved: a few bytes per element of the hidden state.",
            _without_checkpoints,
        ),
    ),
)


# most_layers: from four small runs

SMALL_RUNS = ((2, 8), (4, 8), (2, 16), (4, 16))
"""Layers and texts of each."""

Peaks = Sequence[Sequence[int]]
"""[layers, texts, bytes] of each of the small runs, in their order."""


def _observe_layers(width: int, sequence: int, batch: int, layers: int) -> Observation:
    """Peaks of small runs, and a limit between those of a deep model and one of a layer more."""
    from vramlab_course.lessons.l12_estimating_large_models.transformer_step import take_steps

    def peak(layers: int, batch: int) -> int:
        # Segments that grow leave no rests of blocks, which would hide the straight line.
        with A100.but(alloc_conf=NO_RESTS).attached():
            sizes = Sizes(vocabulary=4096, positions=sequence, width=width, layers=layers, heads=8)
            take_steps(sizes, TransformerRun(batch, sequence))
            return torch.cuda.max_memory_allocated()

    peaks = [[*run, peak(*run)] for run in SMALL_RUNS]
    limit_bytes = (peak(layers, batch) + peak(layers + 1, batch)) // 2
    return Observation({"peaks": peaks, "batch": batch, "limit_bytes": limit_bytes}, layers)


def _most(
    peaks: Peaks,
    batch: int,
    limit_bytes: int,
    *,
    floor_at: int | None = None,
    layer_at: int | None = None,
    floors: int = 1,
    more: int = 0,
) -> int:
    """Return the answer or a mistaken one: of so many texts the floor and a layer are taken."""
    (_, _, shallow), (_, _, deep), (_, _, more_texts), (_, _, both) = peaks
    layers = {8: (deep - shallow) / 2, 16: (both - more_texts) / 2}
    floor = {8: shallow - 2 * layers[8], 16: more_texts - 2 * layers[16]}

    def at(values: Mapping[int, float], texts: int | None) -> float:
        texts = batch if texts is None else texts
        return values[8] + (values[16] - values[8]) * (texts - 8) / 8

    return int((limit_bytes - floors * at(floor, floor_at)) / at(layers, layer_at)) + more


LAYERS = Diagnose(
    name="most_layers",
    points=3,
    minutes=20,
    visible=(
        {"width": 256, "sequence": 256, "batch": 28, "layers": 9},
        {"width": 512, "sequence": 128, "batch": 12, "layers": 6},
    ),
    hidden=lambda random: [
        {
            "width": random.choice((256, 512)),
            "sequence": 128 * random.randrange(1, 3),
            "batch": random.randrange(18, 33),
            "layers": random.randrange(6, 13),
        }
        for _ in range(2)
    ],
    observe=_observe_layers,
    mistakes=of(
        _most,
        (
            "You used the cost of a layer with 8 sequences. Its activations grow with the batch.",
            {"layer_at": 8},
        ),
        (
            "You used the cost of a layer with 16 sequences. Its activations grow with the batch.",
            {"layer_at": 16},
        ),
        (
            "You used the memory outside the layers with 8 sequences. Embeddings and logits grow "
            "with the batch as well.",
            {"floor_at": 8},
        ),
        (
            "You used the memory outside the layers with 16 sequences. Embeddings and logits grow "
            "with the batch as well.",
            {"floor_at": 16},
        ),
        (
            "You divided the limit by the cost of one more layer. Subtract first what is "
            "allocated without any layer.",
            {"floors": 0},
        ),
        ("You rounded up. A layer that fits only in part does not fit.", {"more": 1}),
    ),
)


# configuration: a run that fits

T4 = GPU("T4")
LEAST_MICRO_BATCH = 16
T4_SIZES = Sizes(vocabulary=8192, positions=512, width=512, layers=8, heads=8)
KEYS: Mapping[str, tuple[object, ...]] = {
    "precision": ("float32", "autocast float16", "autocast bfloat16"),
    "attention": ("eager", "efficient", "flash"),
    "checkpointing": ("none", "selective", "full"),
}


def _chosen_run(answer: Any, batch: int, limit_mib: int) -> TransformerRun:
    """Return the run that a configuration asks for; NotFixed where it breaks a rule."""
    if not isinstance(answer, dict) or set(answer) != {"micro_batch", *KEYS}:
        raise NotFixed(
            "configuration should be a dict with the keys micro_batch, " + ", ".join(KEYS) + "."
        )
    for key, allowed in KEYS.items():
        if not is_one_of(answer[key], allowed):
            raise NotFixed(f"{key} is {answer[key]!r}; it has to be one of {allowed}.")
    micro_batch = whole(answer["micro_batch"])
    if micro_batch is None or micro_batch < 1 or batch % micro_batch:
        raise NotFixed(
            f"micro_batch is {answer['micro_batch']!r}; it has to divide the global batch of "
            f"{batch} sequences."
        )
    if micro_batch < LEAST_MICRO_BATCH:
        raise NotFixed(
            f"micro_batch is {micro_batch}. Such small micro-batches leave the GPU idle; use at "
            f"least {LEAST_MICRO_BATCH}."
        )
    if answer["checkpointing"] == "full":
        raise NotFixed(
            "Full checkpointing takes a third more time, which this task does not allow. Which "
            "kind of checkpointing recomputes only where most memory is saved?"
        )
    settings = {key: answer[key] for key in KEYS}
    try:
        run = TransformerRun(micro_batch, 512, **settings)
        check_kernels(run, catalogue.find(T4.name).compute_capability)
    except ValueError as error:
        raise NotFixed(f"This cannot run: {error}.") from error
    return run


def _micro_batches(run: Run) -> int:
    return int(run.case["batch"] // run.program.batch)


def _two_steps(run: Run) -> None:
    from vramlab_course.lessons.l12_estimating_large_models.transformer_step import (
        TransformerTraining,
    )

    training = TransformerTraining(T4_SIZES, run.program)
    for _ in range(2):
        for _ in range(_micro_batches(run)):
            (training.forward() / _micro_batches(run)).backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def _what_it_holds(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated. Which part of it grows "
        "with the micro-batch, and which terms of a layer are the largest?"
    )


CONFIGURATION = Fix(
    name="configuration",
    points=4,
    minutes=20,
    is_value=True,
    visible=({"batch": 32, "limit_mib": 3000},),
    hidden=lambda random: [
        {"batch": 32 * random.randrange(1, 3), "limit_mib": random.randrange(2900, 3100)}
    ],
    trial=Repair(
        gpu=T4,
        accept=_chosen_run,
        call=_two_steps,
        limit=lambda own: own.case["limit_mib"] * MIB,
        ran_out=_what_it_holds,
        report=lambda run: (
            f"{_micro_batches(run)} micro-batches of {run.program.batch}, {run.peak_report}"
        ),
    ),
)


# where_is_the_peak: an unknown training step, from its snapshot

PLACES: dict[str, dict[str, int]] = {
    "loss": {"vocabulary": 32_768, "width": 256, "layers": 2, "batch": 4, "sequence": 512},
    "layers": {"vocabulary": 512, "width": 256, "layers": 4, "batch": 4, "sequence": 1024},
    "optimizer": {"vocabulary": 4096, "width": 1024, "layers": 4, "batch": 1, "sequence": 16},
}
"""Runs whose peak is there."""


def _observe_peak(
    vocabulary: int, width: int, layers: int, batch: int, sequence: int
) -> Observation:
    """Take a step, measure the peak of its three parts, and give what its snapshot says."""
    from vramlab.programs.transformer import Transformer

    sizes = Sizes(vocabulary=vocabulary, width=width, layers=layers, heads=4, tied=False)
    with torch.device("cuda"):
        model = Transformer(sizes, attention="eager", dropout=0.0, checkpointing="none")
        tokens = torch.zeros(batch, sequence, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    model(tokens, tokens).backward()
    optimizer.step()  # states and workspaces are there from here on
    optimizer.zero_grad()
    peaks: dict[str, int] = {}
    entries_before: list[int] = []

    def note(part: str) -> None:
        peaks[part] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        torch.cuda.reset_peak_memory_stats()
        model(tokens, tokens).backward()
        note("layers")
        entries_before.append(len(trace_so_far()))
        optimizer.step()
        note("optimizer")
        optimizer.zero_grad()

    # When the head has its gradients, backward is through with the loss.
    assert model.head is not None
    model.head.register_full_backward_hook(lambda *_: note("loss"))
    evidence = {
        "trace": trace_of(step),
        "step_at": entries_before[0],
        "logits_bytes": 4 * batch * sequence * vocabulary,
    }
    return Observation(evidence, max(peaks, key=peaks.__getitem__))


def _peak_place(
    trace: Trace, step_at: int, logits_bytes: int, *, largest: bool = False, step: bool = True
) -> str:
    """Return the answer or a mistaken one: for naming mistakes, not for grading.

    Args:
        trace: what the snapshot says.
        step_at: entries before `optimizer.step()`.
        logits_bytes: of all logits.
        largest: whether the largest block is looked for, and not the peak.
        step: whether the optimizer is thought of.
    """
    at = position_of_peak(trace)
    if largest:
        sizes = [entry["size"] for entry in trace]
        at = sizes.index(max(sizes))
    if step and at >= step_at:
        return "optimizer"
    return "loss" if logits_bytes in live(trace, at + 1) else "layers"


def _runs_with_a_peak(random: Random) -> list[Config]:
    return [
        {**run, "layers": random.randrange(2, 5), "width": run["width"] + 64 * random.randrange(4)}
        for run in (*PLACES.values(), *PLACES.values())
    ]


PEAK_PLACE = Diagnose(
    name="where_is_the_peak",
    points=3,
    minutes=25,
    visible=tuple(PLACES.values()),
    hidden=_runs_with_a_peak,
    observe=_observe_peak,
    gpu=A100,
    mistakes=of(
        _peak_place,
        (
            "You looked for the largest block. The peak is where the sum of all blocks is largest.",
            {"largest": True},
        ),
        (
            'You never answered "optimizer". Where few activations are saved, the optimizer\'s '
            "own tensors make the peak.",
            {"step": False},
        ),
        Mistake(
            "You looked for blocks of the logits' size anywhere in the step. Are they still "
            "allocated at the peak?",
            lambda trace, step_at, logits_bytes: (
                "loss" if any(e["size"] == logits_bytes for e in trace) else "layers"
            ),
        ),
    ),
)


EXERCISE = Exercise(
    name="12_estimating_large_models",
    module=__name__,
    tasks=(LASTING, LAYER, WHICH, LAYERS, CONFIGURATION, PEAK_PLACE),
    core=("lasting_bytes", "most_layers"),
)
