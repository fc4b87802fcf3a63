"""Exercise 19: who holds what when GPUs share a batch, what they send, and GPU 0 relieved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

GPU = "T4"
"""A grade names its GPU, so that it does not depend on the machine that grades."""
RULES = "1.13"
"""The PyTorch whose rules hold: cuBLAS takes no workspaces of the allocator."""

STATES = {"SGD": 0, "AdamW": 2}
"""Tensors of a parameter's size that each optimizer keeps: for naming mistakes, not for grading."""


# data_parallel_bytes: what each GPU holds when forward has ended


def _measure_data_parallel(
    gpu: int, gpus: int, batch: int, width: int, layers: int, classes: int, optimizer: str
) -> int:
    import torch

    import vramlab
    from vramlab.formulas.data_parallel import Classifier
    from vramlab.techniques.data_parallel import Training

    with vramlab.VirtualGPU(GPU, gpus, torch_version=RULES):
        training = Training(Classifier(width, layers, classes, STATES[optimizer]), batch)
        training.with_data_parallel(gpus, loss_inside=False)
        training.whole_step()
        del training.labels
        training.forward()
        held_bytes = torch.cuda.memory_allocated(gpu)
        del training
    return held_bytes


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
    rows: int | None = None,
    parameters: float = 1.0,
    states_everywhere: bool = False,
    outputs_of: str = "whole batch",
    idle: bool = True,
) -> int:
    """The answer, and the mistaken ones: whose outputs GPU 0 has, which share of the model..."""
    rows = _rows(gpu, gpus, batch) if rows is None else rows
    if rows == 0 and idle:
        return 0
    model = int(4 * (layers * width * width + width * classes) * parameters)
    states = STATES[optimizer] * model if gpu == 0 or states_everywhere else 0
    inputs = batch if gpu == 0 else rows
    outputs = {"whole batch": batch if gpu == 0 else 0, "nobody": 0, "everybody": rows}[outputs_of]
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
    minutes=20,
    visible=(_case(0), _case(1), _case(0, "SGD"), _case(3, batch=10), _case(3, batch=3)),
    hidden=_hidden_data_parallel,
    measure=_measure_data_parallel,
    mistakes=(
        Mistake(
            "You divided the model among the GPUs. Only the batch is divided: each GPU has a whole "
            "replica.",
            lambda **c: _held(**c, parameters=1 / c["gpus"]),
        ),
        Mistake(
            "You gave the other GPUs no parameters. A replica comes to each of them in every "
            "forward pass, and stays until backward has used it.",
            lambda **c: _held(**c) if c["gpu"] == 0 else _held(**c, parameters=0.0),
        ),
        Mistake(
            "You gave every GPU the optimizer's states. The optimizer has the parameters of GPU 0.",
            lambda **c: _held(**c, states_everywhere=True),
        ),
        Mistake(
            "You left the outputs where they were computed. They are gathered on GPU 0, and "
            "nobody keeps the pieces.",
            lambda **c: _held(**c, outputs_of="everybody"),
        ),
        Mistake(
            "You forgot the outputs of the whole batch on GPU 0.",
            lambda **c: _held(**c, outputs_of="nobody"),
        ),
        Mistake(
            "You let every GPU compute the whole batch. DataParallel deals the rows out.",
            lambda **c: _held(**c, rows=c["batch"]),
        ),
        Mistake(
            "You gave every GPU equally many rows. They are dealt out as torch.chunk does it: "
            "rounded up, and the last ones get what is left.",
            lambda **c: _held(**c, rows=c["batch"] // c["gpus"], idle=False),
        ),
        Mistake(
            "You gave a GPU without rows a replica. Where no row is left, nothing is sent.",
            lambda **c: _held(**c, idle=False),
        ),
    ),
)


# ddp_bytes: what a rank holds

WAYS = ("one process", "DDP", "DDP with views")
MOMENTS = ("before the first step", "after backward", "after zero_grad")


def _measure_ddp(way: str, moment: str, optimizer: str, width: int, layers: int) -> int:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import vramlab
    from vramlab.ranks import alone

    def forward_and_backward(module: torch.nn.Module) -> None:
        module(torch.zeros(8, width, device="cuda")).sum().backward()

    with vramlab.VirtualGPU(GPU, torch_version=RULES), alone(4):
        linears = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
        model = torch.nn.Sequential(*linears).to("cuda")
        del linears
        wrapped: torch.nn.Module = model
        if way != "one process":
            wrapped = DistributedDataParallel(
                model, gradient_as_bucket_view=way == "DDP with views"
            )
        instance: torch.optim.Optimizer = (
            torch.optim.AdamW(model.parameters())
            if optimizer == "AdamW"
            else torch.optim.SGD(model.parameters(), lr=0.1)
        )
        held_bytes = torch.cuda.memory_allocated()
        if moment != MOMENTS[0]:
            forward_and_backward(wrapped)
            instance.step()
            instance.zero_grad()
            forward_and_backward(wrapped)
            if moment == MOMENTS[2]:
                instance.step()
                instance.zero_grad()
            held_bytes = torch.cuda.memory_allocated()
        del model, wrapped, instance
    return held_bytes


