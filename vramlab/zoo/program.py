"""Run a workload: a user's program, stage by stage, on the attached GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel

from vramlab.measure import Result, Stages
from vramlab.programs.transformer import BACKENDS
from vramlab.zoo.subjects import SUBJECTS, Batch, Subject
from vramlab.zoo.workload import Precision, Workload

STEPS = 2
"""Training steps, or forward passes: the second one finds the cache and the optimizer's states."""
NEW_TOKENS = 8

_AUTOCAST = {"autocast-fp16": torch.float16, "autocast-bf16": torch.bfloat16}


def run(workload: Workload) -> Result:
    """Run a workload on the attached GPU, and answer what each stage did to its memory."""
    torch.manual_seed(0)
    stages = Stages(workload.id)
    subject = SUBJECTS[workload.model]
    model = _model(workload, subject, stages)
    with stages.stage("batch"):
        batch = _batch(workload, subject)
    with _attention(workload):
        if workload.mode == "train":
            _train(workload, model, batch, stages)
        elif workload.mode == "infer":
            _infer(workload, model, batch, stages)
        else:
            _generate(model, batch, stages)
    return stages.result()


def _model(workload: Workload, subject: Subject, stages: Stages) -> nn.Module:
    attention = workload.attention
    implementation = "sdpa" if attention in (*BACKENDS, "sdpa") else attention
    with stages.stage("build"), _default_dtype(workload.precision):
        if subject.built_on_gpu:
            with torch.device("cuda"):
                model = subject.build(implementation)
        else:
            model = subject.build(implementation)
        model.train(workload.mode == "train")
        if workload.checkpointing:
            _enable_checkpointing(model)
    if not subject.built_on_gpu:
        with stages.stage("to the GPU"):
            model.to("cuda")
    return model


def _enable_checkpointing(model: nn.Module) -> None:
    """Under the name that transformers has for it now, or had before."""
    enable: Any = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _batch(workload: Workload, subject: Subject) -> Batch:
    batch = subject.make_batch(workload.batch, workload.length)
    if workload.mode != "train":
        del batch["labels"]
    if workload.precision == "bf16":
        batch = {
            name: tensor.bfloat16() if tensor.is_floating_point() else tensor
            for name, tensor in batch.items()
        }
    return {name: tensor.to("cuda") for name, tensor in batch.items()}


def _train(workload: Workload, model: nn.Module, batch: Batch, stages: Stages) -> None:
    with stages.stage("optimizer"):
        optimizer = _optimizer(workload, model)
    scaler = torch.amp.GradScaler("cuda", enabled=workload.precision == "autocast-fp16")
    for number in range(1, STEPS + 1):
        with stages.stage(f"forward {number}"), _autocast(workload.precision):
            loss: Tensor = model(**batch)["loss"]
        with stages.stage(f"backward {number}"):
            scaler.scale(loss).backward()
        if workload.clipping:
            with stages.stage(f"clipping {number}"):
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with stages.stage(f"step {number}"):
            scaler.step(optimizer)
            scaler.update()
        with stages.stage(f"zero_grad {number}"):
            optimizer.zero_grad()


def _infer(workload: Workload, model: nn.Module, batch: Batch, stages: Stages) -> None:
    for number in range(1, STEPS + 1):
        with (
            stages.stage(f"forward {number}"),
            torch.no_grad(),
            _autocast(workload.precision),
        ):
            outputs = model(**batch)
    with stages.stage("del outputs"):
        del outputs


def _generate(model: nn.Module, batch: Batch, stages: Stages) -> None:
    """Generate the most likely tokens after the prompt, one by one, with the KV cache."""
    with torch.inference_mode():
        with stages.stage("prompt"):
            outputs = model(**batch, use_cache=True)
            cache, token_B1 = outputs.past_key_values, outputs.logits[:, -1:].argmax(-1)  # noqa: N806
            del outputs
        for number in range(1, NEW_TOKENS + 1):
            with stages.stage(f"token {number}"):
                outputs = model(input_ids=token_B1, past_key_values=cache, use_cache=True)
                token_B1 = outputs.logits[:, -1:].argmax(-1)  # noqa: N806
                del outputs


def _optimizer(workload: Workload, model: nn.Module) -> torch.optim.Optimizer:
    parameters = model.parameters()
    match workload.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, lr=1e-3)
        case "momentum":
            return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
        case "adamw":
            return torch.optim.AdamW(parameters)
        case "adamw-loop":
            return torch.optim.AdamW(parameters, foreach=False)
        case "adamw-foreach":
            return torch.optim.AdamW(parameters, foreach=True)
        case "adamw-fused":
            return torch.optim.AdamW(parameters, fused=True)
        case "adafactor":
            return torch.optim.Adafactor(parameters)
        case None:
            raise ValueError(f"{workload.id} trains, and has no optimizer")


def _autocast(precision: Precision) -> AbstractContextManager[object]:
    dtype = _AUTOCAST.get(precision)
    return nullcontext() if dtype is None else torch.autocast("cuda", dtype)


def _attention(workload: Workload) -> AbstractContextManager[object]:
    backend = BACKENDS.get(workload.attention or "")
    return nullcontext() if backend is None else sdpa_kernel(backend)


@contextmanager
def _default_dtype(precision: Precision) -> Iterator[None]:
    """Build parameters in the dtype that they are meant to have."""
    with ExitStack() as undo:
        if precision == "bf16":
            undo.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.bfloat16)
        yield
