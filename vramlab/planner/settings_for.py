"""Write a plan as a configuration for a library that trains.

What a library does otherwise, or lacks, is in `Settings.notes`, with the nearest that it has; if
nothing comes near, `UnsupportedPlan` says what does.

Checked against the sources of PyTorch 2.13, transformers 5.23, accelerate 1.15 and
DeepSpeed 0.19.8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vramlab.planner import torch_recipes
from vramlab.planner.estimate import Estimate, estimate
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.report import describe
from vramlab.planner.written_script import (
    Program,
    optimizer_call,
    optimizer_of,
    program_of,
    script_of,
    with_sources,
)
from vramlab.units import format_bytes


@dataclass(frozen=True)
class Settings:
    """A plan, as a library reads it."""

    library: str
    text: str
    """The file."""
    notes: tuple[str, ...]
    """What the library does otherwise, what it lacks, and what is the program's."""
    asked: Plan
    """What was written."""
    plan: Plan
    """The same training in plain PyTorch, of the model that the library trains."""


def _about_model(plan: Plan, kind: str) -> list[str]:
    """Return what the model of transformers has that the built-in transformer has not."""
    if plan.is_custom:
        where = plan.custom.name.rpartition(":")[0]
        return [f"Write it beside {where}, which it imports"] if where.endswith(".py") else []
    notes = [
        f"The model is transformers' {kind} with these sizes. Its memory differs a little from the "
        "built-in transformer's, which a plan without --write is for. Pass a config.json as MODEL "
        "to set everything else of the model"
    ]
    if plan.dropout and kind == "LlamaForCausalLM":
        notes.append("Transformers' Llama has dropout in attention only")
    return notes


def _fsdp2(plan: Plan) -> Settings:
    program = program_of(plan)
    notes = _about_model(plan, program.plan.custom.name)
    if plan.run.dtypes.compute == "float16":
        notes.append("float16 needs torch.amp.GradScaler, which is neither here nor in the peak")
    return Settings("fsdp2", script_of(plan, program), tuple(notes), plan, program.plan)


# ---- transformers and accelerate ----


def _by_deepspeed(plan: Plan) -> bool:
    """Return whether a plan is DeepSpeed's: without FSDP2, ZeRO-1, offloading, master weights."""
    dtypes = plan.run.dtypes
    return plan.zero < 2 and (plan.zero == 1 or plan.optimizer_on_host or dtypes.master)


def _mixed(plan: Plan) -> str:
    """Return accelerate's mixed_precision."""
    dtypes = plan.run.dtypes
    autocast = dtypes.autocast and not _by_deepspeed(plan)
    return (
        {"bfloat16": "bf16", "float16": "fp16"}[dtypes.compute]
        if autocast or dtypes.master
        else "no"
    )


def _about_accelerate(plan: Plan, program: Program) -> list[str]:
    notes = _about_model(plan, program.plan.custom.name)
    if plan.zero >= 2 and plan.run.dtypes.autocast:
        notes.append(
            f"With FSDP2, accelerate gathers parameters in {plan.run.dtypes.compute} "
            "(MixedPrecisionPolicy) in addition to autocast, so it needs less memory than this plan"
        )
    if plan.zero >= 2:
        notes.append(
            "accelerate also shards two more groups: the embedding, and the head with the last norm"
        )
    if plan.data > 1 and plan.zero == 0 and not _by_deepspeed(plan):
        notes.append(
            "accelerate's DDP keeps gradients beside its buckets unless "
            "DistributedDataParallelKwargs(gradient_as_bucket_view=True) is passed"
        )
    return notes


