"""Exercise 19: who holds what when GPUs share a batch, what they send, and GPU 0 relieved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.lessons.l19_dp_and_ddp.formulas import Classifier
from vramlab_course.tasks.batches import numbered_batch
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.gradients import Gradients, collect_gradients, require_gradients
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.snapshots import Trace, live, trace_of

T4 = GPU("T4")
OLD_T4 = GPU("T4", torch_version="1.13")
"""With the rules of a PyTorch under which cuBLAS takes no workspaces of the allocator."""

STATES = {"SGD": 0, "AdamW": 2}
"""Tensors of a parameter's size that each optimizer keeps: for naming mistakes, not for grading."""


# data_parallel_bytes: what each GPU holds when forward has ended


def _measure_data_parallel(
    gpu: int, gpus: int, batch: int, width: int, layers: int, classes: int, optimizer: str
) -> int:
    from vramlab_course.lessons.l19_dp_and_ddp.data_parallel import DataParallelTraining

    training = DataParallelTraining(Classifier(width, layers, classes, STATES[optimizer]), batch)
    training.with_data_parallel(gpus, loss_inside=False)
    training.whole_step()
    del training.labels
    training.forward()
    return torch.cuda.memory_allocated(gpu)


def _rows(gpu: int, gpus: int, batch: int) -> int:
    rows = -(-batch // gpus)
    return max(0, min(rows, batch - gpu * rows))


def _held(
    gpu: int,
    gpus: int,
    batch: int,
    width: int,
    layers: int,
    classes: int,
    optimizer: str,
    *,
    dealt: Callable[[int, int, int], int] = _rows,
    idle: bool = True,
    divided: bool = False,
    replicas: bool = True,
    states_everywhere: bool = False,
    outputs_of: str = "whole batch",
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        gpu: as in the task; and so on.
        dealt: how many rows a GPU gets.
        idle: a GPU without rows gets nothing else either.
        divided: each GPU has a part of the model.
        replicas: the other GPUs have the model, too.
        states_everywhere: they have the optimizer's states, too.
        outputs_of: "whole batch": on GPU 0; "everybody": there, and where they were computed.
    """
    rows = dealt(gpu, gpus, batch)
    if rows == 0 and idle:
        return 0
    model = 4 * (layers * width * width + width * classes) // (gpus if divided else 1)
    if gpu > 0 and not replicas:
        model = 0
    states = STATES[optimizer] * model if gpu == 0 or states_everywhere else 0
    inputs = batch if gpu == 0 else rows
    outputs = {"whole batch": batch if gpu == 0 else 0, "no GPU": 0, "everybody": rows}[outputs_of]
    if outputs_of == "everybody" and gpu == 0:
        outputs = batch
    return model + states + 4 * width * (inputs + layers * rows) + 4 * classes * outputs


def _case(gpu: int, optimizer: str = "AdamW", batch: int = 1024) -> Config:
    return {
        "gpu": gpu,
        "optimizer": optimizer,
        "batch": batch,
        "gpus": 4,
        "width": 1024,
        "layers": 4,
        "classes": 2048,
    }


def _hidden_data_parallel(random: Random) -> list[Config]:
    def config(gpu: int, batch: int, gpus: int) -> Config:
        width = random.choice((128, 1024))  # so that no block keeps a rest
        return {
            **_case(gpu, random.choice(tuple(STATES)), batch),
            "gpus": gpus,
            "width": width,
            "layers": random.randrange(3, 7),
            "classes": 1024 * (random.randrange(1, 5) if width == 1024 else 1),
        }

    gpus = random.choice((2, 4))
    few = random.randrange(1, 4)
    return [
        config(0, 512, gpus),
        config(gpus - 1, 1024, 4),
        config(random.randrange(1, gpus), 512, gpus),
        config(0, 10, 4),
        config(3, 10, 4),  # three rows each for the others, one for the last
        config(2, 9, 4),
        config(few, few, 4),  # no row is left for it
        {**config(0, 512, 4), "optimizer": "AdamW"},
        {**config(0, 512, 4), "optimizer": "SGD"},
    ]


HELD = Predict(
    name="data_parallel_bytes",
    points=4,
    minutes=25,
    rule=lambda gpu, gpus, batch, **_: "idle" if not _rows(gpu, gpus, batch) else gpu > 0,
    visible=(_case(0), _case(1), _case(0, "SGD"), _case(3, batch=10), _case(3, batch=3)),
    hidden=_hidden_data_parallel,
    measure=_measure_data_parallel,
    gpu=lambda gpus, **_: OLD_T4.but(count=gpus),
    mistakes=of(
        _held,
        (
            "You divided the model among the GPUs. DataParallel divides only the batch: each GPU "
            "has a whole replica.",
            {"divided": True},
        ),
        (
            "You gave the other GPUs no parameters. Every forward pass sends each of them a "
            "replica, which stays until its backward pass is done.",
            {"replicas": False},
        ),
        (
            "You gave every GPU the optimizer states. The optimizer has only GPU 0's parameters.",
            {"states_everywhere": True},
        ),
        (
            "You left the outputs where they were computed. DataParallel gathers them on GPU 0, "
            "and the pieces are freed.",
            {"outputs_of": "everybody"},
        ),
        ("You left out the outputs of the whole batch on GPU 0.", {"outputs_of": "no GPU"}),
        (
            "You let every GPU compute the whole batch. DataParallel divides its rows.",
            {"dealt": lambda gpu, gpus, batch: batch},
        ),
        (
            "You gave every GPU equally many rows. They are split like torch.chunk does: rounded "
            "up, and the last GPUs get what is left.",
            {"dealt": lambda gpu, gpus, batch: batch // gpus, "idle": False},
        ),
        (
            "You gave a GPU without rows a replica. If no rows are left for a GPU, nothing is "
            "sent to it.",
            {"idle": False},
        ),
    ),
)


# ddp_bytes: what a rank holds

WAYS = ("one process", "DDP", "DDP with views")
MOMENTS = ("before the first step", "after backward", "after zero_grad")


def _measure_ddp(way: str, moment: str, optimizer: str, width: int, layers: int) -> int:
    from vramlab.programs.alone import alone

    def forward_and_backward(module: torch.nn.Module) -> None:
        module(torch.zeros(8, width, device="cuda")).sum().backward()

    with alone(4):
        linears = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
        model = torch.nn.Sequential(*linears).to("cuda")
        del linears
        wrapped: torch.nn.Module = model
        if way != "one process":
            wrapped = torch.nn.parallel.DistributedDataParallel(
                model, gradient_as_bucket_view=way == "DDP with views"
            )
        instance: torch.optim.Optimizer = (
            torch.optim.AdamW(model.parameters())
            if optimizer == "AdamW"
            else torch.optim.SGD(model.parameters(), lr=0.1)
        )
        if moment != MOMENTS[0]:
            forward_and_backward(wrapped)
            instance.step()
            instance.zero_grad()
            forward_and_backward(wrapped)
        if moment == MOMENTS[2]:
            instance.step()
            instance.zero_grad()
        return torch.cuda.memory_allocated()


def _rank(
    way: str,
    moment: str,
    optimizer: str,
    width: int,
    layers: int,
    *,
    buckets_at: Sequence[str] = MOMENTS,
    states_at: Sequence[str] = MOMENTS[1:],
    both: bool = False,
) -> int:
    """Return the answer or a mistaken one: at which moments there are buckets, and states; and
    whether gradients take memory besides when they are views."""
    gradients = moment == MOMENTS[1] and (both or way != "DDP with views")
    buckets = way != "one process" and moment in buckets_at
    states = STATES[optimizer] if moment in states_at else 0
    return 4 * layers * width * width * (1 + states + gradients + buckets)


RANK = Predict(
    name="ddp_bytes",
    points=3,
    minutes=20,
    rule=lambda way, moment, **_: (way, moment),
    visible=tuple(
        {"way": way, "moment": moment, "optimizer": "AdamW", "width": 1024, "layers": 8}
        for way, moment in (
            ("DDP", MOMENTS[0]),
            ("one process", MOMENTS[1]),
            ("DDP", MOMENTS[1]),
            ("DDP with views", MOMENTS[1]),
            ("DDP with views", MOMENTS[2]),
        )
    ),
    hidden=lambda random: [
        {
            "way": way,
            "moment": moment,
            "optimizer": random.choice(tuple(STATES)),
            "width": 1024 * random.randrange(1, 3),
            "layers": random.randrange(2, 12),
        }
        for way in WAYS
        for moment in MOMENTS
    ],
    measure=_measure_ddp,
    gpu=OLD_T4,
    mistakes=of(
        _rank,
        (
            "You left out DDP's buckets, which are as large as all gradients.",
            {"buckets_at": ()},
        ),
        (
            "You allocated the buckets together with the gradients. They are allocated when DDP "
            "is constructed.",
            {"buckets_at": MOMENTS[1:]},
        ),
        (
            "You freed the buckets when there are no gradients. DDP keeps its buckets.",
            {"buckets_at": MOMENTS[1:2]},
        ),
        (
            "You counted both gradients and buckets with views (gradient_as_bucket_view). There, "
            "each gradient is a view of its bucket.",
            {"both": True},
        ),
        ("You counted the optimizer states before the first step().", {"states_at": MOMENTS}),
    ),
)


# sent_bytes: what a rank sends in a step

ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def _measure_sent(ranks: int, layers: int, width: int, dtype: str, frozen: int) -> int:
    from vramlab.measure import record_collectives
    from vramlab.programs.alone import alone

    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    with alone(ranks):
        linears = [torch.nn.Linear(width, width, bias=False, dtype=kind) for _ in range(layers)]
        model = torch.nn.Sequential(*linears).to("cuda")
        del linears
        model[:frozen].requires_grad_(False)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        x = torch.zeros(8, width, dtype=kind, device="cuda")
        parallel(x).sum().backward()
        with record_collectives() as collectives:
            parallel(x).sum().backward()
    return sum(call.sent_bytes for call in collectives.of("all-reduce"))


def _sent(
    ranks: int,
    layers: int,
    width: int,
    dtype: str,
    frozen: int,
    *,
    rounds: int = 2,
    own_piece: bool = False,
    in_pieces: bool = True,
) -> int:
    """Return the answer or a mistaken one: how often gradients go around the ring, and whether a
    rank sends its own piece, too, or everything instead of pieces."""
    gradients_bytes = ITEM_BYTES[dtype] * (layers - frozen) * width * width
    pieces = ranks if own_piece else ranks - 1
    return rounds * pieces * gradients_bytes // (ranks if in_pieces else 1)


_SENT: dict[str, Any] = {"layers": 8, "width": 1024, "dtype": "float32", "frozen": 0}

SENT = Predict(
    name="sent_bytes",
    points=3,
    minutes=10,
    visible=(
        {"ranks": 4, **_SENT},
        {"ranks": 2, **_SENT},
        {"ranks": 64, **_SENT},
        {"ranks": 4, **_SENT, "dtype": "bfloat16"},
        {"ranks": 4, **_SENT, "frozen": 5},
    ),
    hidden=lambda random: [
        {
            "ranks": ranks,
            "layers": layers,
            "width": 256 * random.randrange(1, 6),
            "dtype": random.choice(tuple(ITEM_BYTES)),
            "frozen": random.randrange(0, layers) if ranks != 8 else 1,
        }
        for ranks in (2, 4, 8, 16, 128, 1024)
        for layers in (random.randrange(2, 12),)
    ],
    measure=_measure_sent,
    gpu=OLD_T4.but(name="A100-40GB"),
    mistakes=of(
        _sent,
        (
            "You sent everything once. A ring all-reduce goes round twice: a reduce-scatter adds "
            "up, then an all-gather distributes the sums.",
            {"rounds": 1},
        ),
        (
            "You sent everything twice. A piece does not travel the whole ring: of N pieces, a "
            "rank sends N - 1 each time.",
            {"own_piece": True},
        ),
        (
            "You sent whole gradients to every other rank. In a ring, each rank sends pieces of "
            "1/N, and only to its neighbour.",
            {"rounds": 1, "in_pieces": False},
        ),
        (
            "You added up what all ranks send. The question is about one rank.",
            {"in_pieces": False},
        ),
        ("You sent gradients of frozen layers. They have none.", {"frozen": 0}),
        (
            "You used 4 bytes per number. A gradient has the dtype of its parameter.",
            {"dtype": "float32"},
        ),
    ),
)


# which_way: told from readings of all GPUs

ANSWERS = ("DataParallel", "DataParallel, loss inside", "DDP", "DDP with views")
GPUS = 4


def _observe_way(way: str, batch: int, layers: int, classes: int) -> Observation:
    """Train two steps with SGD on four GPUs, and read each when the second backward has ended.

    Args:
        way: one of `ANSWERS`.
        batch: rows of all GPUs together.
        layers: hidden ones, 1024 wide.
        classes: of the head.
    """
    from vramlab.programs.alone import alone
    from vramlab_course.lessons.l19_dp_and_ddp.data_parallel import DataParallelTraining

    sizes = Classifier(1024, layers, classes, states=0)

    def read(training: DataParallelTraining, gpus: Sequence[int]) -> list[tuple[int, int]]:
        training.whole_step()
        for gpu in gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        training.forward()
        training.compute_loss()
        training.backward()
        return [
            (torch.cuda.max_memory_allocated(gpu), torch.cuda.memory_allocated(gpu)) for gpu in gpus
        ]

    readings: list[tuple[int, int]] = []
    if way in ANSWERS[:2]:
        with OLD_T4.but(count=GPUS).attached():
            training = DataParallelTraining(sizes, batch)
            training.with_data_parallel(GPUS, loss_inside=way == ANSWERS[1])
            readings += read(training, range(GPUS))
            del training
    else:
        for rank in range(GPUS):
            with OLD_T4.attached(), alone(GPUS, rank):
                training = DataParallelTraining(sizes, batch // GPUS)
                training.with_ddp(as_view=way == ANSWERS[3])
                readings += read(training, [0])
                del training
    evidence = {
        "parameters": sizes.parameters_bytes,
        "outputs": sizes.outputs_bytes(batch),
        "peak": [peak for peak, _ in readings],
        "after backward": [after for _, after in readings],
    }
    return Observation({"readings": evidence}, way)


def _is_data_parallel(readings: Mapping[str, Any]) -> bool:
    return bool(readings["after backward"][1] < readings["parameters"])


def _has_both(readings: Mapping[str, Any]) -> bool:
    return bool(readings["after backward"][1] >= 3 * readings["parameters"])


def _by_readings(readings: Mapping[str, Any]) -> str:
    """Return the answer: for naming mistakes, not for grading."""
    if _is_data_parallel(readings):
        held = readings["after backward"][0] - 2 * readings["parameters"]
        return ANSWERS[0 if held >= readings["outputs"] else 1]
    return ANSWERS[2 if _has_both(readings) else 3]


_READ = {"batch": 1024, "layers": 4, "classes": 2048}

WHICH = Diagnose(
    name="which_way",
    points=3,
    minutes=20,
    visible=(
        {"way": ANSWERS[0], **_READ},
        {"way": ANSWERS[1], **_READ},
        {"way": ANSWERS[2], **_READ},
        {"way": ANSWERS[3], **_READ},
    ),
    hidden=lambda random: [
        {
            "way": way,
            "batch": 512 * random.randrange(2, 4),
            "layers": random.randrange(4, 9),
            "classes": 1024 * random.randrange(2, 5),
        }
        for way in ANSWERS
    ],
    observe=_observe_way,
    mistakes=(
        Mistake(
            'You answered "DataParallel" for a run that computes the loss inside. Does GPU 0 '
            "still hold the outputs of the whole batch?",
            instead(_by_readings, {"DataParallel, loss inside": "DataParallel"}),
        ),
        Mistake(
            "You explained GPU 0's larger peak by the loss. DataParallel adds up gradients there "
            "in any case: look for the outputs.",
            lambda readings: (
                ANSWERS[0]
                if readings["peak"][0] > readings["peak"][1]
                else ANSWERS[2 if _has_both(readings) else 3]
            ),
        ),
        Mistake(
            'You answered "DDP" for a run with views. Are both gradients and buckets allocated, '
            "or only one of the two?",
            instead(_by_readings, {"DDP with views": "DDP"}),
        ),
        Mistake(
            'You answered "DDP with views" for plain DDP. Are both gradients and buckets '
            "allocated, or only one of the two?",
            instead(_by_readings, {"DDP": "DDP with views"}),
        ),
    ),
)


# train_step: GPU 0 runs out of memory

WIDTH, CLASSES = 256, 4096
LEAST_OF_SHARE = 0.9
"""Of the operations of a fourth of the rows, so many are computed by each GPU at least."""
MOST_FLOPS = 1.5
"""Times those of all rows: checkpoints take 1.33. One GPU that does everything, and others that
only look busy, take 1.67 at least."""


def _model() -> torch.nn.Sequential:
    torch.manual_seed(19)
    linears = [torch.nn.Linear(WIDTH, outputs, bias=False) for outputs in (WIDTH, WIDTH, CLASSES)]
    return torch.nn.Sequential(*linears).to("cuda:0")


def _train_step(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> None:
    """Run the model with the loss inside, to measure what it needs."""
    from vramlab_course.lessons.l19_dp_and_ddp.data_parallel import WithLoss

    torch.nn.parallel.DataParallel(WithLoss(model))(x, labels).mean().backward()


def _model_and_batch(run: Run, batch: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    model = _model()
    x = numbered_batch(batch, batch, WIDTH)
    labels = torch.randint(CLASSES, (batch,)).to("cuda:0")
    return model, x, labels


def _in_one_process(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> None:
    torch.nn.functional.cross_entropy(model(x), labels).backward()


def _what_they_hold(run: Run) -> str:
    return (
        f"With {format_bytes(run.limit_bytes)} on each GPU, it runs out of memory. The GPUs' "
        f"peaks are {', '.join(map(format_bytes, run.peaks_bytes))}; the outputs of the whole "
        f"batch are {format_bytes(4 * run.case['batch'] * CLASSES)}. What has to be on GPU 0?"
    )


def _same_gradients(run: Run, expected: Gradients) -> None:
    share = run.expected_work.on_gpu / GPUS
    for gpu in range(GPUS):
        computed = run.work.on_gpus.get(gpu, 0) / share
        if computed < LEAST_OF_SHARE:
            raise NotFixed(
                f"It fits, but GPU {gpu} has computed only {computed:.0%} of its fraction of the "
                "rows."
            )
    run.require_no_more_flops("GPUs repeat what other GPUs have computed.", MOST_FLOPS)
    try:
        require_gradients(run.results, expected)
    except NotFixed as error:
        raise NotFixed(
            f"{error} They should be the gradients of the mean loss over all rows."
        ) from error


STEP = Fix(
    name="train_step",
    points=4,
    minutes=20,
    visible=({"batch": 1024},),
    hidden=lambda random: [{"batch": 256 * random.randrange(4, 7)}],
    trial=Repair(
        gpu=T4.but(count=GPUS, values=True),
        build=_model_and_batch,
        reference=_in_one_process,
        fits=_train_step,
        limit=lambda own: [max(own.reserved_bytes) + 2 * MIB] * GPUS,
        ran_out=_what_they_hold,
        collect=collect_gradients,
        compare=_same_gradients,
    ),
)

# which_program: one process of an unknown job, from its snapshot


def _observe_rank(program: str, layers: int, width: int) -> Observation:
    """Make a model, wrap it, go forward and backward, and give what the rank's snapshot says."""
    from torch.nn.parallel import DistributedDataParallel

    from vramlab_course.lessons.l20_zero.experiment import rank_alone, warm_up
    from vramlab_course.programs.chains import linear_chain

    def first_step() -> object:
        model = linear_chain(layers, width, device="cuda")
        parallel: torch.nn.Module = model
        if program != "alone":
            as_view = program == "DDP, views"
            parallel = DistributedDataParallel(model, gradient_as_bucket_view=as_view)
        parallel(torch.zeros(1, width, device="cuda")).sum().backward()
        return parallel

    with rank_alone(0, 4):
        warm_up()
        trace = trace_of(first_step)
    return Observation({"trace": trace, "parameters_bytes": 4 * layers * width**2}, program)


def _which_program(trace: Trace, parameters_bytes: int, *, views: bool = True) -> str:
    """Return the answer or the mistaken one: for naming mistakes, not for grading.

    Args:
        trace: what the snapshot says.
        parameters_bytes: of all parameters.
        views: whether gradients that are views of buckets are recognized.
    """
    left = live(trace)
    if round(sum(left) / parameters_bytes) == 3:
        return "DDP"
    return "DDP, views" if views and parameters_bytes in left else "alone"


def _jobs(random: Random) -> list[Config]:
    return [
        {
            "program": program,
            "layers": random.randrange(3, 9),
            "width": 128 * random.randrange(3, 7),
        }
        for program in ("alone", "DDP", "DDP, views", "DDP, views")
    ]


WHICH_PROGRAM = Diagnose(
    name="which_program",
    points=3,
    minutes=20,
    visible=tuple(
        {"program": program, "layers": 4, "width": 512}
        for program in ("DDP, views", "alone", "DDP")
    ),
    hidden=_jobs,
    observe=_observe_rank,
    gpu=T4,
    mistakes=of(
        _which_program,
        (
            "You compared only the sums. With views, as many bytes are left as without DDP, but "
            "in blocks of other sizes.",
            {"views": False},
        ),
        Mistake(
            "You added up all allocations. Some of them have been freed by the end.",
            lambda trace, parameters_bytes: (
                "DDP"
                if sum(e["size"] for e in trace if e["action"] == "alloc") > 2.5 * parameters_bytes
                else "alone"
            ),
        ),
    ),
)


EXERCISE = Exercise(
    name="19_dp_and_ddp",
    module=__name__,
    tasks=(HELD, RANK, SENT, WHICH, STEP, WHICH_PROGRAM),
    core=("ddp_bytes", "sent_bytes"),
)
