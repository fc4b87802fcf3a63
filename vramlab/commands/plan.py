"""`vramlab plan`: whether a training setup fits, what fills each GPU, and what to change.

$ vramlab plan gpt2-xl --gpu A100-40GB --batch 8
$ vramlab plan llama-3.1-8b --gpu H100-80GB --batch 16 --sequence 8192 --data 8 --zero 3 --simulate
$ vramlab plan --config config.json --tensor 4 --sequence-parallel --pipeline 2 --micro-batch 1
$ vramlab plan Qwen3-30B-A3B/config.json --gpu H200 --data 8 --zero 3 --batch 8
$ vramlab plan llama-3.1-8b --gpu L40S --gpus 8 --search
$ vramlab plan llama-3.1-8b --gpu L40S --gpus 8 --search --write fsdp2 > train.py
$ vramlab plan llama-3.1-8b --gpu all --prices prices.csv --search
$ vramlab plan net.py:build --input "float32[B,3,224,224]" --target "int64[B]" --loss cross_entropy
$ vramlab plan llama-3.1-8b --serve --gpu L4 --sequence 8192
$ vramlab plan --layers 24 --width 2048 --heads 16 --vocabulary 50257 --like gpt2
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramlab.errors import VramlabError
from vramlab.garbage import lasting_imports
from vramlab.native.choice import ENGINES, ENVIRONMENT, choose, default_engine
from vramlab.option_values import at_least_one, number
from vramlab.planner.simulation import INSIDE, simulate_natively, write_inside
from vramlab.progress import working

if TYPE_CHECKING:
    from vramlab.planner import Plan, Report
    from vramlab.planner.custom import CustomModel
    from vramlab.planner.simulation import Simulation
    from vramlab.programs.transformer_memory import Sizes

LIBRARIES = ("fsdp2", "trainer", "accelerate", "deepspeed", "torchtitan", "torchtune")
"""Those that `vramlab.planner.settings_for` writes plans for."""

_EXIT_FITS = 0
_EXIT_DOES_NOT_FIT = 1

_SIZES = {
    "layers": "number of layers",
    "width": "hidden size",
    "heads": "attention heads",
    "kv_heads": "key and value heads, for GQA (default: as many as attention heads)",
    "feed_forward": "hidden size of the feed-forward layers",
    "vocabulary": "vocabulary size",
    "positions": "maximum sequence length",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `plan` to the command line."""
    parser = subparsers.add_parser(
        "plan",
        help="check whether training or serving a model fits, and what to change if not",
        description="Check whether training a model fits on your GPUs, show what fills each GPU, "
        "and suggest changes that save memory. The estimate runs a training step with a few "
        "layers on a virtual GPU and extends it to all layers; --simulate runs all of them. The "
        "exit status is 0 if the model fits, 1 if it does not.",
        allow_abbrev=False,
        examples=(
            "vramlab plan gpt2-xl --gpu A100-40GB --batch 8",
            "vramlab plan llama-3.1-8b --gpu H100-80GB --batch 16 --data 8 --zero 3 --simulate",
            "vramlab plan Qwen3-30B-A3B/config.json --gpu H200 --data 8 --zero 3 --batch 8",
            'vramlab plan net.py:build --input "float32[B,3,224,224]" --target "int64[B]" '
            "--loss cross_entropy",
            "vramlab plan llama-3.1-8b --gpu L40S --gpus 8 --search",
            "vramlab plan llama-3.1-8b --gpu L40S --gpus 8 --search --write fsdp2",
            "vramlab plan llama-3.1-8b --serve --gpu L4 --sequence 8192",
        ),
    )
    parser.add_argument(
        "model",
        nargs="?",
        help="model name such as gpt2-xl or llama-3.1-8b; a config.json of transformers or its "
        "folder; or a function without arguments that returns a model, written file.py:function "
        "or package.module:function",
    )
    parser.add_argument(
        "--config",
        type=Path,
        help="config.json; with GPT-2, Llama and Mistral, --tensor and --pipeline work, because "
        "the built-in transformer is planned with these sizes; other types work like MODEL",
    )
    _add_call(parser.add_argument_group("inputs of your own model"))
    sizes = parser.add_argument_group("model sizes, to change a known model or to describe one")
    sizes.add_argument(
        "--like",
        metavar="MODEL",
        default="gpt2",
        help="known model that supplies all other sizes (default: %(default)s)",
    )
    for name, about in _SIZES.items():
        sizes.add_argument(_flag(name), type=at_least_one, metavar="N", help=about)
    _add_training(parser.add_argument_group("training"))
    _add_gpus(parser.add_argument_group("GPUs"))
    _add_search(parser.add_argument_group("search for the fastest plan, instead of checking one"))
    _add_serving(parser.add_argument_group("serving, instead of training"))
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="also simulate training steps with all layers (takes seconds to minutes)",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="engine for --simulate: portable (the virtual GPU), native (PyTorch's CUDA build, "
        "see `vramlab native`), or auto (native if set up for the installed PyTorch version) "
        f"(default: ${ENVIRONMENT}, or auto)",
    )
    parser.add_argument(
        "--write",
        choices=LIBRARIES,
        help="print this plan, or the fastest one that --search finds, as the configuration of a "
        "library (on stdout), or with fsdp2 as a script in plain PyTorch",
    )
    parser.add_argument(
        INSIDE, nargs=2, metavar=("STAGE", "FILE"), dest="inside", help=argparse.SUPPRESS
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    parser.set_defaults(run=run)


def _add_call(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="TENSOR",
        help='input tensor, for example "float32[B,3,224,224]" (positional) or '
        '"input_ids=int64[B,S]" (keyword); B is the micro-batch size of a GPU, S the sequence '
        "length; repeat for each input",
    )
    group.add_argument(
        "--target", metavar="TENSOR", help='target tensor of the loss, for example "int64[B]"'
    )
    group.add_argument(
        "--loss",
        metavar="FUNCTION",
        help="loss function, called with output and target: a name in torch.nn.functional, or "
        "file.py:function (default: the model returns its loss)",
    )


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--batch",
        type=at_least_one,
        metavar="N",
        help="global batch size, in sequences (default: 8)",
    )
    group.add_argument(
        "--micro-batch",
        type=at_least_one,
        metavar="N",
        help="sequences per GPU and forward pass (default: the whole batch of the GPU)",
    )
    group.add_argument(
        "--sequence",
        type=at_least_one,
        metavar="N",
        help="sequence length in tokens (default: 1024, or the model's maximum if shorter)",
    )
    group.add_argument(
        "--precision",
        help='"float32", "autocast bfloat16", "autocast float16", "bfloat16, float32 master", or '
        'others (default: "autocast bfloat16", or "autocast float16" on GPUs without bfloat16)',
    )
    group.add_argument(
        "--optimizer", help='"sgd", "sgd with momentum" or "adamw" (default: "adamw")'
    )
    group.add_argument(
        "--implementation",
        choices=("loop", "foreach", "fused"),
        help="optimizer implementation (default: foreach)",
    )
    group.add_argument(
        "--attention",
        choices=("eager", "math", "efficient", "flash"),
        help="attention kernel (default: flash, or efficient or math if the GPU or precision "
        "does not support it)",
    )
    group.add_argument(
        "--dropout", action="store_true", default=None, help="train with dropout (default: off)"
    )
    group.add_argument(
        "--checkpointing",
        choices=("none", "selective", "full"),
        help="activation checkpointing: selective recomputes attention, full whole layers "
        "(default: none)",
    )
    group.add_argument(
        "--checkpoint-every",
        type=at_least_one,
        metavar="N",
        help="full checkpointing recomputes one of N layers (default: 1)",
    )
    group.add_argument(
        "--loss-chunks",
        type=at_least_one,
        metavar="N",
        help="compute logits and loss for one of N parts of the tokens at a time, and again in "
        "the backward pass (default: 1)",
    )
    group.add_argument(
        "--adapter-rank",
        type=at_least_one,
        metavar="N",
        help="train only LoRA adapters of this rank, beside all Linear layers but the head "
        "(default: train all parameters)",
    )
    group.add_argument(
        "--offload",
        choices=("nothing", "optimizer", "activations", "both"),
        help="what to keep in host memory (default: nothing)",
    )


