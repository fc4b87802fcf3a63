"""Lesson 13: what gradient accumulation saves, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.training_step import BATCH, WIDTHS
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import Bert
from vramlab_course.formulas.packing import packed
from vramlab_course.formulas.training import SCALAR_BYTES, LinearChain
from vramlab_course.lessons.l13_gradient_accumulation.formulas import micro_batch_peak_bytes
from vramlab_course.programs.documents import linear_net
from vramlab_course.programs.unfilled import UnfilledWeights


@experiment(
    "accumulation-linear",
    lesson="13",
    question="Accumulated gradients take no extra memory: is that so?",
    source="002",
)
def accumulation_linear(
    batch: int = BATCH, steps: int = 4, widths: tuple[int, ...] = WIDTHS
) -> Outcome:
    """Train document 001's Linear model with a whole batch, and with the same in micro-batches.

    Args:
        batch: rows of the whole batch.
        steps: micro-batches it is cut into; it must divide the batch.
        widths: of the input and of each layer's output.
    """
    trial = Trial("accumulation-linear", batch=batch, steps=steps, widths=list(widths))
    here = trial.environment
    whole = LinearChain(batch, widths)
    micro = replace(whole, batch=batch // steps)
    workspaces_bytes = here.linear_workspace_bytes() + here.matmul_workspace_bytes()
    after_bytes = 2 * whole.parameters_bytes + workspaces_bytes

    def peak_bytes(chain: LinearChain, accumulated: bool) -> int:
        backward_bytes = micro_batch_peak_bytes(
            chain, here.column_sum_bytes, accumulated=accumulated
        )
        return backward_bytes + workspaces_bytes

    with trial.stage("model", expected("growth", whole.parameters_bytes)):
        model = linear_net(widths).to("cuda")
    with trial.stage(
        "whole batch",
        expected("peak", peak_bytes(whole, False)),
        expected("allocated", after_bytes),
    ):
        _learn(model, torch.zeros(batch, widths[0]))
    model.zero_grad()
    rows = torch.zeros(batch // steps, widths[0])
    with trial.stage("first micro-batch", expected("peak", peak_bytes(micro, False))):
        _learn(model, rows)
    for number in range(2, steps + 1):
        with trial.stage(f"micro-batch {number}", expected("peak", peak_bytes(micro, True))):
            _learn(model, rows)
    return trial.outcome()


def _learn(model: nn.Module, rows: Tensor) -> None:
    """Add the gradients of one (micro-)batch; nothing else of it stays."""
    x = rows.to("cuda")
    y = model(x)
    loss = y.sum()
    loss.backward()


# ---- Document 001's runs with the Trainer ----

SEQUENCE = 512
BERT_LARGE = Bert(width=1024, layers=24, heads=16, feed_forward=4096)
"""bert-large-uncased: arXiv 1810.04805 §3."""
LABELS = 2


def attention_of_2023(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float = 1.0,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend step by step, as BertSelfAttention of transformers 4.30 (June 2023) did.

    Names decide what is there for how long: the scaled scores keep theirs until the end. Shapes:
    (batch, heads, length, width of a head).
    """
    scores = query @ key.transpose(-1, -2)
    scores = scores * scaling
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, dropout, module.training)
    context = weights @ value
    return context.transpose(1, 2).contiguous(), None


def bert_large_classifier() -> nn.Module:
    """Make BERT-large with a classifier, in train mode, as the Trainer does.

    On the host, with `UnfilledWeights`.
    """
    from transformers import AttentionInterface, BertConfig, BertForSequenceClassification

    AttentionInterface.register("attention of 2023", attention_of_2023)
    config = BertConfig.from_dict(
        {
            "hidden_size": BERT_LARGE.width,
            "num_hidden_layers": BERT_LARGE.layers,
            "num_attention_heads": BERT_LARGE.heads,
            "intermediate_size": BERT_LARGE.feed_forward,
            "attn_implementation": "attention of 2023",
        }
    )
    with UnfilledWeights():
        model: nn.Module = BertForSequenceClassification(config)
    return model.train()


class TransformersAdamW(torch.optim.Optimizer):
    """What transformers' own AdamW took: a loop, with one square root at a time.

    It was the Trainer's default until 2023. Only its memory counts here; weight decay is 0.

    Source: `AdamW.step` in transformers/optimization.py, version 4.30.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 5e-5})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
            square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            denominator = square.sqrt().add_(1e-6)
            parameter.addcdiv_(mean, denominator, value=-5e-5)


@dataclass(frozen=True)
class AccumulationRun:
    """One of the document's runs."""

    name: str
    figure: str
    micro_batch: int
    steps: int
    """Micro-batches for one step of the optimizer."""
    updates: int
    """Steps of the optimizer after which nothing changes any more."""