def _times(way: str, moment: str, optimizer: str, **what: bool) -> int:
    """How many times its parameters a rank holds: the answer, and the mistaken ones."""
    states = STATES[optimizer] if moment != MOMENTS[0] or what.get("states_at_once") else 0
    gradients = moment == MOMENTS[1] and (way != "DDP with views" or what.get("both"))
    buckets = way != "one process"
    if what.get("no_buckets") or (what.get("buckets_go") and moment != MOMENTS[1]):
        buckets = False
    if what.get("late_buckets") and moment == MOMENTS[0]:
        buckets = False
    return 1 + states + int(bool(gradients)) + int(buckets)


def _ddp_mistake(message: str, **what: bool) -> Mistake:
    return Mistake(
        message,
        lambda way, moment, optimizer, width, layers: (
            4 * layers * width * width * _times(way, moment, optimizer, **what)
        ),
    )


RANK = Predict(
    name="ddp_bytes",
    points=3,
    minutes=15,
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
    mistakes=(
        _ddp_mistake(
            "You forgot DDP's buckets, which are as large as all gradients.", no_buckets=True
        ),
        _ddp_mistake(
            "You let the buckets come with the gradients. They are there since DDP was made.",
            late_buckets=True,
        ),
        _ddp_mistake(
            "You let the buckets go when there are no gradients. DDP keeps them.", buckets_go=True
        ),
        _ddp_mistake(
            "You counted gradients and buckets with views. There a gradient is a piece of its "
            "bucket.",
            both=True,
        ),
        _ddp_mistake("You counted the states before the first step().", states_at_once=True),
    ),
)


# sent_bytes: what a rank sends in a step

ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def _measure_sent(ranks: int, layers: int, width: int, dtype: str, frozen: int) -> int:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import vramlab
    from vramlab.measure import record_collectives
    from vramlab.ranks import alone

    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    with vramlab.VirtualGPU("A100-40GB", torch_version=RULES), alone(ranks):
        linears = [torch.nn.Linear(width, width, bias=False, dtype=kind) for _ in range(layers)]
        model = torch.nn.Sequential(*linears).to("cuda")
        del linears
        model[:frozen].requires_grad_(False)
        parallel = DistributedDataParallel(model)
        x = torch.zeros(8, width, dtype=kind, device="cuda")
        parallel(x).sum().backward()
        with record_collectives() as collectives:
            parallel(x).sum().backward()
        sent_bytes = sum(call.sent_bytes for call in collectives.of("all-reduce"))
        del model, parallel, x
    return sent_bytes


