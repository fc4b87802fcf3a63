"""Lesson 18: FLOPs of forward and backward; and the documents' table of methods, from measurements.

One program is trained with one method at a time: a small transformer that predicts tokens, with
AdamW in float32. A cell of the table says whether a method helps, by this rule: it helps a program
if it takes at least 1 % off. It is tried with a small batch and with a large one:

    Yes     it helps both
    (No)    it helps one of them only
    No      it helps neither

Memory is the peak of a step. Speed is the least time of a step for each sequence in it, by the
FLOPs and bytes of its kernels and the figures of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from vramlab.attachment import attached, catalogue_model
from vramlab.cuda_rules.durations import arithmetics_of, copy_seconds
from vramlab.measure import LeastTime, least_time, record_operators, record_transfers
from vramlab.programs.offloading import SavedOnHost
from vramlab_course.experiments.outcome import Difference, Finding, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial
from vramlab_course.lessons.l17_offloading.experiment import PreNormBlock
from vramlab_course.plots.methods import MethodCost
from vramlab_course.programs.unfilled import UnfilledWeights

WIDTH, LAYERS, LENGTH, VOCABULARY = 768, 3, 256, 8192
SMALL, LARGE = 2, 32
"""Sequences in a step."""
HELPS_FROM = 0.01
"""The part that a method has to take off."""


class LanguageModel(nn.Module):
    """Tokens (batch, length) to scores of the next (batch, length, vocabulary)."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            [PreNormBlock(width, max(width // 64, 1)) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.checkpointing = False

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed, run the blocks (each checkpointed if `checkpointing`), score."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


@dataclass(frozen=True)
class Setting:
    """How the program is trained."""

    batch: int
    """Sequences in a step."""
    micro_batches: int = 1
    """Parts that the batch is cut into; their gradients are accumulated."""
    checkpointing: bool = False
    """Whether blocks are recomputed in backward."""
    autocast: bool = False
    """Mixed precision: products in float16, parameters in float32."""
    tf32: bool = False
    """Whether products of float32 matrices run on tensor cores."""
    optimizer: str = "adamw"
    """A name in `OPTIMIZERS`."""
    saved_on_host: bool = False
    """Whether activations wait on the host for backward, in pinned memory."""
    owners: int = 1
    """GPUs that share the optimizer's states; this one updates its part of the parameters."""
    width: int = WIDTH
    layers: int = LAYERS
    length: int = LENGTH
    vocabulary: int = VOCABULARY


OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adamw, fused": partial(torch.optim.AdamW, fused=True),
    "sgd with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "sgd": partial(torch.optim.SGD, lr=0.1),
}


@dataclass(frozen=True)
class MethodReading:
    """One training step, the second, on the attached GPU."""

    setting: Setting
    parameters_bytes: int
    """Of all parameters, in float32."""
    peak_bytes: int
    """The highest allocated bytes, libraries' workspaces included."""
    needed: LeastTime
    """What its kernels need at least, by the attached GPU's entry in the catalogue."""
    elapsed_s: float | None
    """How long it took: on a real GPU only."""
    host_bytes: int = 0
    """To the host and back, both ways together."""
    trips_s: float = 0.0
    """The least time for them; kernels run meanwhile."""

    @property
    def seconds_per_sequence(self) -> float:
        """The least time for each sequence of the batch."""
        return max(self.needed.seconds, self.trips_s) / self.setting.batch


def read_step(setting: Setting) -> MethodReading:
    """Train two steps on the attached GPU, and measure the second; on a real one, time a third.

    Whatever else the program holds on the GPU is not counted.
    """
    torch._C._cuda_clearCublasWorkspaces()  # allocated again, so that each reading counts them
    before_bytes = torch.cuda.memory_allocated()
    with UnfilledWeights():
        model = LanguageModel(setting.width, setting.layers, setting.vocabulary)
    model.to("cuda")
    model.checkpointing = setting.checkpointing
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[setting.optimizer](parameters[:: setting.owners])
    shape = (setting.batch, setting.length)
    tokens = torch.zeros(shape, dtype=torch.long, device="cuda")

    def step() -> None:
        for part in tokens.chunk(setting.micro_batches):
            saving = SavedOnHost(parameters, pin_memory=True) if setting.saved_on_host else None
            with (
                saving or nullcontext(),
                torch.autocast("cuda", torch.float16) if setting.autocast else nullcontext(),
            ):
                scores = model(part)
                loss = cross_entropy(scores.flatten(0, 1), part.flatten())
                del scores
            (loss / setting.micro_batches).backward()
        optimizer.step()
        model.zero_grad()

    step()
    torch.cuda.reset_peak_memory_stats()
    with record_operators() as calls, record_transfers() as transfers:
        step()
    peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
    gpu, host_bytes = catalogue_model(), transfers.to_host_bytes + transfers.to_gpu_bytes
    return MethodReading(
        setting,
        sum(parameter.nbytes for parameter in parameters),
        peak_bytes,
        least_time(calls.calls, gpu, tf32=setting.tf32),
        _time(step, setting.tf32),
        host_bytes,
        copy_seconds(host_bytes, gpu),
    )