TRAININGS = (
    AccumulationRun("batch 4", "accumulation-baseline", 4, 1, 3),
    AccumulationRun("batch 1, 4 times", "accumulation-4", 1, 4, 2),
)


@experiment(
    "accumulation-bert-large",
    lesson="13",
    question="What did accumulation save where the Trainer's 11539 MiB became 7343?",
    source="001 §4.1",
    figures=("accumulation-baseline", "accumulation-4"),
    conditions=Conditions(
        gpu="T4",
        why="3.01 samples a second in float32 are 3 TFLOP/s for BERT-large, which a T4 reaches; "
        "gradients that are None between steps (PyTorch 2.0 or later) fit, kept ones do not",
    ),
)
def accumulation_bert_large(set_to_none: bool = True) -> Outcome:
    """Repeat the document's two runs, as a plain loop that allocates what the Trainer allocates.

    The Trainer itself would need the accelerate package; its loop is: forward, loss / steps,
    backward, clip, step, zero_grad. Both trainings begin with an empty cache.

    Args:
        set_to_none: whether gradients are None after a step, the default since PyTorch 2.0. With
            False they are kept and filled with zeros, and the difference between the runs is
            another one than published.
    """
    trial = Trial("accumulation-bert-large", set_to_none=set_to_none)
    requests_bytes = BERT_LARGE.model_requests_bytes()
    requests_bytes += [tensor_bytes((LABELS, BERT_LARGE.width)), tensor_bytes((LABELS,))]
    workspace_bytes = trial.environment.linear_workspace_bytes()
    with trial.stage("model", expected("growth", packed(requests_bytes)[0])):
        model = bert_large_classifier().to("cuda")
    for training in TRAININGS:
        tokens = torch.zeros((training.micro_batch, SEQUENCE), dtype=torch.long, device="cuda")
        labels = torch.zeros(training.micro_batch, dtype=torch.long, device="cuda")
        with trial.stage(
            f"{training.name}: forward",
            expected("growth", _kept_bytes(training.micro_batch) + workspace_bytes),
        ):
            loss = model(input_ids=tokens, labels=labels).loss
        del loss
        with trial.stage(f"{training.name}: training") as run:
            _train(model, tokens, labels, training, set_to_none)
        model.zero_grad()
        del tokens, labels
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        _find(trial, training, run.measurement.device_used_after_bytes)
    return trial.outcome()


def _kept_bytes(batch: int) -> int:
    """Return what BERT-large keeps with a classifier on top, the loss included."""
    pooled_mask_bytes = block_bytes(tensor_bytes((batch, BERT_LARGE.width), "bool"))
    scores_bytes = block_bytes(tensor_bytes((batch, LABELS)))
    return (
        BERT_LARGE.forward_bytes(batch, SEQUENCE, train=True)
        + BERT_LARGE.pooled_bytes(batch)  # dropped
        + pooled_mask_bytes
        + scores_bytes  # log softmax; the classifier's output is gone
        + 2 * SCALAR_BYTES  # the loss, and the sum of the weights of the classes
    )


def _train(
    model: nn.Module, tokens: Tensor, labels: Tensor, training: AccumulationRun, set_to_none: bool
) -> None:
    optimizer = TransformersAdamW(model.parameters())
    for _ in range(training.updates):
        for _ in range(training.steps):
            loss = model(input_ids=tokens, labels=labels).loss / training.steps
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)


_UNKNOWN_GPU = (
    "whole-process memory of a GPU, driver and PyTorch that the document does not name: what is "
    "outside of PyTorch's allocator is unknown, but the same in both runs. Compare their difference"
)
_TIME = "time on a GPU that the document does not name"


def _find(trial: Trial, training: AccumulationRun, used_bytes: int) -> None:
    trial.find(
        training.figure,
        used_bytes,
        index=0,
        part="memory",
        note=_UNKNOWN_GPU,
        quoted=True,
    )
    for index, part in ((1, "time"), (2, "samples per second")):
        trial.find(training.figure, None, index=index, part=part, note=_TIME, quoted=True)


def published_difference_bytes() -> int:
    """Return how much less the document's second run took: 4196 MiB."""
    before, after = (figure(training.figure).nearest_bytes(0) for training in TRAININGS)
    return before - after
