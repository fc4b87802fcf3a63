"""What tools are asked about: the documents' models, with the input and the step of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vramlab_course.experiments.bert import BATCH as BERT_BATCH
from vramlab_course.experiments.bert import SEQUENCE as BERT_SEQUENCE
from vramlab_course.experiments.bert import bert_base
from vramlab_course.experiments.training_step import (
    BATCH,
    FP16_APPLICATIONS,
    FP16_BATCH,
    FP16_WIDTH,
    WIDTHS,
)
from vramlab_course.programs.documents import RepeatedLinear, linear_net

Quantity = Literal[
    "parameters",
    "input",
    "forward",
    "after forward",
    "after loss",
    "after backward",
    "optimizer",
    "peak",
    "reserved",
]
"""What a number is about; `QUANTITIES` says it in words."""

QUANTITIES: dict[Quantity, str] = {
    "parameters": "growth of allocated memory when the model comes to the GPU",
    "input": "growth when the input comes",
    "forward": "growth over a forward pass",
    "after forward": "allocated after a forward pass",
    "after loss": "allocated when the loss is there",
    "after backward": "allocated after the backward pass",
    "optimizer": "growth over the optimizer's first step",
    "peak": "highest allocated memory of the training step",
    "reserved": "memory that the caching allocator has reserved at the end",
}


@dataclass(frozen=True)
class Transformer:
    """The sizes that formulas for transformers ask for."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    batch: int
    sequence: int


Batch = Tensor | Mapping[str, Tensor]
"""What a model is called with: its one argument, or its arguments by name."""


def tensors_of(batch: Batch) -> list[Tensor]:
    """Return the tensors of a batch."""
    return [batch] if isinstance(batch, Tensor) else list(batch.values())


@dataclass(frozen=True)
class Program:
    """A model and one step of it.

    Attributes:
        name: as the experiment it belongs to.
        model: builds the model on the default device.
        batch: builds the input there.
        loss: what is differentiated, from the model's output.
        optimizer: makes it from parameters; None if the step ends with the forward pass.
        grad: whether the forward pass is recorded for a backward pass.
        precision: of weights and computation; `autocast-...` has weights in float32.
        adam: whether the optimizer is Adam or AdamW.
        checkpointing: whether activations are computed again in the backward pass.
        transformer: its sizes, if it is one stack of transformer layers.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[[Any], Tensor] = torch.sum
    optimizer: Callable[..., torch.optim.Optimizer] | None = None
    grad: bool = True
    precision: Literal["fp32", "fp16", "bf16", "autocast-fp16", "autocast-bf16"] = "fp32"
    adam: bool = False
    checkpointing: bool = False
    transformer: Callable[[], Transformer | None] = lambda: None

    def build(self, device: str) -> tuple[nn.Module, Batch]:
        """Make model and input on a device: on meta at once, on a GPU by way of the host."""
        with torch.device("meta" if device == "meta" else "cpu"):
            model, batch = self.model(), self.batch()
        if isinstance(batch, Tensor):
            return model.to(device), batch.to(device)
        return model.to(device), {name: tensor.to(device) for name, tensor in batch.items()}

    def run(self, model: nn.Module, batch: Batch) -> Any:
        """Run the forward pass, and return its output."""
        with torch.set_grad_enabled(self.grad):
            return model(batch) if isinstance(batch, Tensor) else model(**batch)

    @property
    def trains(self) -> bool:
        """Whether it has a whole training step."""
        return self.optimizer is not None


def _sum_of_hidden_states(output: Any) -> Tensor:
    total: Tensor = output.last_hidden_state.sum()
    return total


def _zeros(*size: int, dtype: torch.dtype = torch.float32) -> Callable[[], Tensor]:
    return lambda: torch.zeros(*size, dtype=dtype)


def _long_bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    settings = {"attn_implementation": "eager", "max_position_embeddings": _LONGEST}
    model: nn.Module = BertModel(BertConfig.from_dict(settings))
    return model.train()


_LONGEST = 2560
LENGTHS = (512, 1024, 2048)
"""Where the published curve of memory over the sequence's length is read: 64 to 2560 were run."""

_BERT = Transformer(
    layers=12,
    hidden=768,
    heads=12,
    feed_forward=3072,
    vocabulary=30522,
    batch=BERT_BATCH,
    sequence=BERT_SEQUENCE,
)

PROGRAMS = {
    program.name: program
    for program in (
        Program("tiny", nn.Identity, lambda: torch.tensor([1.0])),
        Program(
            "three-linear",
            lambda: linear_net(WIDTHS),
            _zeros(BATCH, WIDTHS[0]),
            optimizer=torch.optim.AdamW,
            adam=True,
        ),
        Program(
            "three-linear-inference",
            lambda: linear_net(WIDTHS),
            _zeros(BATCH, WIDTHS[0]),
            grad=False,
        ),
        Program(
            "fp16-linear",
            lambda: RepeatedLinear(FP16_APPLICATIONS, FP16_WIDTH),
            _zeros(FP16_BATCH, FP16_WIDTH, dtype=torch.float16),
            optimizer=torch.optim.Adam,
            precision="fp16",
            adam=True,
        ),
        Program(
            "bert-training",
            bert_base,
            _zeros(BERT_BATCH, BERT_SEQUENCE, dtype=torch.long),
            _sum_of_hidden_states,
            torch.optim.AdamW,
            adam=True,
            transformer=lambda: _BERT,
        ),
        Program(
            "bert-inference",
            bert_base,
            _zeros(BERT_BATCH, BERT_SEQUENCE, dtype=torch.long),
            grad=False,
            transformer=lambda: _BERT,
        ),
        *(
            Program(
                f"bert-length-{length}",
                _long_bert,
                _zeros(1, length, dtype=torch.long),
            )
            for length in LENGTHS
        ),
    )
}
"""The documents' programs, by name."""