read = cache(read_step)
"""`read_step`, once for each setting."""

MIND: Mapping[str, str] = {
    "accumulation": "BatchNorm sees parts",
    "checkpointing": "dropout has to repeat",
    "activations on host": "pinned memory",
    "mixed precision": "underflow: GradScaler",
    "TF32": "10 bits of mantissa",
    "SGD": "needs tuning again",
}
"""What a method asks its user to mind."""


def ways(batch: int) -> dict[str, Setting]:
    """Return the program with one method at a time, of those that the attached GPU has."""
    plain = Setting(batch)
    has_tf32 = "tf32" in arithmetics_of(catalogue_model())
    return {
        "plain": plain,
        "accumulation": replace(plain, micro_batches=max(batch // 4, 2)),
        "checkpointing": replace(plain, checkpointing=True),
        "activations on host": replace(plain, saved_on_host=True),
        "mixed precision": replace(plain, autocast=True),
        **({"TF32": replace(plain, tf32=True)} if has_tf32 else {}),
        "SGD": replace(plain, optimizer="sgd"),
    }


def costs(batch: int) -> dict[str, MethodCost]:
    """Return each way's peak, its least time as a multiple of the plain program's, and copies."""
    readings = {name: read(setting) for name, setting in ways(batch).items()}
    plain_s = readings["plain"].seconds_per_sequence
    return {
        name: MethodCost(
            reading.peak_bytes,
            reading.seconds_per_sequence / plain_s,
            reading.host_bytes,
            MIND.get(name, ""),
        )
        for name, reading in readings.items()
    }


def _time(step: Callable[[], None], tf32: bool) -> float | None:
    """How long a step takes on a real GPU; no time passes on a virtual one."""
    gpu = attached()
    if gpu is None or gpu.virtual:
        return None
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    torch.set_float32_matmul_precision(before)
    return float(start.elapsed_time(end)) / 1000


@experiment(
    "backward-flops",
    lesson="18",
    question="How many times the FLOPs of forward does backward take?",
    source="003",
    figures=("backward-flops",),
    conditions=Conditions(gpu="A100-40GB"),
)
def backward_flops() -> Outcome:
    """Run one layer after an op that needs its gradient, and one that is the first of a model."""
    trial = Trial("backward-flops")
    linear = nn.Linear(512, 1024).to("cuda")
    convolution = nn.Conv2d(64, 128, 3, padding=1).to("cuda")
    images = torch.zeros(8, 64, 56, 56, device="cuda")
    rows = torch.zeros(256, 512, device="cuda")
    for part, layer, x in (("linear", linear, rows), ("convolution", convolution, images)):
        ratio = _backward_over_forward(layer, x.detach().requires_grad_())
        trial.find("backward-flops", ratio, predicted=2.0, part=part)
    first = Difference(
        -1.0,
        "nobody needs the gradient of a model's input: "  # plain-english: ok, as recorded
        "the weight's is all there is",
    )
    ratio = _backward_over_forward(linear, rows)
    trial.find(
        "backward-flops", ratio, predicted=1.0, part="linear, as first layer", differences=[first]
    )
    return trial.outcome()


def _backward_over_forward(layer: nn.Module, x: Tensor) -> float:
    """FLOPs of matrix products in backward, over those in forward."""
    with record_operators() as calls:
        layer(x).sum().backward()
    backward = sum(call.flops or 0 for call in calls.calls if call.backward)
    return backward / (calls.flops - backward)


@dataclass(frozen=True)
class Method:
    """A row of the documents' table, and what is done to a program to apply it."""

    name: str
    """As in the document."""
    memory: Callable[[Setting], Setting]
    """Applies it for less memory."""
    speed: Callable[[Setting], Setting] | None
    """Applies it for more speed. None: that takes several GPUs."""


def _accumulate(setting: Setting) -> Setting:
    return replace(setting, micro_batches=max(setting.batch // 4, 2))


def _checkpoint(setting: Setting) -> Setting:
    return replace(setting, checkpointing=True)


def _mix(setting: Setting) -> Setting:
    return replace(setting, autocast=True)


def _halve(setting: Setting) -> Setting:
    return replace(setting, batch=setting.batch // 2)


def _double(setting: Setting) -> Setting:
    return replace(setting, batch=setting.batch * 2)


def _sgd(setting: Setting) -> Setting:
    return replace(setting, optimizer="sgd")


def _share(setting: Setting) -> Setting:
    return replace(setting, owners=4)


METHODS = (
    Method("Gradient accumulation", _accumulate, _accumulate),
    Method("Gradient checkpointing", _checkpoint, _checkpoint),
    Method("Mixed precision training", _mix, _mix),
    Method("Batch size", _halve, _double),
    Method("Optimizer choice", _sgd, _sgd),
    Method("DeepSpeed ZeRO", _share, None),
)
"""The document's, in its order, without DataLoader, which does not change the program on the GPU.

ZeRO's first stage, on one of four GPUs: it holds a quarter of the optimizer's states."""


@experiment(
    "method-table",
    lesson="18",
    question="Which methods save memory, which save time, and which cost it?",
    source="003",
    figures=("method-table",),
    conditions=Conditions(gpu="A100-40GB"),
)
def method_table() -> Outcome:
    """Run every method of the document's table on one program, with a small and a large batch."""
    trial = Trial("method-table", small=SMALL, large=LARGE, helps_from=HELPS_FROM)
    trial.record(*measure_methods().findings())
    return trial.outcome()


@dataclass(frozen=True)
class MethodTable:
    """What each method changed, as parts of the peak and of the least time: -0.25 for a quarter."""

    memory: Mapping[tuple[str, int], float]
    """By method and batch: on the peak of a step."""
    speed: Mapping[tuple[str, int], float]
    """By method and batch: on the least time for each sequence."""
    without_activations: float
    """How much of the peak with the small batch is parameters, gradients, AdamW's two states, and
    the roots that its step() takes."""

    def word(self, column: Mapping[tuple[str, int], float], method: str) -> str:
        """Word what a method did as the document does, by the rule: Yes, (No) or No."""
        helped = [column[method, batch] <= -HELPS_FROM for batch in (SMALL, LARGE)]
        return "Yes" if all(helped) else "(No)" if any(helped) else "No"

    def findings(self) -> Iterator[Finding]:
        """Yield the document's cells, row by row, compared with the measured ones."""
        for name, (speed, memory) in figure("method-table").value.items():
            for column, published in (("speed", speed), ("memory", memory)):
                yield self._finding(name, column, published)

    def _finding(self, name: str, column: str, published: str) -> Finding:
        effects = self.speed if column == "speed" else self.memory
        known = (name, LARGE) in effects
        measured = self.word(effects, name) if known else None
        why = self._why(name, column) if known and measured != published else None
        return Finding(
            figure="method-table",
            published=published,
            unit="",
            source=figure("method-table").source,
            measured=measured,
            part=f"{name}, {column}",
            differences=() if why is None else (Difference(0, why),),
            note="" if known else "what GPUs exchange, and how long it takes, is lesson 20's",
            quoted=not known,
        )

    def _why(self, name: str, column: str) -> str | None:
        """Why a cell reads otherwise here, as far as it was measured."""
        if (name, column) == ("DataLoader", "speed"):
            return (
                "its workers save the host's time, which is in no figure of the GPU; what pinned "
                f"memory hides of the inputs' way is {-self.speed[name, LARGE]:.4%} of this step"
            )
        if column == "memory" and self.memory[name, LARGE] <= -HELPS_FROM:
            return (
                f"with {SMALL} sequences the peak is in AdamW's step(), after all activations: "
                f"{self.without_activations:.0%} are parameters, gradients, states and their roots"
            )
        return None


def measure_methods(read: Callable[[Setting], MethodReading] = read_step) -> MethodTable:
    """Train the program with each method on the attached GPU.

    Args:
        read: reads one step, such as `read_step`, or a cache of it.
    """
    memory: dict[tuple[str, int], float] = {}
    speed: dict[tuple[str, int], float] = {}
    read = cache(read)
    for batch in (SMALL, LARGE):
        plain = Setting(batch)
        for method in METHODS:
            before, after = read(plain), read(method.memory(plain))
            memory[method.name, batch] = after.peak_bytes / before.peak_bytes - 1
            if method.speed is not None:
                ratio = read(method.speed(plain)).seconds_per_sequence / before.seconds_per_sequence
                speed[method.name, batch] = ratio - 1
        memory["DataLoader", batch], speed["DataLoader", batch] = _loader(read(plain))
    small = read(Setting(SMALL))
    return MethodTable(memory, speed, 5 * small.parameters_bytes / small.peak_bytes)


def _loader(plain: MethodReading) -> tuple[float, float]:
    """Return what fetching the batch by a DataLoader with pinned memory changes: (memory, speed).

    Without it the step waits for its inputs' way; with it they come while the GPU computes.
    """
    setting, gpu = plain.setting, catalogue_model()
    dataset = TensorDataset(torch.zeros(setting.batch, setting.length, dtype=torch.long))
    taken, waits = [], []
    for pin_memory in (False, True):
        before_bytes = torch.cuda.memory_allocated()
        loader = DataLoader(dataset, setting.batch, pin_memory=pin_memory)
        with record_transfers() as transfers:
            for (tokens,) in loader:
                on_gpu = tokens.to("cuda", non_blocking=True)
                taken.append(torch.cuda.memory_allocated() - before_bytes)
                del on_gpu
        waits.append(copy_seconds(transfers.waited_for_bytes, gpu))
    (plain_bytes, pinned_bytes), (plain_s, pinned_s) = taken, waits
    needed_s = plain.needed.seconds
    return (
        (pinned_bytes - plain_bytes) / plain.peak_bytes,
        (needed_s + pinned_s) / (needed_s + plain_s) - 1,
    )
