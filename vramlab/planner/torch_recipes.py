"""Write a plan for the training programs of PyTorch's own projects: torchtitan and torchtune.

Both train models of their own, so that only models that they have can be written. Checked against
the sources of torchtitan 0.3.0 and torchtune 0.6.1.
"""

from __future__ import annotations

import shlex
from typing import Any

from vramlab.planner.models import MODELS, llama_sizes
from vramlab.planner.plan import Plan, UnsupportedPlan

DEBUG = llama_sizes(2048, 256, 6, 16, 768, tied=False)
"""Sizes of torchtitan's debugmodel."""
TITAN = {"llama-3.2-1b": "1B", "llama-3.2-3b": "3B", "llama-3.1-8b": "8B"}
TITAN |= {"llama-3.1-70b": "70B", "llama-3.1-405b": "405B", "debug": "debugmodel"}
"""Source: torchtitan/models/llama3/__init__.py."""
TUNE = {
    "llama-2-7b": ("llama2/7B", "full_low_memory"),
    "llama-2-13b": ("llama2/13B", ""),
    "llama-3.1-8b": ("llama3_1/8B", "full_single_device"),
    "llama-3.1-70b": ("llama3_1/70B", ""),
    "llama-3.2-1b": ("llama3_2/1B", "full_single_device"),
    "llama-3.2-3b": ("llama3_2/3B", "full_single_device"),
    "mistral-7b": ("mistral/7B", "full_low_memory"),
}
"""Configurations, and those for one GPU. Source: recipes/configs."""
ADAPTED = ("wqkv", "wo", "w1", "w2", "w3")
"""torchtitan's Linear layers but for the head."""


def _own_model(plan: Plan, library: str, models: dict[str, Any]) -> Any:
    """Return what a library calls a plan's model.

    Raises:
        UnsupportedPlan: It has none of these sizes.
    """
    for name, own in models.items():
        if not plan.is_custom and plan.transformer == (DEBUG if name == "debug" else MODELS[name]):
            return own
    raise UnsupportedPlan(f"{library} is written for {', '.join(models)}: use --write fsdp2")


def torchtitan(plan: Plan) -> tuple[str, list[str]]:
    """Return a module with a configuration, and notes.

    Raises:
        UnsupportedPlan: torchtitan has nothing that comes near the plan.
    """
    flavor, dtypes = _own_model(plan, "torchtitan", TITAN), plan.run.dtypes
    for wrong, text in (
        (plan.optimizer != "adamw", f"has no {plan.optimizer}: use adamw"),
        (dtypes.compute == "float16", "has no float16: use bfloat16"),
        (plan.zero == 1, "has no ZeRO-1: use --zero 2"),
        (plan.activations_on_host, "offloads no activations: use --checkpointing full"),
        (plan.optimizer_on_host and plan.zero < 2, "offloads only with FSDP2: use --zero 2 or 3"),
    ):
        if wrong:
            raise UnsupportedPlan(f"torchtitan {text}, or --write fsdp2")
    notes = [f"torchtitan has FlexAttention, where the plan has {plan.attention} attention"]
    if plan.dropout:
        notes.append("torchtitan's Llama has no dropout")
    if plan.checkpoint_every > 1:
        notes.append(f"torchtitan recomputes every layer, not one of {plan.checkpoint_every}")
    if plan.checkpointing == "selective":
        notes.append("SelectiveAC also recomputes every second matrix product, not only attention")
    if dtypes.master and plan.zero < 2:
        notes.append("Without FSDP2, torchtitan has autocast instead of master weights")
    if dtypes.autocast and plan.zero >= 2:
        notes.append("With FSDP2, torchtitan gathers parameters in bfloat16, instead of autocast")
    if plan.zero >= 2:
        notes.append("Gradients are reduced in float32, and the embedding is sharded by itself")
    pure = dtypes.state_dtype == "bfloat16"
    converters = ""
    if plan.adapter_rank:
        rank = plan.adapter_rank
        converters = (
            f", converters=[LoRAConverter.Config(rank={rank}, alpha={2 * rank}, "
            f"target_modules={list(ADAPTED)})]"
        )
    loss = "CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))"
    if plan.loss_chunks > 1:
        loss = f"ChunkedLossWrapper.Config(num_chunks={plan.loss_chunks}, loss_fn={loss})"
    recomputed = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
    ways = {"loop": "for-loop"}
    settings: dict[str, Any] = {
        "training.local_batch_size": plan.at_a_time,
        "training.global_batch_size": plan.batch,
        "training.seq_len": plan.sequence,
        "training.dtype": "bfloat16" if pure else "float32",
        "training.mixed_precision_param": dtypes.compute,
        "training.enable_cpu_offload": plan.optimizer_on_host,
        "training.disable_cuda_graphs": True,
        "optimizer.implementation": ways.get(plan.implementation, plan.implementation),
        "parallelism.data_parallel_replicate_degree": plan.data if plan.zero == 0 else 1,
        "parallelism.data_parallel_shard_degree": plan.data if plan.zero else 1,
        "parallelism.fsdp_reshard_after_forward": "always" if plan.zero == 3 else "never",
        "parallelism.tensor_parallel_degree": plan.tensor,
        "parallelism.enable_sequence_parallel": plan.sequence_parallel,
        "parallelism.pipeline_parallel_degree": plan.pipeline,
        "parallelism.pipeline_parallel_schedule": plan.schedule,
    }
    if plan.pipeline > 1:  # a step's micro-batches are one local batch
        settings["training.local_batch_size"] = plan.batch // plan.data
        settings["parallelism.pipeline_parallel_microbatch_size"] = plan.at_a_time
    base = "llama3_8b" if flavor in ("1B", "3B") else f"llama3_{flavor.lower()}"
    lines = [
        "from torchtitan.components.lora import LoRAConverter",
        "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss",
        "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC",
        "from torchtitan.models.common.config_utils import decoder_vocab_size",
        "from torchtitan.models.llama3 import model_registry",
        f"from torchtitan.models.llama3.config_registry import {base}",
        "",
        "",
        "def plan():",
        f"    config = {base}()",
        f'    config.model_spec = model_registry("{flavor}"{converters})',
        f"    config.loss = {loss}",
        f"    config.activation_checkpoint = {recomputed[plan.checkpointing]}",
        *(f"    config.{name} = {value!r}" for name, value in settings.items()),
    ]
    if flavor in ("1B", "3B"):
        lines.append(f'    config.hf_assets_path = "./assets/hf/Llama-3.2-{flavor}"')
    lines.append("    return config")
    return "\n".join(lines) + "\n", notes


