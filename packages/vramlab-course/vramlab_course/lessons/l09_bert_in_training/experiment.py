"""Lesson 09: BERT-base in eval and in train mode, with eager attention and without."""

from __future__ import annotations

from typing import Any

import torch

from vramlab.cuda_rules.sizes import tensor_bytes
from vramlab_course.experiments.bert import BATCH, SEQUENCE, bert_base, gathered_types
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.training_step import workspaces_differ
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import DROPPED_SOFTMAX, MASKS, Attention, Bert
from vramlab_course.formulas.packing import packed

IMPLEMENTATIONS: dict[str, Attention] = {"eager": "eager", "sdpa": "efficient"}
"""What transformers calls ways to compute attention, and what they come to in float32."""


@experiment(
    "bert-modes",
    lesson="09",
    question="Was the document's BERT in eval mode or in train mode?",
    source="001 §2.41",
    figures=("bert-forward",),
    conditions=Conditions(
        why="only eval mode and eager attention give the published figure; it takes 21 GiB",
    ),
)
def bert_modes() -> Outcome:
    """Run BERT-base forward, 32 of 512 tokens: in both modes, with eager attention and without.

    The workspace comes first, in a small forward pass, and is added to what is compared with the
    published figure, which includes it.
    """
    trial = Trial("bert-modes")
    sizes = Bert()
    workspace_bytes = trial.environment.linear_workspace_bytes()
    with trial.stage("parameters", expected("growth", packed(sizes.model_requests_bytes())[0])):
        model: Any = bert_base().to("cuda")
    with trial.stage("input", expected("growth", tensor_bytes((BATCH, SEQUENCE), "int64"))):
        tokens = torch.zeros((BATCH, SEQUENCE), dtype=torch.long).to("cuda")
    with trial.stage("workspace", expected("growth", workspace_bytes)), torch.no_grad():
        model(tokens[:1])
    for implementation, attention in IMPLEMENTATIONS.items():
        model.set_attn_implementation(implementation)
        for mode, train in (("eval", False), ("train", True)):
            torch.cuda.empty_cache()  # so that blocks are split as in a fresh process
            model.train(train)
            kept_bytes = sizes.forward_bytes(BATCH, SEQUENCE, train=train, attention=attention)
            with trial.stage(
                f"forward, {mode}(), {implementation}", expected("growth", kept_bytes)
            ) as forward:
                outputs = model(tokens)
            del outputs
            if implementation == "eager":
                trial.find(
                    "bert-forward",
                    forward.measurement.growth_bytes + workspace_bytes,
                    predicted=kept_bytes + workspace_bytes,
                    part=f"in {mode} mode",
                    differences=[
                        gathered_types(),
                        workspaces_differ(workspace_bytes, 1),
                        *(dropout_differs(sizes) if train else ()),
                    ],
                )
    return trial.outcome()


def dropout_differs(sizes: Bert) -> list[Difference]:
    """Return what train mode keeps besides: the published figure is that of eval mode."""
    whys = {
        DROPPED_SOFTMAX: "dropout on the softmax in train mode: its output and a mask, 5 B for "
        "each element of (batch, heads, length, length), in every layer",
        MASKS: "the masks of the other dropouts in train mode, 1 B for each element",
    }
    kept = sizes.kept(BATCH, SEQUENCE, train=True)
    return [
        Difference(
            sum(tensor.size_bytes for tensor in kept if tensor.part == part),
            why,
            "transformers/models/bert/modeling_bert.py; native_dropout in "
            "tools/autograd/derivatives.yaml",
        )
        for part, why in whys.items()
    ]
