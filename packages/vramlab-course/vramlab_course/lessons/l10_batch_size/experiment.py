"""Lesson 10: BERT-base's memory against the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vramlab.cuda_rules.reduce import COLUMNS_PER_BLOCK
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.measure.environment import GPUEnvironment
from vramlab.programs.optimizer_states import adam_step_extra_bytes, state_bytes
from vramlab_course.experiments.bert import SEQUENCE, bert_base
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import FIRST_LINEAR, SECOND_LINEAR, Bert
from vramlab_course.formulas.packing import packed
from vramlab_course.formulas.training import SCALAR_BYTES

BATCHES = (1, 2, 4, 8, 16, 24, 32)


@experiment(
    "bert-batch",
    lesson="10",
    question="How does BERT-base's memory grow with the batch?",
    source="001 §2.43",
    figures=("bert-batch-linear",),
    conditions=Conditions(
        why="the document shows a picture and says O(n); its mode and optimizer are not named. In "
        "train mode, or on another GPU, the line is another one, but a line; it takes 16 GiB",
    ),
)
def bert_batch(batches: Sequence[int] = BATCHES, *, train: bool = False) -> Outcome:
    """Run a training step of BERT-base with AdamW for one batch after the other, 512 tokens each.

    Workspaces and optimizer states come in a step before the first that is measured. Every batch
    starts with an empty cache and no gradients. What blocks hold because it was not split off is
    read from torch's counters, and added to the predictions.

    Args:
        batches: in growing order; three or more, or nothing can be said of the shape.
        train: the model's mode; eval by default, as in the document's table.
    """
    trial = Trial("bert-batch", batches=list(batches), train=train)
    sizes, here = Bert(), trial.environment
    workspaces_bytes = here.linear_workspace_bytes() + here.matmul_workspace_bytes()
    # The pooler's output is not in the loss: its two parameters get no gradient, and no states.
    trained_bytes = [tensor_bytes(shape) for shape in sizes.parameter_shapes(pooler=False)]
    states_bytes = state_bytes("adamw", trained_bytes)

    with trial.stage("parameters", expected("growth", packed(sizes.model_requests_bytes())[0])):
        model = bert_base().train(train).to("cuda")
    remainder_before_bytes = unsplit_remainder_bytes()
    with trial.stage("workspaces, optimizer states") as states:
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        _train(model, optimizer, 1)
    remainder_bytes = unsplit_remainder_bytes() - remainder_before_bytes
    states.expect(expected("growth", workspaces_bytes + states_bytes + remainder_bytes))
    fixed_bytes = sum(map(block_bytes, sizes.model_requests_bytes()))
    fixed_bytes += workspaces_bytes + states_bytes

    kept_bytes = []
    for batch in batches:
        tokens_bytes = block_bytes(tensor_bytes((batch, SEQUENCE), "int64"))
        torch.cuda.empty_cache()
        remainder_before_bytes = unsplit_remainder_bytes()
        with trial.stage(f"batch {batch}: forward") as forward:
            outputs = model(_tokens(batch))
        remainder_bytes = unsplit_remainder_bytes() - remainder_before_bytes
        predicted_bytes = sizes.forward_bytes(batch, SEQUENCE, train=train) + tokens_bytes
        forward.expect(expected("growth", predicted_bytes + remainder_bytes))
        kept_bytes.append(forward.measurement.growth_bytes - remainder_bytes)
        del outputs

        torch.cuda.empty_cache()
        with trial.stage(f"batch {batch}: step") as step:
            _train(model, optimizer, batch)
        peak = step_peak(sizes, here, batch, trained_bytes, train=train)
        remainder_bytes = _not_asked_for_at_peak() - peak.rounding_bytes
        predicted_bytes = fixed_bytes + tokens_bytes + peak.size_bytes
        step.expect(expected("peak", predicted_bytes + remainder_bytes))
    trial.find(
        "bert-batch-linear",
        shape(batches, kept_bytes),
        predicted=shape(
            batches, [sizes.forward_bytes(batch, SEQUENCE, train=train) for batch in batches]
        ),
        part="after the forward pass",
    )
    return trial.outcome()


@dataclass(frozen=True)
class StepPeak:
    """The highest moment of a training step, in closed form."""

    moment: str
    """Where it is."""
    size_bytes: int
    """Activations, gradients and temporaries there; nothing that is there at every moment."""
    rounding_bytes: int
    """What of it is rounding up to 512 B: of single numbers, and of the counters of a sum."""


STEP = "the optimizer's step"


def step_peak(
    sizes: Bert, here: GPUEnvironment, batch: int, trained_bytes: Sequence[int], *, train: bool
) -> StepPeak:
    """Return where a step with AdamW (foreach) peaks: in the backward pass, or in the optimizer.

    The states are there already.

    Args:
        sizes: of the BERT.
        here: what decides over the buffers of sums.
        batch: sequences of 512 tokens; two or more, or the peak is the optimizer's.
        trained_bytes: sizes of the parameters that get gradients.
        train: the model's mode.
    """
    moments = sizes.backward_moments(batch, SEQUENCE, here.column_sum_bytes, train=train)
    gradients_bytes = sum(map(block_bytes, trained_bytes))
    roots_bytes = adam_step_extra_bytes(trained_bytes, "foreach")
    moments[STEP] = SCALAR_BYTES + gradients_bytes + roots_bytes
    moment = max(moments, key=lambda name: moments[name])

    number_bytes = SCALAR_BYTES - tensor_bytes(())
    rounding_bytes = number_bytes if moment == STEP else 2 * number_bytes  # loss, its gradient
    columns = {SECOND_LINEAR: sizes.width, FIRST_LINEAR: sizes.feed_forward}.get(moment, 0)
    if columns and here.column_sum_bytes(batch * SEQUENCE, columns):
        counters_bytes = tensor_bytes((columns // COLUMNS_PER_BLOCK,))
        rounding_bytes += block_bytes(counters_bytes) - counters_bytes
    return StepPeak(moment, moments[moment], rounding_bytes)


def shape(xs: Sequence[int], ys: Sequence[int]) -> str:
    """Tell 'linear' if all points lie on one straight line exactly, else 'not linear'."""
    (x0, x1), (y0, y1) = xs[:2], ys[:2]
    straight = all(
        (y - y0) * (x1 - x0) == (x - x0) * (y1 - y0) for x, y in zip(xs, ys, strict=True)
    )
    return "linear" if straight else "not linear"


def _tokens(batch: int) -> torch.Tensor:
    return torch.zeros((batch, SEQUENCE), dtype=torch.long, device="cuda")


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> None:
    tokens = _tokens(batch)
    loss = model(tokens).last_hidden_state.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _not_asked_for_at_peak() -> int:
    """Allocated less requested bytes at the peak: rounding, and unsplit remainders."""
    stats = torch.cuda.memory_stats()
    return int(stats["allocated_bytes.all.peak"] - stats["requested_bytes.all.peak"])