def torchtune(plan: Plan) -> tuple[str, list[str]]:
    """Return a command with what it overrides of torchtune's own configuration, and notes.

    Raises:
        UnsupportedPlan: torchtune has nothing that comes near the plan.
    """
    own, single = _own_model(plan, "torchtune", TUNE)
    dtypes, one, adapted = plan.run.dtypes, plan.ranks == 1, plan.adapter_rank > 0
    for wrong, text in (
        (plan.pipeline > 1, "has no pipelines: use --write torchtitan"),
        (dtypes.compute == "float16", "has no float16: use bfloat16"),
        (plan.data > 1 and plan.zero < 2, "has only FSDP2: use --zero 2 or 3"),
        (plan.data == 1 and plan.optimizer_on_host, "offloads only with FSDP2: use --zero 2"),
        (plan.tensor > 1 and plan.implementation == "fused", "has no fused one: use foreach"),
        (plan.tensor > 1 and own.startswith("mistral"), "has no plan for Mistral: use --zero 3"),
        (one and not single, f"has no recipe for {own} on one GPU: use more"),
    ):
        if wrong:
            raise UnsupportedPlan(f"torchtune {text}, or --write fsdp2")
    notes = [f"torchtune chooses its attention kernel, where the plan has {plan.attention}"]
    if dtypes.autocast or dtypes.master:
        notes.append(
            f"torchtune has no mixed precision ({plan.precision}): all of it is bfloat16 here, "
            "which takes less"
        )
    if plan.dropout:
        notes.append("torchtune's builders of these models have no dropout")
    if plan.sequence_parallel:
        notes.append("torchtune's tensor-parallel plan has no sequence parallelism")
    if plan.checkpointing == "selective":
        notes.append("torchtune cannot recompute attention alone: nothing is recomputed here")
    if plan.loss_chunks > 1:
        notes.append("torchtune chunks the logits, but does not recompute them")
    recipe = f"{'lora' if adapted else 'full'}_finetune_{'single_device' if one else 'distributed'}"
    config = "lora_single_device" if one and adapted else "lora" if adapted else "full"
    config = single if one and not adapted else config
    recomputed = plan.checkpointing == "full" or plan.activations_on_host
    if plan.activations_on_host and plan.checkpointing != "full":
        notes.append("torchtune offloads activations only with checkpointing, which is on here")
    partly = recomputed and plan.checkpoint_every > 1 and not plan.activations_on_host
    if partly and (one or adapted):
        notes.append(f"This recipe recomputes every layer, not one of {plan.checkpoint_every}")
        partly = False
    settings: dict[str, Any] = {
        "batch_size": plan.at_a_time,
        "gradient_accumulation_steps": plan.micro_batches,
        "tokenizer.max_seq_len": plan.sequence,
        "dataset.packed": True,
        "dtype": "fp32" if dtypes.compute == "float32" else "bf16",
        "optimizer._component_": "torch.optim.AdamW"
        if "adam" in plan.optimizer
        else "torch.optim.SGD",
        "optimizer.fused": plan.implementation == "fused",
        "optimizer.foreach": plan.implementation == "foreach",
        "enable_activation_checkpointing": recomputed and not partly,
        "enable_activation_offloading": plan.activations_on_host,
        "loss._component_": "torchtune.modules.loss.CEWithChunkedOutputLoss",
        "loss.num_output_chunks": plan.loss_chunks,
    }
    if not adapted:
        settings["optimizer_in_bwd"] = False
    if "momentum" in plan.optimizer:
        settings["optimizer.momentum"] = 0.9
    if partly:
        settings |= {"ac_mode": "selective", "ac_option": plan.checkpoint_every}
    if not one:
        settings["fsdp_cpu_offload"] = plan.optimizer_on_host
        settings["fsdp_reshard_after_forward"] = plan.zero == 3
    if plan.tensor > 1:
        settings["tensor_parallel_dim"] = plan.tensor
        settings["tensor_parallel_plan._component_"] = "torchtune.models.llama3.base_llama_tp_plan"
    if adapted:
        settings["model.lora_rank"] = plan.adapter_rank
        settings["model.lora_alpha"] = 2 * plan.adapter_rank
        settings["model.lora_attn_modules"] = "[q_proj,k_proj,v_proj,output_proj]"
        settings["model.apply_lora_to_mlp"] = True
        settings["model.apply_lora_to_output"] = False
    processes = "" if one else f" --nproc_per_node {plan.ranks}"
    words = [f"tune run{processes} {recipe} --config {own}_{config}"]
    words += [shlex.quote(f"{name}={value}") for name, value in settings.items()]
    return " \\\n    ".join(words) + "\n", notes