def _add_gpus(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU as listed by `vramlab gpus`, or one with your own numbers such as "
        "'H100,memory=60GiB' (default: A100-80GB); with --search, all tries every GPU with a "
        "price, or the common ones",
    )
    group.add_argument(
        "--data", type=at_least_one, metavar="N", help="data-parallel ranks (default: 1)"
    )
    group.add_argument(
        "--zero",
        type=int,
        choices=(0, 1, 2, 3),
        help="ZeRO stage of the data-parallel ranks; 2 and 3 are FSDP2 (default: 0, which is DDP)",
    )
    group.add_argument(
        "--tensor", type=at_least_one, metavar="N", help="tensor-parallel ranks (default: 1)"
    )
    group.add_argument(
        "--sequence-parallel",
        action="store_true",
        default=None,
        help="also shard activations along the sequence across the tensor-parallel ranks "
        "(default: off)",
    )
    group.add_argument(
        "--pipeline", type=at_least_one, metavar="N", help="pipeline stages (default: 1)"
    )
    group.add_argument(
        "--schedule", choices=("GPipe", "1F1B"), help="pipeline schedule (default: 1F1B)"
    )


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search",
        action="store_true",
        help="list the ten fastest plans that fit on --gpus GPUs; options that you pass are fixed, "
        "and without --batch a step is one micro-batch on each GPU",
    )
    group.add_argument(
        "--gpus",
        type=at_least_one,
        metavar="N",
        help="number of GPUs (default: 1, or 1, 2, 4 and 8 with --gpu all)",
    )
    group.add_argument(
        "--margin",
        type=number,
        metavar="FRACTION",
        help="fraction of the memory to leave free (default: 0.05)",
    )
    group.add_argument(
        "--price-per-hour",
        type=number,
        metavar="PRICE",
        help="price of one GPU, to list the cost of a million tokens",
    )
    group.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="CSV file with the columns GPU,price_per_hour; with --gpu all, the GPUs to try",
    )
    group.add_argument(
        "--vary",
        action="append",
        choices=("optimizer", "attention"),
        help="search this, too (can be repeated)",
    )


