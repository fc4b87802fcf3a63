"""The running model of parts 2 to 4: its training step, as each lesson in turn leaves it.

    stops = measure_journey(until="09")
    stops[-1].bytes_by_category["activations"]

A small Llama is trained in float32 with AdamW, eight texts at a time. Each stop keeps what those
before have changed. What is measured is the peak of a step on a virtual GPU, when the optimizer has
its states. Of a step in many micro-batches the last is run: from the second on, gradients are there
all the time, and each is like the one before.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from vramlab.gpu import VirtualGPU
from vramlab.measure import Category, record_timeline
from vramlab.measure.categories import blocks_by_category
from vramlab.planner.models import llama_sizes
from vramlab.programs.transformer import Transformer
from vramlab.programs.transformer_memory import Attention, Checkpointing
from vramlab_course.programs.blockwise_adam import BlockwiseAdamW

GPU = "A100-80GB"
MODEL = llama_sizes(32_000, 2048, 4, 32, 5632, 4)
"""Llama's form, in the width of TinyLlama (arXiv 2401.02385, table 1), with 4 of its 22 layers."""
BATCH, LENGTH = 8, 2048

Optimizer = Literal["adamw", "fused", "8 bit", "on the host"]


@dataclass(frozen=True)
class JourneySetting:
    """How the running model is trained."""

    batch: int = BATCH
    """Texts of a step."""
    at_a_time: int = BATCH
    """Texts of a micro-batch."""
    attention: Attention = "eager"
    checkpointing: Checkpointing = "none"
    autocast: bool = False
    """Products in bfloat16."""
    optimizer: Optimizer = "adamw"
    """AdamW as PyTorch makes it; in one kernel; with states of 8 bits; or on the host, which takes
    gradients as they come."""


@dataclass(frozen=True)
class JourneyStop:
    """The running model after a lesson.

    Attributes:
        lesson: its number, such as '09'.
        change: what it changed, in a few words.
        setting: how the model is trained from there on.
        bytes_by_category: at the peak of a step; empty before it is measured.
    """

    lesson: str
    change: str
    setting: JourneySetting
    bytes_by_category: dict[str, int] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """Sum of all categories, without unsplit remainders."""
        return sum(self.bytes_by_category.values())


def _stops(*changes: tuple[str, str, dict[str, object]]) -> Iterable[JourneyStop]:
    setting = JourneySetting()
    for lesson, words, changed in changes:
        setting = replace(setting, **changed)  # type: ignore[arg-type]
        yield JourneyStop(lesson, words, setting)


STOPS: tuple[JourneyStop, ...] = tuple(
    _stops(
        ("04", "as first written", {}),
        ("09", "attention by a fused kernel", {"attention": "efficient"}),
        ("10", "2 texts instead of 8", {"batch": 2, "at_a_time": 2}),
        ("13", "8 texts again, 1 by 1", {"batch": BATCH, "at_a_time": 1}),
        ("14", "layers recomputed, AdamW fused", {"checkpointing": "full", "optimizer": "fused"}),
        ("15", "products in bfloat16", {"autocast": True}),
        ("16", "states of 8 bits", {"optimizer": "8 bit"}),
        ("17", "optimizer on the host", {"optimizer": "on the host"}),
    )
)
"""In the order of the lessons. Lessons that are not here change nothing."""

EXPLAINED: dict[str, tuple[Category, ...]] = {
    "04": (Category.PARAMETERS,),
    "05": (Category.GRADIENTS, Category.INPUTS, Category.WORKSPACES, Category.TEMPORARIES),
    "06": (Category.OPTIMIZER_STATES,),
    "08": (Category.ACTIVATIONS,),
}
"""Which categories part 2 explains where; after it nothing is left."""


def explained_by(lesson: str) -> set[Category]:
    """Return the categories that a lesson, and those before it, have explained."""
    return {
        category
        for number, categories in EXPLAINED.items()
        if number <= lesson
        for category in categories
    }


def measure_journey(until: str) -> list[JourneyStop]:
    """Measure the stops up to a lesson, each on a fresh virtual GPU.

    Args:
        until: the lesson's number, such as '09'.

    Raises:
        ValueError: the journey begins later.
    """
    stops = [stop for stop in STOPS if stop.lesson <= until]
    if not stops:
        raise ValueError(f"lesson {until!r}: the journey begins in lesson {STOPS[0].lesson}")
    return [replace(stop, bytes_by_category=measure_setting(stop.setting)) for stop in stops]


def measure_setting(setting: JourneySetting) -> dict[str, int]:
    """Measure the peak of a training step, by category."""
    with VirtualGPU(GPU, alloc_conf=""):
        return _RunningModel(setting).measure()


class _RunningModel:
    """The model with its optimizer, on the current GPU."""

    def __init__(self, setting: JourneySetting) -> None:
        self.setting = setting
        with torch.device("cuda"):
            self.model = Transformer(
                MODEL,
                attention=setting.attention,
                dropout=0.0,
                checkpointing=setting.checkpointing,
            )
            shape = setting.at_a_time, LENGTH
            self.tokens = torch.zeros(shape, dtype=torch.long)
        self.optimizer = self._make_optimizer()

    def measure(self) -> dict[str, int]:
        """Take a step, and give the bytes at its peak by category."""
        if self.setting.at_a_time < self.setting.batch and self.optimizer is not None:
            self._give_gradients()  # of the micro-batches before
        with record_timeline() as recording:
            recording.watch(model=self.model, inputs=self.tokens, states=self._states())
            self._loss().backward()
            if self.optimizer is not None:
                self.optimizer.step()
        timeline = recording.timeline
        return blocks_by_category(timeline, timeline.peak().position)

    def _give_gradients(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def _loss(self) -> Tensor:
        with self._precision():
            loss: Tensor = self.model(self.tokens, self.tokens)
        return loss

    def _precision(self) -> AbstractContextManager[object]:
        if not self.setting.autocast:
            return nullcontext()
        return torch.autocast("cuda", dtype=torch.bfloat16)

    def _make_optimizer(self) -> torch.optim.Optimizer | None:
        """Return an optimizer that has its states already; None where the host has it."""
        parameters = list(self.model.parameters())
        if self.setting.optimizer == "on the host":
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(_leave_for_the_host)
            return None
        optimizer: torch.optim.Optimizer
        if self.setting.optimizer == "8 bit":
            optimizer = BlockwiseAdamW(parameters)
        else:
            optimizer = torch.optim.AdamW(
                parameters, fused=self.setting.optimizer == "fused" or None
            )
        self._give_gradients()
        optimizer.step()
        optimizer.zero_grad()
        return optimizer

    def _states(self) -> list[Tensor]:
        """Return the optimizer's states for each parameter; 8-bit states are tuples of tensors."""
        kept = [] if self.optimizer is None else self.optimizer.state.values()
        parts = [part for state in kept for part in state.values()]
        flat = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        return [each for each in flat if isinstance(each, Tensor)]


def _leave_for_the_host(parameter: Tensor) -> None:
    """Let go of a gradient. What the host does with it takes nothing on the GPU."""
    parameter.grad = None