def _gradients(layers: int, width: int, dtype: str, frozen: int) -> int:
    return ITEM_BYTES[dtype] * (layers - frozen) * width * width


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
    mistakes=(
        Mistake(
            "You sent everything once. A ring goes round twice: adding up, then handing the sums "
            "on.",
            lambda ranks, **c: (ranks - 1) * _gradients(**c) // ranks,
        ),
        Mistake(
            "You sent everything twice. A piece need not go the whole way round: of N pieces, "
            "N - 1 are sent each time.",
            lambda ranks, **c: 2 * _gradients(**c),
        ),
        Mistake(
            "You sent whole gradients to every other rank. Each sends pieces of 1/N, to its "
            "neighbour only.",
            lambda ranks, **c: (ranks - 1) * _gradients(**c),
        ),
        Mistake(
            "You added up what all ranks send. The question is about one rank.",
            lambda ranks, **c: 2 * (ranks - 1) * _gradients(**c),
        ),
        Mistake(
            "You sent gradients of frozen layers. They have none.",
            lambda ranks, **c: 2 * (ranks - 1) * _gradients(**{**c, "frozen": 0}) // ranks,
        ),
        Mistake(
            "You counted 4 bytes for every number. A gradient has the dtype of its parameter.",
            lambda ranks, **c: 2 * (ranks - 1) * _gradients(**{**c, "dtype": "float32"}) // ranks,
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
    import torch

    import vramlab
    from vramlab.formulas.data_parallel import Classifier
    from vramlab.ranks import alone
    from vramlab.techniques.data_parallel import Training

    sizes = Classifier(1024, layers, classes, states=0)

    def read(training: Training, gpus: Sequence[int]) -> list[tuple[int, int]]:
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
        with vramlab.VirtualGPU(GPU, GPUS, torch_version=RULES):
            training = Training(sizes, batch)
            training.with_data_parallel(GPUS, loss_inside=way == ANSWERS[1])
            readings += read(training, range(GPUS))
            del training
    else:
        for rank in range(GPUS):
            with vramlab.VirtualGPU(GPU, torch_version=RULES), alone(GPUS, rank):
                training = Training(sizes, batch // GPUS)
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


def _outputs_are_gathered(readings: Mapping[str, Any]) -> bool:
    held = readings["after backward"][0] - 2 * readings["parameters"]
    return bool(held >= readings["outputs"])


def _has_both(readings: Mapping[str, Any]) -> bool:
    return bool(readings["after backward"][1] >= 3 * readings["parameters"])


_READ = {"batch": 1024, "layers": 4, "classes": 2048}

WHICH = Diagnose(
    name="which_way",
    points=3,
    minutes=15,
    visible=(
        {"way": ANSWERS[0], **_READ},
        {"way": ANSWERS[1], **_READ},
        {"way": ANSWERS[2], **_READ},
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
            "You took every DataParallel for the plain one. Does GPU 0 still hold the outputs of "
            "the whole batch?",
            lambda readings: (
                ANSWERS[0]
                if _is_data_parallel(readings)
                else ANSWERS[2 if _has_both(readings) else 3]
            ),
        ),
        Mistake(
            "You took GPU 0's larger peak for the loss. With DataParallel gradients are added up "
            "there in any case: look for the outputs.",
            lambda readings: (
                ANSWERS[0]
                if readings["peak"][0] > readings["peak"][1]
                else ANSWERS[2 if _has_both(readings) else 3]
            ),
        ),
        Mistake(
            "You took gradients in buckets for plain DDP. Are there gradients and buckets, or "
            "only one of the two?",
            lambda readings: (
                ANSWERS[0 if _outputs_are_gathered(readings) else 1]
                if _is_data_parallel(readings)
                else ANSWERS[2]
            ),
        ),
        Mistake(
            "You took plain DDP for the one with views. Are there gradients and buckets, or only "
            "one of the two?",
            lambda readings: (
                ANSWERS[0 if _outputs_are_gathered(readings) else 1]
                if _is_data_parallel(readings)
                else ANSWERS[3]
            ),
        ),
    ),
)


# train_step: GPU 0 runs out of memory

WIDTH, CLASSES = 256, 4096
SAME = 1e-6


def _model() -> torch.nn.Sequential:
    import torch

    torch.manual_seed(19)
    linears = [torch.nn.Linear(WIDTH, outputs, bias=False) for outputs in (WIDTH, WIDTH, CLASSES)]
    return torch.nn.Sequential(*linears).to("cuda:0")


def _train_step(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> None:
    """The loss inside: for knowing what it needs."""
    from torch.nn.parallel import DataParallel

    from vramlab.techniques.data_parallel import WithLoss

    DataParallel(WithLoss(model))(x, labels).mean().backward()


def _run_step(train_step: Any, batch: int) -> list[torch.Tensor | None]:
    """Run one step of a fresh model; give its gradients on the host."""
    import torch

    model = _model()
    values = torch.arange(batch * WIDTH, dtype=torch.float32).remainder(251).div(251)
    x = values.reshape(batch, WIDTH).to("cuda:0")
    labels = torch.arange(batch).remainder(CLASSES).to("cuda:0")
    train_step(model, x, labels)
    return [None if p.grad is None else p.grad.cpu() for p in model.parameters()]


def _in_one_process(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> None:
    import torch

    torch.nn.functional.cross_entropy(model(x), labels).backward()


def _try_step(answer: Any, batch: int) -> str:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU, values=True):
        expected = _run_step(_in_one_process, batch)
    with vramlab.VirtualGPU(GPU, GPUS, values=True):
        _run_step(_train_step, batch)
        limit_bytes = max(torch.cuda.max_memory_reserved(gpu) for gpu in range(GPUS)) + 2 * MIB
    with vramlab.VirtualGPU(GPU, GPUS, values=True):
        for gpu in range(GPUS):
            limit_memory(limit_bytes, gpu)
        try:
            learned = _run_step(answer, batch)
        except torch.cuda.OutOfMemoryError as error:
            held = ", ".join(
                format_bytes(torch.cuda.max_memory_allocated(gpu)) for gpu in range(GPUS)
            )
            raise NotFixed(
                f"With {format_bytes(limit_bytes)} on each GPU, it runs out of memory. At their "
                f"peaks the GPUs hold {held}; the outputs of the whole batch are "
                f"{format_bytes(4 * batch * CLASSES)}. What has to be on GPU 0?"
            ) from error
        peaks = [torch.cuda.max_memory_allocated(gpu) for gpu in range(GPUS)]
    for gpu, peak_bytes in enumerate(peaks):
        if peak_bytes < 4 * (batch // GPUS) * CLASSES:
            raise NotFixed(f"It fits, but GPU {gpu} has not computed its share of the rows.")
    for wanted, gradient in zip(expected, learned, strict=True):
        assert wanted is not None
        if gradient is None or not torch.allclose(wanted, gradient, rtol=1e-4, atol=SAME):
            raise NotFixed(
                "It fits, but the gradients are not those of the mean loss of the whole batch."
            )
    return f"peak {format_bytes(max(peaks))} of {format_bytes(limit_bytes)}"


STEP = Fix(
    name="train_step",
    points=4,
    minutes=15,
    visible=({"batch": 1024},),
    hidden=lambda random: [{"batch": 256 * random.randrange(4, 7)}],
    trial=_try_step,
)

EXERCISE = Exercise(
    name="19_dp_and_ddp",
    module=__name__,
    tasks=(HELD, RANK, SENT, WHICH, STEP),
)
