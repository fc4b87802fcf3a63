"""Lesson 15: what mixed precision keeps, and when it takes more than float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.programs.master_weights import MasterWeights
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.activations import linear_chain_bytes
from vramlab_course.formulas.parameters import linear_chain_shapes
from vramlab_course.formulas.training import SCALAR_BYTES
from vramlab_course.lessons.l15_mixed_precision.formulas import (
    STATES_PER_PARAMETER,
    autocast_forward_bytes,
    cast_bytes,
)
from vramlab_course.programs.documents import linear_net
from vramlab_course.programs.unfilled import UnfilledWeights


def autocast(enabled: bool = True) -> AbstractContextManager[Any]:
    """Choose torch.autocast in float16, or nothing."""
    return torch.autocast("cuda", dtype=torch.float16) if enabled else nullcontext()


@experiment(
    "autocast-chain",
    lesson="15",
    question="Half the bytes per number: why does a model not take half the memory?",
    source="001 §4.3, 003",
)
def autocast_chain(batch: int = 1024, widths: tuple[int, ...] = (1024,) * 5) -> Outcome:
    """Run a chain in float32, then under autocast: forward, end of region, backward.

    Args:
        batch: rows of the input.
        widths: of the input and of each layer's output.
    """
    trial = Trial("autocast-chain", batch=batch, widths=list(widths))
    here = trial.environment
    shapes = linear_chain_shapes(widths)
    parameters_bytes = sum(block_bytes(tensor_bytes(shape)) for shape in shapes)
    input_bytes = block_bytes(tensor_bytes((batch, widths[0])))
    output_bytes = block_bytes(tensor_bytes((batch, widths[-1]), "float16"))
    workspaces_bytes = here.linear_workspace_bytes() + here.matmul_workspace_bytes()
    with trial.stage("parameters", expected("growth", parameters_bytes)):
        model = linear_net(widths).to("cuda")
    with trial.stage("input", expected("growth", input_bytes)):
        x = torch.zeros(batch, widths[0], device="cuda")
    model(x).sum().backward()  # cuBLAS's workspaces come here
    model.zero_grad()
    with trial.stage("forward in float32", expected("growth", linear_chain_bytes(batch, widths))):
        y = model(x)
    del y
    region = autocast()
    region.__enter__()
    with trial.stage(
        "forward under autocast", expected("growth", autocast_forward_bytes(batch, widths))
    ):
        y = model(x)
    left_bytes = cast_bytes(widths) - cast_bytes(widths, inside=False)
    with trial.stage("autocast ends", expected("growth", -left_bytes)):
        region.__exit__(None, None, None)
    after_bytes = (
        2 * parameters_bytes + input_bytes + output_bytes + SCALAR_BYTES + workspaces_bytes
    )
    with trial.stage("backward", expected("allocated", after_bytes)):
        loss = y.sum()
        loss.backward()
    return trial.outcome()


@experiment(
    "autocast-crossover",
    lesson="15",
    question="From which batch on does autocast keep less than float32?",
    source="003",
)
def autocast_crossover(
    batches: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192),
    widths: tuple[int, ...] = (1024,) * 5,
) -> Outcome:
    """Run a chain of Linear layers forward, batch by batch, in both ways: how much memory grows.

    Args:
        batches: rows of the input.
        widths: of the input and of each layer's output.
    """
    trial = Trial("autocast-crossover", batches=list(batches), widths=list(widths))
    model = linear_net(widths).to("cuda")
    model(torch.zeros(8, widths[0], device="cuda")).sum().backward()  # the workspaces
    model.zero_grad()
    for batch in batches:
        for name, enabled, predicted_bytes in (
            ("float32", False, linear_chain_bytes(batch, widths)),
            ("autocast", True, autocast_forward_bytes(batch, widths)),
        ):
            torch.cuda.empty_cache()
            x = torch.zeros(batch, widths[0], device="cuda")
            with (
                autocast(enabled),
                trial.stage(f"{name}, {batch} rows", expected("growth", predicted_bytes)),
            ):
                y = model(x)
            del x, y
    return trial.outcome()


_WIDTH = 4096
_PARAMETERS = _WIDTH * _WIDTH


@experiment(
    "precision-modes",
    lesson="15",
    question="How many bytes does each parameter keep in each mode?",
    source="003",
)
def precision_modes() -> Outcome:
    """Train one weight of 4096 x 4096 with AdamW: what is there after a step, gradients too."""
    trial = Trial("precision-modes")
    for mode, parts in STATES_PER_PARAMETER.items():
        half = mode.startswith("16 bit")
        dtype = torch.bfloat16 if half else torch.float32
        predicted_bytes = sum(parts.values()) * _PARAMETERS
        x = torch.zeros(8, _WIDTH, dtype=dtype, device="cuda")
        warm_up = torch.zeros(_WIDTH, 8, dtype=dtype, device="cuda", requires_grad=True)
        (x @ warm_up).sum().backward()  # the workspaces
        del warm_up
        with trial.stage(mode, expected("growth", predicted_bytes)):
            with UnfilledWeights():
                model = nn.Linear(_WIDTH, _WIDTH, bias=False, dtype=dtype)
            model.to("cuda")
            optimizer: torch.optim.Optimizer | MasterWeights
            if mode.endswith("copies"):
                optimizer = MasterWeights(model.parameters(), torch.optim.AdamW)
            else:
                optimizer = torch.optim.AdamW(model.parameters())
            with autocast(mode == "autocast"):
                loss = model(x).square().mean()
            loss.backward()
            del loss
            optimizer.step()
        del model, optimizer, x
        torch.cuda.empty_cache()
    return trial.outcome()
