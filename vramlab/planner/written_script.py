"""Write a plan as a script in plain PyTorch, and its model as code for other libraries.

The script runs what `vramlab.planner.program` runs, with the model of transformers or the user's
own, and takes the same bytes: PyTorch 2.13, transformers 5.23.
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
from vramlab.planner.layers import layer_lists
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.program import give_memory
from vramlab.planner.sources import TEXT
from vramlab.programs import master_weights, model_changes, offloading
from vramlab.programs.optimizers import WAYS, states_of
from vramlab.programs.transformer import AdaptedLinear
from vramlab.programs.transformer_memory import Sizes

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
class Program:
    """The model of a plan as code, and the plan of that model."""

    plan: Plan
    model: tuple[str, ...]
    """Lines that make `model`."""
    changes: tuple[str, ...]
    """Lines that change it: checkpoints, attention, adapters, loss."""
    layer_kinds: tuple[str, ...]
    """Classes of its layers."""


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


def with_sources(lines: Iterable[str]) -> str:
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
    made = make_model(custom)
    paths = [found.path for found in layer_lists(made, fewest=0)]
    kinds = {
        type(layer).__name__ for path in paths for layer in made.get_submodule(path).children()
    }
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
    return Program(written, tuple(model), tuple(changes), tuple(sorted(kinds)))


def _changed(factory: Callable[[], Any], changes: Iterable[str], every: int) -> Any:
    """Make a model, and run the lines that change it."""
    names: dict[str, Any] = {**vars(model_changes), "model": factory()}
    exec("\n".join(changes), names)
    for number, layer in enumerate(names["layers"]):
        layer.recomputed = number % every == 0  # sets apart layers that differ
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
        begins = ("decoder_start_token_id", "pad_token_id")
        set_here = begins if getattr(config, "is_encoder_decoder", False) else ()
        return replace(custom, factory=partial(_copied, custom.factory.func, config)), [
            f"config = transformers.AutoConfig.from_pretrained({path!r})",
            "config.use_cache = False",
            *(f"config.{name} = {getattr(config, name)}" for name in set_here),
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


def _loss_name(custom: CustomModel) -> str:
    name = getattr(custom.loss, "__name__", "")
    return f"functional.{name}" if getattr(functional, name, None) is custom.loss else name


# ---- Plain PyTorch ----


def optimizer_of(plan: Plan) -> tuple[str, dict[str, Any]]:
    """Return the class in torch.optim, and how it is called."""
    kind, options = {
        "adamw": ("AdamW", {}),
        "sgd": ("SGD", {"lr": 0.1}),
        "sgd with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    }[plan.optimizer]
    return kind, {**options, **WAYS[plan.implementation]}


def optimizer_call(plan: Plan, call: str) -> str:
    """Fill a call with the class in torch.optim, and its arguments by name."""
    kind, options = optimizer_of(plan)
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    return call.format(f"torch.optim.{kind}", given)


def script_of(plan: Plan, program: Program) -> str:
    """Write the script that `vramlab.planner.program.Training` is: the same bytes."""
    dtypes = plan.run.dtypes
    sharded, replicated = plan.zero >= 2, plan.data > 1 and plan.zero < 2
    place = "cpu" if sharded and plan.optimizer_on_host else "cuda"
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
        *(_ADAPTERS_BEGIN if plan.adapter_rank else ()),
        "trained = [each for each in model.parameters() if each.requires_grad]",
        optimizer_call(plan, "make = partial({}, {})"),
        f"optimizer = {_optimizer(plan)}",
        "called = DistributedDataParallel(model, gradient_as_bucket_view=True)"
        if replicated
        else "called = model",
        "",
        "# Replace these tensors with your data.",
    ]
    return with_sources([*lines, *_loop(plan, program.plan.custom, replicated)])


_ADAPTERS_BEGIN = (
    "for module in model.modules():",
    "    if isinstance(module, AdaptedLinear):",
    "        nn.init.zeros_(module.up.weight)",
)
"""Adapters add nothing at first."""


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