def _trainer(plan: Plan) -> Settings:
    """Write a script with TrainingArguments: source training_args.py and trainer.py of 5.23."""
    program, dtypes = program_of(plan), plan.run.dtypes
    custom = program.plan.custom
    if custom.loss is not None or not all(each.name for each in custom.inputs):
        raise UnsupportedPlan(
            "Trainer calls a model with names, and takes its loss: let the model return its loss, "
            "and name its inputs, or use --write fsdp2"
        )
    notes = _about_accelerate(plan, program)
    given: dict[str, Any] = {
        "output_dir": "output",
        "max_steps": 5,
        "report_to": "none",
        "save_strategy": "no",
        "per_device_train_batch_size": plan.at_a_time,
        "gradient_accumulation_steps": plan.micro_batches,
    }
    if (mixed := _mixed(plan)) != "no":
        given[mixed] = True
    recomputed: dict[str, Any] = {"use_reentrant": False}
    if plan.checkpoint_every > 1:
        recomputed["every_n_layers"] = plan.checkpoint_every
    if plan.activations_on_host:
        recomputed["offload"] = True
        if plan.checkpointing != "full":
            notes.append("Trainer offloads activations only with checkpointing, which is on here")
    native = plan.checkpointing == "full" or plan.activations_on_host
    if native:
        given["activation_checkpointing"] = True
        given["activation_checkpointing_kwargs"] = recomputed
    if plan.zero >= 2:
        given["fsdp"] = True
        given["fsdp_config"] = {
            "reshard_after_forward": plan.zero == 3,
            "cpu_offload": plan.optimizer_on_host,
            "transformer_layer_cls_to_wrap": list(program.layer_kinds),
        }
    elif _by_deepspeed(plan):
        given["deepspeed"] = {**deepspeed_config(plan), "gradient_clipping": "auto"}
        notes.append(
            "ZeRO-1, offloading and master weights are DeepSpeed's, which has buffers of its own"
        )
    kind, options = optimizer_of(plan)
    names = {"foreach": "adamw_torch", "fused": "adamw_torch_fused"}
    by_class = ""
    if "deepspeed" in given:
        pass  # its configuration has the optimizer
    elif kind == "AdamW" and plan.implementation in names:
        given["optim"] = names[plan.implementation]
    else:
        by_class = f"(torch.optim.{kind}, {options})"
    changes = [each for each in program.changes if not (native and "recompute_layers" in each)]
    lines = [*program.model, *(changes if len(changes) > 1 else ())]
    if not (dtypes.master and plan.zero >= 2) and dtypes.weights != "float32" and not dtypes.master:
        lines.append(f"model.to(torch.{dtypes.weights})")
    lines.append("arguments = transformers.TrainingArguments(")
    lines += [f"    {name}={value!r}," for name, value in given.items()]
    lines += [")", "# Replace this example with your data.", "example = {"]
    for each in custom.inputs:
        shape = each.shape(1, plan.sequence)[1:]
        lines.append(f'    "{each.name}": torch.zeros({shape}, dtype=torch.{each.dtype}),')
    classes = f", optimizer_cls_and_kwargs={by_class}" if by_class else ""
    lines += [
        "}",
        f"data = [example] * {5 * plan.batch}",
        f"trainer = transformers.Trainer(model, arguments, train_dataset=data{classes})",
        "trainer.train()",
        'print(f"peak: {torch.cuda.max_memory_allocated():,} bytes")',
    ]
    notes.append("Trainer adds a few scalars of 512 B each: loss, norm of the gradients, tokens")
    return Settings("trainer", with_sources(lines), tuple(notes), plan, program.plan)


