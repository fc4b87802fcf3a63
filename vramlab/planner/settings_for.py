"""Write a plan as a configuration, or as a script, for a library that trains.

Every setting follows from the plan. What a library lacks is a line of `Settings.notes`, with the
nearest that it has; if nothing comes near, `UnsupportedPlan` says what does.

Checked against the sources of PyTorch 2.13, transformers 5.23, accelerate 1.15, DeepSpeed 0.19.8,
torchtitan 0.3.0 and torchtune 0.6.1.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.nn import functional

from vramlab.planner.custom import CustomModel, Input
from vramlab.planner.custom_training import make_model
from vramlab.planner.estimate import Estimate, estimate
from vramlab.planner.layers import layer_lists
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.program import give_memory
from vramlab.planner.report import describe
from vramlab.planner.sources import TEXT
from vramlab.programs import master_weights, model_changes, offloading
from vramlab.programs.optimizers import WAYS, states_of
from vramlab.programs.transformer import AdaptedLinear
from vramlab.programs.transformer_memory import Sizes
from vramlab.units import format_bytes

KERNELS = {"math": "MATH", "efficient": "EFFICIENT_ATTENTION"}
"""Backends of torch.nn.attention that a model of transformers is restricted to; it uses flash
attention and "eager" by itself."""
_IMPORTS = (
    "import json",
    "import os",
    "import sys",
    "from collections import defaultdict",
    "from collections.abc import Callable",
    "from collections.abc import Iterable",
    "from contextlib import nullcontext",
    "from dataclasses import dataclass",
    "from functools import partial",
    "from typing import Any",
    "from weakref import WeakValueDictionary",
    "import torch",
    "import transformers",
    "from torch import Tensor",
    "from torch import nn",
    "from torch.autograd.graph import saved_tensors_hooks",
    "from torch.distributed.device_mesh import init_device_mesh",
    "from torch.distributed.fsdp import CPUOffloadPolicy",
    "from torch.distributed.fsdp import MixedPrecisionPolicy",
    "from torch.distributed.fsdp import fully_shard",
    "from torch.distributed.optim import ZeroRedundancyOptimizer",
    "from torch.multiprocessing.reductions import StorageWeakRef",
    "from torch.nn import functional",
    "from torch.nn.attention import SDPBackend",
    "from torch.nn.attention import sdpa_kernel",
    "from torch.nn.parallel import DistributedDataParallel",
    "from torch.utils.checkpoint import checkpoint",
)
"""Those whose name a script uses are its imports."""


@dataclass(frozen=True)
class Settings:
    """A plan, as a library reads it."""

    library: str
    text: str
    """The file."""
    notes: tuple[str, ...]
    """What the library does otherwise, and what it lacks; comments in `text`, where it has any."""
    asked: Plan
    """What was written."""
    plan: Plan
    """The same training, of the model that the library trains."""


@dataclass(frozen=True)
class Program:
    """The model of a plan as code, and the plan of that model."""

    plan: Plan
    model: tuple[str, ...]
    """Lines that make `model`."""
    changes: tuple[str, ...]
    """Lines that change it: checkpoints, attention, adapters, loss."""


SOURCES: tuple[Any, ...] = (
    give_memory,
    model_changes.initialize,
    model_changes.loss_of,
    AdaptedLinear,
    model_changes.add_adapters,
    model_changes.change_attention,
    model_changes.compute_loss_in_chunks,
    model_changes.recompute_layers,
    states_of,
    master_weights.MasterWeights,
    master_weights.MasterAdamW,
    offloading.HostOptimizer,
    offloading._HostCopy,
    offloading._copy_to_host,
    offloading.SavedOnHost,
)
"""What a script may call; each is copied into those that do."""
_PLAIN = {
    "apply_to_tensors(model, allocate)": "model._apply(allocate)",
    "version_of(tensor)": "tensor._version",
    "ADAPTER_SCALE": "2.0",
}
"""What their sources call of vramlab, and the same without it."""


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _with_sources(lines: Iterable[str]) -> str:
    """Return a script: these lines, behind what they call and the imports of both."""
    text = "\n".join(lines)
    for part in reversed(SOURCES):  # a part calls those before it
        if _names(text, part.__name__):
            text = f"{inspect.getsource(part)}\n\n{text}"
    for ours, plain in _PLAIN.items():
        text = text.replace(ours, plain)
    used = [line for line in _IMPORTS if _names(text, line.split()[-1])]
    return "\n".join(["from __future__ import annotations", "", *used, "", "", text]) + "\n"


def sizes_in_transformers(sizes: Sizes, dropout: bool) -> tuple[str, str, dict[str, Any]]:
    """Return the classes of model and configuration, and the configuration, of these sizes.

    Raises:
        UnsupportedPlan: GPT-2 and Llama do not have them.
    """
    own: dict[str, Any]
    both: dict[str, Any] = {"vocab_size": sizes.vocabulary, "tie_word_embeddings": sizes.tied}
    both |= {"bos_token_id": None, "eos_token_id": None}
    rate = 0.1 if dropout else 0.0
    if sizes.activation == "gelu" and sizes.norm == "layer" and sizes.bias and sizes.causal:
        same_heads = sizes.kv == sizes.heads and sizes.head_size * sizes.heads == sizes.width
        if sizes.learned_positions and not sizes.rotary and same_heads:
            dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), rate)
            own = {"n_positions": sizes.positions, "n_embd": sizes.width, "n_layer": sizes.layers}
            own |= {"n_head": sizes.heads, "n_inner": sizes.inner}
            return "GPT2LMHeadModel", "GPT2Config", both | own | dropouts
    if sizes.activation == "swiglu" and sizes.norm == "rms" and sizes.rotary and not sizes.bias:
        own = {"max_position_embeddings": sizes.positions, "hidden_size": sizes.width}
        own |= {"num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads}
        own |= {"num_key_value_heads": sizes.kv, "head_dim": sizes.head_size}
        own |= {"intermediate_size": sizes.inner, "attention_dropout": rate}
        return "LlamaForCausalLM", "LlamaConfig", both | own
    raise UnsupportedPlan(
        "neither GPT-2 nor Llama of transformers has these sizes: pass a config.json as MODEL to "
        "write its configuration"
    )


def program_of(plan: Plan) -> Program:
    """Return the code of a plan's model, with everything that changes the model itself.

    Raises:
        UnsupportedPlan: transformers has no such model, or the plan cuts it.
    """
    if plan.tensor > 1 or plan.pipeline > 1:
        raise UnsupportedPlan(
            "tensor and pipeline parallelism need code for each model: use --write torchtitan, "
            "which has both, or shard with --data and --zero 3"
        )
    custom, model = _model(plan)
    if plan.adapter_rank and custom.name == "GPT2LMHeadModel":
        raise UnsupportedPlan(
            "GPT-2 of transformers has Conv1D layers instead of Linear ones, so that its adapters "
            "need peft: use another model"
        )
    paths = [found.path for found in layer_lists(make_model(custom), fewest=0)]
    layers = ", ".join(f'*model.get_submodule("{path}")' for path in paths)
    changes = [f"layers = [{layers}]"]
    selective = plan.checkpointing == "selective"
    if not plan.is_custom and (selective or plan.attention in KERNELS):
        kernel = f"SDPBackend.{KERNELS.get(plan.attention, 'FLASH_ATTENTION')}"
        changes.append(f"change_attention(model, {kernel}, recomputed={selective})")
    if plan.adapter_rank:
        changes.append(f"add_adapters(model, layers, {plan.adapter_rank})")
    if plan.checkpointing == "full":
        changes.append(f"recompute_layers(layers, every={plan.checkpoint_every})")
    if plan.loss_chunks > 1:
        changes.append(f"compute_loss_in_chunks(model, {plan.loss_chunks})")
    factory = partial(_changed, custom.factory, tuple(changes), plan.checkpoint_every)
    usual = {"checkpointing": "none", "checkpoint_every": 1, "loss_chunks": 1, "adapter_rank": 0}
    written = plan.but(sizes=replace(custom, factory=factory), **usual)
    return Program(written, tuple(model), tuple(changes))


def _changed(factory: Callable[[], Any], changes: Iterable[str], every: int) -> Any:
    """Make a model, and run the lines that change it."""
    names: dict[str, Any] = {**vars(model_changes), "model": factory()}
    exec("\n".join(changes), names)
    for number, layer in enumerate(names["layers"]):
        layer.recomputed = number % every == 0  # so that layers that differ are told apart
    return names["model"]


def _model(plan: Plan) -> tuple[CustomModel, list[str]]:
    """Return a plan's model as one of its user's, and the lines that make it."""
    if not plan.is_custom:
        kind, config_kind, config = sizes_in_transformers(plan.transformer, plan.dropout)
        config["use_cache"] = False
        config["attn_implementation"] = "eager" if plan.attention == "eager" else "sdpa"
        listed = [f"    {name}={value!r}," for name, value in config.items()]
        lines = [f"config = transformers.{config_kind}(", *listed, ")"]
        made = partial(_of_transformers, kind, config_kind, config)
        return (
            CustomModel(kind, made, tuple(map(Input, TEXT))),
            [*lines, f"model = transformers.{kind}(config)"],
        )
    custom = plan.custom
    if isinstance(custom.factory, partial):  # of `vramlab.planner.sources.transformers_model`
        kind, (config,) = custom.factory.func.__name__, custom.factory.args
        path = custom.name.removeprefix(f"{kind} (").removesuffix(")")
        copied = partial(_copied, custom.factory.func, config)
        return replace(custom, factory=copied), [
            f"config = transformers.AutoConfig.from_pretrained({path!r})",
            "config.use_cache = False",
            f"model = transformers.{kind}(config)",
        ]
    where, _, name = custom.name.rpartition(":")
    module = Path(where).stem if where.endswith(".py") else where
    lines = [f"from {module} import {name}", f"model = {name}()"]
    if custom.loss is not None and "." not in _loss_name(custom):
        lines.insert(0, f"from {custom.loss.__module__} import {custom.loss.__name__}")
    return custom, lines


def _of_transformers(kind: str, config_kind: str, config: dict[str, Any]) -> Any:
    import transformers

    return getattr(transformers, kind)(getattr(transformers, config_kind)(**config))


def _copied(kind: Callable[[Any], Any], config: Any) -> Any:
    return kind(copy.deepcopy(config))


def _about_model(plan: Plan, kind: str) -> list[str]:
    """Return what the model of transformers has that the built-in transformer has not."""
    if plan.is_custom:
        return []
    notes = [
        f"The model is transformers' {kind} with these sizes: it does not take what the built-in "
        "transformer takes. Pass a config.json as MODEL for all settings of a model"
    ]
    if plan.dropout and kind == "LlamaForCausalLM":
        notes.append("Transformers' Llama has dropout in attention only")
    return notes


def _loss_name(custom: CustomModel) -> str:
    name = getattr(custom.loss, "__name__", "")
    return f"functional.{name}" if getattr(functional, name, None) is custom.loss else name


# ---- Plain PyTorch ----

OPTIMIZERS = {
    "adamw": "torch.optim.AdamW",
    "sgd": "torch.optim.SGD, lr=0.1",
    "sgd with momentum": "torch.optim.SGD, lr=0.1, momentum=0.9",
}


def _fsdp2(plan: Plan) -> Settings:
    """Write the script that `vramlab.planner.program.Training` is: the same bytes."""
    program, dtypes = program_of(plan), plan.run.dtypes
    notes = _about_model(plan, program.plan.custom.name)
    sharded, replicated = plan.zero >= 2, plan.data > 1 and plan.zero < 2
    place = "cpu" if sharded and plan.optimizer_on_host else "cuda"
    if dtypes.compute == "float16":
        notes.append("float16 needs torch.amp.GradScaler, which is not in this script or its peak")
    lines = ['torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))', "torch.manual_seed(0)"]
    if plan.data > 1:
        lines.append(f'mesh = init_device_mesh("cuda", ({plan.data},))')
    lines.append('with torch.device("meta"):')
    lines += [line and f"    {line}" for line in (*program.model, *program.changes)]
    lines.append("model.train()")
    if not (sharded and dtypes.master):
        lines.append(f"model.to(torch.{dtypes.weights})")
    if sharded:
        options = f"mesh=mesh, reshard_after_forward={plan.zero == 3}"
        if dtypes.master:
            half = f"torch.{dtypes.compute}"
            options += f", mp_policy=MixedPrecisionPolicy({half}, {half})"
        if plan.optimizer_on_host:
            options += ", offload_policy=CPUOffloadPolicy(pin_memory=False)"
        lines += ["for layer in layers:", f"    fully_shard(layer, {options})"]
        whole = options.replace("forward=True", "forward=False")
        lines.append(f"fully_shard(model, {whole})")
    lines += [
        f'give_memory(model, "{place}")',
        "initialize(model)  # random: load your weights instead",
        "trained = [each for each in model.parameters() if each.requires_grad]",
        f"make = partial({OPTIMIZERS[plan.optimizer]}, {_way(plan)})",
        f"optimizer = {_optimizer(plan)}",
        "called = DistributedDataParallel(model, gradient_as_bucket_view=True)"
        if replicated
        else "called = model",
        "",
        "# Replace these tensors with your data.",
    ]
    text = _with_sources([*lines, *_loop(plan, program.plan.custom, replicated)])
    return Settings("fsdp2", text, tuple(notes), plan, program.plan)


def _way(plan: Plan) -> str:
    ((name, value),) = WAYS[plan.implementation].items()
    return f"{name}={value}"


def _optimizer(plan: Plan) -> str:
    if plan.zero >= 2:
        return "make(trained)"
    if plan.optimizer_on_host:
        return f"HostOptimizer(trained, make, as_they_come={plan.data == 1})"
    if plan.zero == 1:
        kind = "MasterAdamW" if plan.run.dtypes.master else "make"
        return f"ZeroRedundancyOptimizer(trained, {kind})"
    return "MasterWeights(trained, make)" if plan.run.dtypes.master else "make(trained)"


def _loop(plan: Plan, custom: CustomModel, replicated: bool) -> Iterable[str]:
    """Yield the lines of the inputs and of the steps."""
    dtypes, parts, given = plan.run.dtypes, plan.micro_batches, []
    target = [] if custom.target is None else [custom.target]
    for number, each in enumerate([*custom.inputs, *target]):
        name = "target" if each in target else each.name or f"input_{number}"
        shape = each.shape(plan.batch // plan.data, plan.sequence)
        dtype = dtypes.weights if each.dtype == "float32" else each.dtype
        yield f'{name} = torch.zeros({shape}, dtype=torch.{dtype}, device="cuda")'
        rows = "[rows]" if parts > 1 and each.is_divided else ""
        given.append(f"{each.name and f'{name}='}{name}{rows}")
    call = f"called({', '.join(given[: len(custom.inputs)])})"
    if custom.loss is not None:
        loss = f"{_loss_name(custom)}({', '.join([call, *given[len(custom.inputs) :]])})"
    else:
        loss = f"loss_of({call})"
    yield "for step in range(5):"
    yield f"    for number in range({parts}):"
    if parts > 1:
        at = plan.at_a_time
        yield f"        rows = slice({at} * number, {at} * number + {at})"
    indent = " " * 8
    if replicated and parts > 1:
        yield f"{indent}with nullcontext() if number == {parts - 1} else called.no_sync():"
        indent += "    "
    contexts = []
    if dtypes.autocast:
        contexts.append(f'torch.autocast("cuda", dtype=torch.{dtypes.compute})')
    if plan.activations_on_host:
        contexts.append("SavedOnHost(model.parameters())")
    if contexts:
        yield f"{indent}with {', '.join(contexts)}:"
    yield f"{indent}{'    ' if contexts else ''}loss = {loss}"
    if parts > 1:
        yield f"{indent}loss = loss / {parts}"
    yield f"{indent}loss.backward()"
    yield f"{indent}del loss"
    yield "    optimizer.step()"
    yield f"    {'called.zero_grad(set_to_none=False)' if replicated else 'optimizer.zero_grad()'}"
    yield 'print(f"peak: {torch.cuda.max_memory_allocated():,} bytes")'
    if plan.data > 1:
        yield "torch.distributed.destroy_process_group()"


VERSIONS = {"fsdp2": "PyTorch 2.13 and transformers 5.23"}
STARTS = {"fsdp2": "torchrun --nproc-per-node {gpus} train.py"}
WRITERS: dict[str, Callable[[Plan], Settings]] = {"fsdp2": _fsdp2}
"""By the name of a library."""


def settings_for(plan: Plan, library: str) -> Settings:
    """Write a plan for a library of `WRITERS`; its peak is that of `Settings.plan`.

    Raises:
        UnsupportedPlan: The library has nothing that comes near the plan.
    """
    return WRITERS[library](plan)


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
    gpus = settings.asked.ranks
    fits = "fits" if found.fits else "does not fit"
    return [
        f"{describe(settings.asked)}.",
        f"For {VERSIONS[settings.library]}. Start: {STARTS[settings.library].format(gpus=gpus)}",
        f"Peak of a GPU: {found.peak_bytes:,} B ({format_bytes(found.peak_bytes)}), which {fits}.",
        *(f"{note}." for note in settings.notes),
    ]