def _add_serving(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--serve",
        action="store_true",
        help="report how many concurrent requests fit, with --sequence tokens each (default: the "
        "model's maximum), on --tensor GPUs",
    )
    group.add_argument(
        "--weights",
        metavar="DTYPE",
        help="dtype of the weights: float32, float16, bfloat16 or float8 (default: bfloat16)",
    )
    group.add_argument(
        "--cache",
        metavar="DTYPE",
        help="dtype of the KV cache: float32, float16, bfloat16 or float8 (default: bfloat16)",
    )
    group.add_argument(
        "--page",
        type=at_least_one,
        metavar="TOKENS",
        help="tokens per KV-cache block (default: 16)",
    )
    group.add_argument(
        "--utilization",
        type=number,
        metavar="FRACTION",
        help="fraction of GPU memory that the server uses (default: 0.9)",
    )
    group.add_argument(
        "--batched-tokens",
        type=at_least_one,
        metavar="N",
        help="maximum tokens per forward pass (default: 2048)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report and return the exit status.

    Raises:
        UnknownModel: No model of that name, or an unreadable configuration.
        UnusableModel: The user's model cannot be made or called.
        UnsupportedPlan: Settings that exclude each other.
        UnevenParts: The model cannot be divided evenly.
        UnknownGPUError: No GPU of that name.
    """
    for name in ("serve", "simulate", "engine") if arguments.write else ():
        if getattr(arguments, name):
            raise VramlabError(f"{_flag(name)} does not work with --write: leave it out")
    if arguments.search:
        return _search(arguments)
    for name in _SEARCHING:
        if getattr(arguments, name) is not None:
            raise VramlabError(f"{_flag(name)} needs --search: add --search, or leave it out")
    if arguments.serve:
        return _serve(arguments)
    for name in _SERVING:
        if getattr(arguments, name) is not None:
            raise VramlabError(f"{_flag(name)} needs --serve: add --serve, or leave it out")
    with lasting_imports():
        from vramlab.planner import Plan, report
        from vramlab.planner.defaults import defaults_for

    sizes = _model(arguments)
    chosen: dict[str, Any] = {
        field.name: value
        for field in fields(Plan)
        if (value := getattr(arguments, field.name, None)) is not None
    }
    defaults = defaults_for(sizes, chosen)
    plan = Plan(sizes, **{**chosen, **defaults})
    if arguments.write:
        return _write([plan], arguments)
    if arguments.inside is not None:
        stage, file = arguments.inside
        write_inside(plan, int(stage), Path(file))
        return _EXIT_FITS
    simulate = _simulate_natively(arguments, plan)
    with working("simulating" if arguments.simulate else "planning"):
        found = report(plan, simulated=arguments.simulate, simulate=simulate)
        if arguments.json:
            text = json.dumps({**as_dict(found), "defaults": defaults}, indent=2)
        else:
            text = as_text(found, defaults)
    print(text)
    return _EXIT_FITS if found.fits else _EXIT_DOES_NOT_FIT


def _simulate_natively(
    arguments: argparse.Namespace, plan: Plan
) -> Callable[[Plan, int], Simulation] | None:
    """Return the function that simulates on the native engine; None for the portable engine.

    Raises:
        NativeEngineError: The native engine was requested but is not set up.
    """
    if not arguments.simulate:
        if arguments.engine:
            raise VramlabError("--engine needs --simulate: add --simulate, or leave it out")
        return None
    # A rank of a later stage would wait for a message from rank 0, which does not run.
    later = "pipeline parallelism" if plan.pipeline > 1 else ""
    choice = choose(arguments.engine or default_engine(), portable_only=later)
    if choice.build is None:
        return None
    return lambda plan, stage: simulate_natively(plan, stage, choice, arguments.words)


def _write(plans: Sequence[Plan], arguments: argparse.Namespace, margin: float = 0.0) -> int:
    """Print the first plan that fits, as a configuration; return 0 if there is one, else 1.

    Raises:
        UnsupportedPlan: The library has nothing that comes near any of these plans.
    """
    with lasting_imports():
        from vramlab.planner.settings_for import comments, write
    with working("writing"):
        settings, found = write(plans, arguments.write, margin)
        about = comments(settings, found)
    if arguments.json:
        data = {
            "library": settings.library,
            "text": settings.text,
            "comments": about,
            "plan": _plan_as_dict(settings.plan),
            "peak_bytes": found.peak_bytes,
            "fits": found.fits,
        }
        print(json.dumps(data, indent=2))
    else:
        # JSON has no comments.
        stream = sys.stderr if settings.text.startswith("{") else None
        print("".join(f"# {line}\n" for line in about), end="", file=stream)
        print(settings.text, end="")
    return _EXIT_FITS if found.fits else _EXIT_DOES_NOT_FIT


_SEARCHING = ("gpus", "margin", "price_per_hour", "prices", "vary")
_NOT_SEARCHED = (
    "serve",
    "simulate",
    "engine",
    "data",
    "sequence_parallel",
)


def _search(arguments: argparse.Namespace) -> int:
    """Print the fastest plans that fit; return 0 if there is one, else 1.

    Raises:
        UnknownModel: No model of that name, or an unreadable configuration.
        UnsupportedPlan: Options that exclude each other.
        UnknownGPUError: No GPU of that name.
    """
    for name in (*_NOT_SEARCHED, *_SERVING):
        if getattr(arguments, name):
            instead = "use --gpus" if name == "data" else "leave it out"
            raise VramlabError(f"{_flag(name)} does not work with --search: {instead}")
    price = arguments.price_per_hour
    if price is not None and not 0 <= price < float("inf"):
        raise VramlabError(f"invalid --price-per-hour {price:g}: use a number from 0")
    if price is not None and arguments.prices is not None:
        raise VramlabError("--price-per-hour and --prices exclude each other: use one of them")
    with lasting_imports():
        from vramlab.planner import Plan
        from vramlab.planner.custom import CustomModel
        from vramlab.planner.planning import ALL, plan
        from vramlab.planner.search import MARGIN
        from vramlab.planner.search_report import search_dict, search_table
    sizes = _model(arguments)
    if isinstance(sizes, CustomModel):
        raise VramlabError(
            "--search works only with the built-in transformer: pass a known model, its sizes, or "
            "--config with a config.json of GPT-2, Llama or Mistral"
        )
    options: dict[str, Any] = {
        field.name: getattr(arguments, field.name, None)
        for field in fields(Plan)
        if field.name != "sizes"
    }
    gpu = options.pop("gpu") or "A100-80GB"
    if gpu.lower() == ALL and price is not None:
        raise VramlabError("--price-per-hour is of one GPU: with --gpu all, use --prices FILE")
    margin = MARGIN if arguments.margin is None else arguments.margin
    with working("searching") as step:
        found = plan(
            sizes,
            gpu=gpu,
            gpus=arguments.gpus,
            prices=arguments.prices if price is None else {gpu: price},
            margin=margin,
            vary=arguments.vary or (),
            tell=step.tell,
            **options,
        )
    if arguments.write and found.fitting:
        return _write([one.plan for one in found.fitting], arguments, margin)
    if arguments.json:
        print(json.dumps(search_dict(found), indent=2))
    elif found.fitting:
        if found.interrupted:
            print("Interrupted: these are the best plans found so far.\n")
        print(search_table(found))
    elif found.interrupted:
        print("Interrupted before a plan was found that fits.")
    else:
        where = "any of these GPUs" if gpu.lower() == ALL else f"{arguments.gpus or 1} x {gpu}"
        print(f"No plan fits on {where}, out of {found.candidates}.")
        if gpu.lower() != ALL:
            print(_what_would_fit(sizes, gpu, arguments.gpus or 1, margin, options))
    return _EXIT_FITS if found.fitting else _EXIT_DOES_NOT_FIT


def _what_would_fit(
    sizes: Sizes, gpu: str, gpus: int, margin: float, options: Mapping[str, Any]
) -> str:
    """Return the smallest number of GPUs and the smallest GPU on which a plan fits, in words."""
    from vramlab.planner.search import smallest_count, smallest_gpu

    chosen = {name: value for name, value in options.items() if value is not None}
    with working("looking for what would fit"):
        count = smallest_count(sizes, gpu, gpus, margin, **chosen)
        larger = smallest_gpu(sizes, gpu, gpus, margin, **chosen)
    ways = [f"{count} x {gpu}"] if count else []
    ways += [f"{gpus} x {larger}"] if larger else []
    if ways:
        return f"It fits on {' or on '.join(ways)}."
    return "It does not fit on more of these GPUs or on a larger one either."


_SERVING = ("weights", "cache", "page", "utilization", "batched_tokens")


def _serve(arguments: argparse.Namespace) -> int:
    """Print how many requests fit; return 0 if at least one does, else 1.

    Raises:
        UnknownModel: No model of that name, or an unreadable configuration.
        UnusableModel: The configuration's model type is not supported.
        UnusableServing: Settings that make no sense for serving.
        UnknownGPUError: No GPU of that name.
    """
    from vramlab import catalogue
    from vramlab.planner.models import is_built_in
    from vramlab.planner.served_models import served_config, served_transformer
    from vramlab.planner.serving import Serving
    from vramlab.planner.serving_report import serving_dict, serving_text

    text = arguments.model or ""
    path = arguments.config or (Path(text) if text and Path(text).exists() else None)
    if ":" in text:
        raise VramlabError(
            f"--serve cannot use a function ({text}): pass a known model, a config.json, or sizes"
        )
    with working("planning"):
        if path is not None and not is_built_in(path):
            model = served_config(path)
        else:
            arguments.config, arguments.model = path, None if path else arguments.model
            name = str(path or arguments.model or "the transformer")
            model = served_transformer(name, _sizes(arguments))
        chosen = {
            name: value for name in _SERVING if (value := getattr(arguments, name)) is not None
        }
        gpu = catalogue.find(arguments.gpu or "A100-80GB")
        serving = Serving(model, gpu, arguments.tensor or 1, **chosen)
        sequence = arguments.sequence or model.positions
        if not 1 <= sequence <= model.positions:
            raise VramlabError(
                f"invalid --sequence {sequence}: use 1 to {model.positions}, the maximum of "
                f"{model.name}"
            )
        data = serving_dict(serving, sequence)
    print(json.dumps(data, indent=2) if arguments.json else serving_text(serving, sequence))
    return _EXIT_FITS if data["fits"] else _EXIT_DOES_NOT_FIT


def _model(arguments: argparse.Namespace) -> Sizes | CustomModel:
    """Return the model: a known name, a configuration, a function, or sizes.

    Known names come first, so a folder with the name of a known model is written ./name.
    """
    from vramlab.planner import MODELS
    from vramlab.planner.models import is_built_in

    if arguments.model and arguments.config:
        raise VramlabError(
            f"both a model ({arguments.model}) and --config {arguments.config}: use one of them"
        )
    text = arguments.model or ""
    is_function = ":" in text
    is_path = not is_function and text.lower() not in MODELS and Path(text).exists()
    if text and (is_function or is_path):
        return _custom(arguments, None if is_function else Path(text))
    if arguments.config and not is_built_in(arguments.config):
        return _custom(arguments, arguments.config)
    call = [name for name in _CALL if getattr(arguments, name)]
    if call:
        raise VramlabError(
            f"{_flag(call[0])} works only with your own model: pass it as file.py:function or as "
            "its config.json"
        )
    return _sizes(arguments)


_CALL = ("input", "target", "loss")
_BUILT_IN = (*_SIZES, "attention", "dropout")
"""Options that apply only to the built-in transformer."""


def _custom(arguments: argparse.Namespace, config: Path | None) -> CustomModel:
    from vramlab.planner.sources import custom_model, transformers_model

    for name in _BUILT_IN:
        if getattr(arguments, name) is not None:
            raise VramlabError(
                f"{_flag(name)} works only with the built-in transformer: leave it out, and set it "
                f"in {config or arguments.model} instead"
            )
    if config is None:
        return custom_model(arguments.model, arguments.input, arguments.target, arguments.loss)
    if arguments.target or arguments.loss:
        raise VramlabError(
            "models of transformers return their loss: leave out --target and --loss, and use "
            "--input if the labels have an unusual shape"
        )
    return transformers_model(config, arguments.input)


def _sizes(arguments: argparse.Namespace) -> Sizes:
    from vramlab.planner import find_model, read_config

    changes: dict[str, Any] = {
        name: value for name in _SIZES if (value := getattr(arguments, name)) is not None
    }
    if not (arguments.model or arguments.config or changes):
        raise VramlabError(
            "missing model: pass a name such as gpt2-xl, a config.json, or sizes such as "
            "--layers 24 --width 2048"
        )
    if arguments.config:
        sizes = read_config(arguments.config)
    else:
        sizes = find_model(arguments.model or arguments.like)
    if "heads" in changes and "kv_heads" not in changes:
        changes["kv_heads"] = None
    try:
        return replace(sizes, **changes)
    except ValueError as error:
        raise VramlabError(str(error)) from error


def as_text(found: Report, defaults: Mapping[str, Any] | None = None) -> str:
    """Return the whole report as text.

    Args:
        found: The report.
        defaults: Options that were chosen for this GPU and this model.
    """
    from vramlab.planner import describe

    parts = [
        describe(found.plan),
        _unusual_defaults(found, defaults or {}),
        str(found.table()),
        found.verdict(),
        found.value_reads(),
        str(found.changes()),
    ]
    return "\n\n".join(filter(None, parts))


def _unusual_defaults(found: Report, defaults: Mapping[str, Any]) -> str:
    """Return a sentence about defaults that depend on this GPU and model; '' without any."""
    if not defaults:
        return ""
    options = ", ".join(f'{_flag(name)} "{value}"' for name, value in defaults.items())
    return f"Defaults chosen for this model on {found.plan.model.name}: {options}."


def as_dict(found: Report) -> dict[str, Any]:
    """Return the whole report in JSON types, with sizes in bytes."""
    simulation = found.simulation
    return {
        "plan": _plan_as_dict(found.plan),
        "fits": found.fits,
        "available_bytes": found.estimate.available_bytes,
        "estimate": {
            "stage": found.estimate.stage,
            "moment": found.estimate.peak.name,
            "how": found.estimate.how,
            "peak_bytes": found.estimate.peak_bytes,
            "bytes_by_category": dict(found.estimate.bytes_by_category),
            "value_reads": [{"line": line, "how": how} for how, line in found.estimate.value_reads],
        },
        "simulation": simulation
        and {
            "stage": simulation.stage,
            "peak_bytes": simulation.peak_bytes,
            "bytes_by_category": dict(simulation.bytes_by_category),
            "unsplit_remainder_bytes": simulation.unsplit_remainder_bytes,
            "allocated_bytes": simulation.allocated_bytes,
            "reserved_bytes": simulation.reserved_bytes,
            "engine": "native" if simulation.native_torch else "portable",
            "problem": simulation.problem,
        },
        "changes": [
            {
                "what": change.what,
                "price": change.price,
                "peak_bytes": change.peak_bytes,
                "exact": change.exact,
            }
            for change in found.next_changes()
        ],
    }


def _plan_as_dict(plan: Plan) -> dict[str, Any]:
    if not plan.is_custom:
        return asdict(plan)
    custom = plan.custom
    model: dict[str, Any] = {
        "model": custom.name,
        "inputs": [tensor.text for tensor in custom.inputs],
        "target": custom.target and custom.target.text,
    }
    settings = {
        field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "sizes"
    }
    return model | settings


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