def _accelerate(plan: Plan) -> Settings:
    """Write the YAML of `accelerate launch`: source commands/config/config_args.py of 1.15."""
    program, dtypes = program_of(plan), plan.run.dtypes
    notes = _about_accelerate(plan, program)
    kind = "MULTI_GPU" if plan.data > 1 else "NO"
    kind = "FSDP" if plan.zero >= 2 else "DEEPSPEED" if _by_deepspeed(plan) else kind
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": _mixed(plan),
        "num_machines": 1,
        "num_processes": plan.data,
    }
    if kind == "FSDP":
        whole = plan.checkpointing == "full" and plan.checkpoint_every == 1
        config["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": plan.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_transformer_layer_cls_to_wrap": ",".join(program.layer_kinds),
            "fsdp_offload_params": plan.optimizer_on_host,
            "fsdp_activation_checkpointing": whole,
            "fsdp_cpu_ram_efficient_loading": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
    elif kind == "DEEPSPEED":
        config["deepspeed_config"] = {
            "zero_stage": deepspeed_config(plan)["zero_optimization"]["stage"],
            "offload_optimizer_device": "cpu" if plan.optimizer_on_host else "none",
            "offload_param_device": "none",
            "gradient_accumulation_steps": plan.micro_batches,
            "zero3_init_flag": False,
        }
        if dtypes.autocast:
            notes.append(
                "For autocast with DeepSpeed, use --write deepspeed and deepspeed_config_file"
            )
    whole = config.get("fsdp_config", {}).get("fsdp_activation_checkpointing", False)
    notes += _of_program(plan, program, recomputes=whole)
    return Settings("accelerate", _yaml(config), tuple(notes), plan, program.plan)


def _of_program(plan: Plan, program: Program, recomputes: bool = False) -> list[str]:
    """Return what the program does that its library's file does not, line by line.

    Args:
        plan: what is written.
        program: its model.
        recomputes: the library's file has checkpointing.
    """
    changes = [each for each in program.changes if not (recomputes and "recompute_" in each)]
    lines = [f"micro-batches of {plan.at_a_time} x {plan.sequence}"]
    if plan.attention == "eager" and not plan.is_custom:
        lines.append('attn_implementation="eager" for the model')
    if plan.dropout:
        lines.append("dropout of 0.1 in the configuration of the model")
    if not plan.run.dtypes.master:
        lines.append(f"model.to(torch.{plan.run.dtypes.weights})")
    if len(changes) > 1:
        lines.append("these calls, of functions that --write fsdp2 copies into its script")
        lines += changes
    lines.append(optimizer_call(plan, "{}(model.parameters(), {})"))
    if plan.micro_batches > 1:
        lines.append(f"Accelerator(gradient_accumulation_steps={plan.micro_batches})")
    if plan.activations_on_host:
        lines.append("with torch.autograd.graph.save_on_cpu():, which copies parameters, too")
    return [f"In the program: {line}" for line in lines]


def _yaml(config: Mapping[str, Any], indent: str = "") -> str:
    """Return plain settings as YAML, in which JSON is a value."""
    return "".join(
        f"{indent}{name}:\n{_yaml(value, indent + '  ')}"
        if isinstance(value, dict)
        else f"{indent}{name}: {json.dumps(value)}\n"
        for name, value in config.items()
    )


# ---- DeepSpeed ----


BUCKET = 50_000_000
"""Numbers in a bucket of ZeRO: DeepSpeed's default of ten times as many takes 4 GB in float32."""


def deepspeed_config(plan: Plan) -> dict[str, Any]:
    """Return ds_config.json: source runtime/config.py, precision_config.py, engine.py of 0.19.8."""
    dtypes, (kind, options) = plan.run.dtypes, optimizer_of(plan)
    on_host = plan.optimizer_on_host
    pure = dtypes.compute == dtypes.state_dtype == "bfloat16"  # which stage 0 does not know
    zero: dict[str, Any] = {"stage": max(plan.zero, 1 if on_host or pure else 0)}
    zero |= {"reduce_bucket_size": BUCKET, "allgather_bucket_size": BUCKET}
    if on_host:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    if kind == "AdamW":  # on the host, DeepSpeed's own
        options = {} if on_host else {**options, "torch_adam": True}
    config: dict[str, Any] = {
        "train_batch_size": plan.batch,
        "train_micro_batch_size_per_gpu": plan.at_a_time,
        "gradient_accumulation_steps": plan.micro_batches,
        "gradient_clipping": 0.0,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": kind == "AdamW",
        "optimizer": {"type": kind, "params": options},
    }
    if dtypes.autocast:
        config["torch_autocast"] = {"enabled": True, "dtype": dtypes.compute}
    elif dtypes.compute != "float32":
        half: dict[str, Any] = {"enabled": True}
        if pure:
            half |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
        config["bf16" if dtypes.compute == "bfloat16" else "fp16"] = half
    if plan.tensor > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tensor}
    return config


