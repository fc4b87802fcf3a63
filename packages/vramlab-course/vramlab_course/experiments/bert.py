"""Lessons 07 and 09: BERT-base, as document 001 measures it, in inference and in training."""

from __future__ import annotations

import torch
from torch import nn

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.programs.optimizer_states import state_bytes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.training_step import workspaces_differ
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import Bert
from vramlab_course.formulas.packing import packed
from vramlab_course.formulas.training import SCALAR_BYTES
from vramlab_course.programs.unfilled import UnfilledWeights

BATCH, SEQUENCE = 32, 512
DOCUMENTS_REMAINDERS_BYTES = 10_747_904
"""What of the document's 841.0273 MiB is not AdamW's states: 881,881,088 B less 871,133,184 B."""

_CONDITIONS = Conditions(
    why="eval mode, as from_pretrained leaves a model, and attention step by step, as transformers "
    "computed BERT's then; it takes 15 GiB",
)


def bert_base() -> nn.Module:
    """Make BERT-base from its configuration: nothing is downloaded.

    On the host, its weights are `UnfilledWeights`: what it takes is asked for, not what it says.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig.from_dict({"attn_implementation": "eager"})
    with UnfilledWeights():
        model: nn.Module = BertModel(config)
    return model.eval()


@experiment(
    "bert-training",
    lesson="09",
    question="What does a training step of BERT-base hold?",
    source="001 §2.41",
    figures=("bert-params", "bert-input", "bert-forward", "bert-after-backward", "bert-adamw"),
    conditions=_CONDITIONS,
)
def bert_training() -> Outcome:
    """Train BERT-base for one step, with a batch of 32 of 512 tokens.

    The forward pass runs twice, as the document did with its Linear model to see it without the
    workspace. It matters: what is in the cache decides which remainders are not split off, and
    AdamW's 841.0273 MiB hold 10.25 MiB of such remainders. They are read from torch's snapshot, and
    added to the prediction.
    """
    trial = Trial("bert-training")
    sizes = Bert()
    here = trial.environment
    model_bytes, _ = packed(sizes.model_requests_bytes())
    input_bytes = tensor_bytes((BATCH, SEQUENCE), "int64")
    kept_bytes = sizes.forward_bytes(BATCH, SEQUENCE)
    workspace_bytes = here.linear_workspace_bytes()
    workspaces_bytes = workspace_bytes + here.matmul_workspace_bytes()
    # The pooler's output is not in the loss: its two parameters get no gradient, and no states.
    trained_bytes = [tensor_bytes(shape) for shape in sizes.parameter_shapes(pooler=False)]
    with trial.stage("parameters", expected("growth", model_bytes, "bert-params")):
        model = bert_base().to("cuda")
    with trial.stage("input", expected("growth", input_bytes, "bert-input")):
        tokens = torch.zeros((BATCH, SEQUENCE), dtype=torch.long).to("cuda")
    with trial.stage(
        "forward",
        expected(
            "growth",
            kept_bytes + workspace_bytes,
            "bert-forward",
            differences=[gathered_types(), workspaces_differ(workspace_bytes, 1)],
        ),
    ):
        outputs = model(tokens)
    del outputs
    with trial.stage("forward again", expected("growth", kept_bytes)):
        outputs = model(tokens)
    before_bytes = unsplit_remainder_bytes()
    with trial.stage("loss and backward") as backward:
        loss = outputs.last_hidden_state.sum()
        loss.backward()
    remainder_bytes = unsplit_remainder_bytes()
    held_bytes = (
        model_bytes
        + input_bytes
        + sum(map(block_bytes, trained_bytes))
        + sizes.output_bytes(BATCH, SEQUENCE)
        + SCALAR_BYTES
        + workspaces_bytes
    )
    backward.expect(
        expected(
            "allocated",
            held_bytes + remainder_bytes - before_bytes,
            "bert-after-backward",
            differences=[workspaces_differ(workspaces_bytes, 2)],
        )
    )
    with trial.stage("AdamW's step") as step:
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
    step.expect(
        expected(
            "growth",
            state_bytes("adamw", trained_bytes) + unsplit_remainder_bytes() - remainder_bytes,
            "bert-adamw",
            differences=[_remainders_differ(unsplit_remainder_bytes() - remainder_bytes)],
        )
    )
    return trial.outcome()


def _remainders_differ(here_bytes: int) -> Difference:
    """Unsplit remainders here against those that the document's states came with."""
    return Difference(
        here_bytes - DOCUMENTS_REMAINDERS_BYTES,
        f"unsplit remainders: {here_bytes:,} B here, {DOCUMENTS_REMAINDERS_BYTES:,} B "
        "in the document. Which of several equal blocks serves depends, up to PyTorch 2.11, on "
        "where the driver puts segments: on an H200 they were 11,272,192 B",
        "recording h200-torch2.11.0.json; get_free_block in c10/cuda/CUDACachingAllocator.cpp",
    )


@experiment(
    "bert-inference",
    lesson="07",
    question="What does inference with BERT-base hold?",
    source="001 §2.42",
    figures=("bert-inference",),
    conditions=_CONDITIONS,
)
def bert_inference() -> Outcome:
    """Run BERT-base under no_grad, 32 of 512 tokens: the outputs are all that stays."""
    trial = Trial("bert-inference")
    sizes = Bert()
    workspace_bytes = trial.environment.linear_workspace_bytes()
    with trial.stage("parameters", expected("growth", packed(sizes.model_requests_bytes())[0])):
        model = bert_base().to("cuda")
    with trial.stage("input", expected("growth", tensor_bytes((BATCH, SEQUENCE), "int64"))):
        tokens = torch.zeros((BATCH, SEQUENCE), dtype=torch.long).to("cuda")
    with (
        trial.stage(
            "forward under no_grad",
            expected(
                "growth",
                sizes.output_bytes(BATCH, SEQUENCE) + workspace_bytes,
                "bert-inference",
                differences=[workspaces_differ(workspace_bytes, 1)],
            ),
        ),
        torch.no_grad(),
    ):
        outputs = model(tokens)
    del outputs
    return trial.outcome()


def gathered_types() -> Difference:
    """Return what today's transformers keeps beyond what the document's did."""
    return Difference(
        block_bytes(tensor_bytes((1, SEQUENCE), "int64")),
        "today's transformers gathers the default token types, 512 of 8 B, for the positions",
        "transformers/models/bert/modeling_bert.py, BertEmbeddings",
    )