def _deepspeed(plan: Plan) -> Settings:
    """Write ds_config.json, and how the program makes its model."""
    if plan.pipeline > 1:
        raise UnsupportedPlan(
            "DeepSpeed's pipeline needs the model as a PipelineModule, which is code: use --write "
            "torchtitan, or --zero 3 instead of --pipeline"
        )
    program = program_of(plan.but(tensor=1, sequence_parallel=False))
    notes = _about_model(plan, program.plan.custom.name)
    if plan.sequence_parallel:
        notes.append("DeepSpeed's AutoTP has no sequence parallelism")
    notes.append(
        f"DeepSpeed's ZeRO has flat copies, and buckets of {BUCKET:,} numbers, besides this plan"
    )
    if plan.zero == 2:
        notes.append("ZeRO-2 of DeepSpeed keeps all parameters; of FSDP2, a shard between steps")
    lines = _of_program(plan, program)
    own = [each for each in lines if "torch.optim" not in each and "Accelerator(" not in each]
    text = json.dumps(deepspeed_config(plan), indent=2) + "\n"
    return Settings(
        "deepspeed", text, (*notes, *own), plan, plan if plan.tensor > 1 else program.plan
    )


def _torchtitan(plan: Plan) -> Settings:
    text, notes = torch_recipes.torchtitan(plan)
    return Settings("torchtitan", text, tuple(notes), plan, plan)


def _torchtune(plan: Plan) -> Settings:
    text, notes = torch_recipes.torchtune(plan)
    return Settings("torchtune", text, tuple(notes), plan, plan)


@dataclass(frozen=True)
class Library:
    """How a library gets a plan."""

    write: Callable[[Plan], Settings]
    versions: str
    start: str
    """Command, with the number of GPUs to fill in."""


_TORCHRUN = "torchrun --nproc-per-node {gpus} train.py"
WRITERS: dict[str, Library] = {
    "fsdp2": Library(_fsdp2, "PyTorch 2.13 and transformers 5.23", _TORCHRUN),
    "trainer": Library(_trainer, "transformers 5.23 and accelerate 1.15", _TORCHRUN),
    "accelerate": Library(
        _accelerate, "accelerate 1.15", "accelerate launch --config_file plan.yaml train.py"
    ),
    "deepspeed": Library(
        _deepspeed, "DeepSpeed 0.19.8", "deepspeed --num_gpus {gpus} train.py with ds_config.json"
    ),
    "torchtitan": Library(
        _torchtitan,
        "torchtitan 0.3.0",
        "torchrun --nproc-per-node {gpus} -m torchtitan.train --module FILE --config plan, where "
        "FILE.py is this file",
    ),
    "torchtune": Library(_torchtune, "torchtune 0.6.1", "sh FILE"),
}
"""By the name of a library."""


def settings_for(plan: Plan, library: str) -> Settings:
    """Write a plan for a library of `WRITERS`; its peak is that of `Settings.plan`.

    Raises:
        UnsupportedPlan: The library has nothing that comes near the plan.
    """
    return WRITERS[library].write(plan)


def write(plans: Iterable[Plan], library: str, margin: float = 0.0) -> tuple[Settings, Estimate]:
    """Write the first plan that fits with the model of the library; the first one if none does.

    Args:
        plans: the best first.
        library: a key of `WRITERS`.
        margin: fraction of the memory to leave free.

    Raises:
        UnsupportedPlan: The library has nothing that comes near any of the plans.
    """
    tried: list[tuple[Settings, Estimate]] = []
    refused: list[UnsupportedPlan] = []
    for plan in plans:
        try:
            settings = settings_for(plan, library)
        except UnsupportedPlan as error:
            refused.append(error)
            continue
        found = estimate(settings.plan)
        if found.fits and found.peak_bytes <= (1 - margin) * found.available_bytes:
            if skipped := len(tried) + len(refused):
                note = (
                    f"{skipped} faster plans do not fit with this model, or this library lacks them"
                )
                settings = replace(settings, notes=(*settings.notes, note))
            return settings, found
        tried.append((settings, found))
    if not tried:
        raise refused[0]
    return tried[0]


def comments(settings: Settings, found: Estimate) -> list[str]:
    """Return what a reader of the file should know: how to start it, the peak, what differs."""
    library = WRITERS[settings.library]
    where = "" if settings.library == "fsdp2" else " in plain PyTorch"
    where = where if settings.plan.is_custom else " with the built-in transformer"
    fits = "fits" if found.fits else "does not fit"
    size = f"{found.peak_bytes:,} B ({format_bytes(found.peak_bytes)})"
    return [
        f"{describe(settings.asked)}.",
        f"For {library.versions}. Start: {library.start.format(gpus=settings.asked.ranks)}",
        f"Peak of a GPU{where}: {size}, which {fits}.",
        *settings.notes,
    ]
