"""`vramlab plan`: will this training fit, what does each GPU hold, and what to change.

$ vramlab plan gpt2-xl --gpu A100-40GB --batch 8
$ vramlab plan llama-3.1-8b --gpu H100-80GB --batch 16 --sequence 8192 --data 8 --zero 3 --simulate
$ vramlab plan --config config.json --tensor 4 --sequence-parallel --pipeline 2 --micro-batch 1
$ vramlab plan Qwen3-30B-A3B/config.json --gpu H200 --data 8 --zero 3 --batch 8
$ vramlab plan net.py:build --input "float32[B,3,224,224]" --target "int64[B]" --loss cross_entropy
$ vramlab plan llama-3.1-8b --serve --gpu L4 --sequence 8192
$ vramlab plan --layers 24 --width 2048 --heads 16 --vocabulary 50257 --like gpt2
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramlab.errors import VramlabError
from vramlab.garbage import lasting_imports
from vramlab.native.choice import ENGINES, ENVIRONMENT, choose, default_engine
from vramlab.planner.native_simulation import INSIDE, simulate_natively, write_inside
from vramlab.progress import working

if TYPE_CHECKING:
    from vramlab.planner import Plan, Report
    from vramlab.planner.custom import CustomModel
    from vramlab.planner.simulation import Simulation
    from vramlab.programs.transformer_memory import Sizes

_EXIT_FITS = 0
_EXIT_DOES_NOT_FIT = 1

_SIZES = {
    "layers": "how many",
    "width": "of the hidden state",
    "heads": "of attention",
    "kv_heads": "heads of keys and values",
    "feed_forward": "inner width of the feed-forward layer",
    "vocabulary": "words",
    "positions": "the most tokens of a sequence",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `plan` to the command line."""
    parser = subparsers.add_parser(
        "plan",
        help="say whether a model's training fits, and what to change",
        description="Say what each GPU holds when a model is trained: PyTorch's own code runs a "
        "step with few layers on a virtual GPU, which is extended to all layers; with --simulate "
        "it runs all of them on one as large as yours. Ends with status 0 if it fits, 1 if it "
        "does not.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "model",
        nargs="?",
        help="a known model, such as gpt2-xl or llama-3.1-8b; a config.json of transformers, or a "
        "folder with one; or a function without arguments that returns a model, as "
        "file.py:function or package.module:function",
    )
    parser.add_argument(
        "--config",
        type=Path,
        help="a config.json of GPT-2, Llama or Mistral, for the built-in transformer of its sizes, "
        "which can be cut and be a pipeline; of other types, as MODEL",
    )
    _add_call(parser.add_argument_group("how a model of your own is called"))
    sizes = parser.add_argument_group("sizes, instead of a model or to change it")
    sizes.add_argument("--like", metavar="MODEL", default="gpt2", help="default: %(default)s")
    for name, about in _SIZES.items():
        sizes.add_argument(_flag(name), type=int, metavar="N", help=about)
    _add_training(parser.add_argument_group("training"))
    _add_gpus(parser.add_argument_group("GPUs"))
    _add_serving(parser.add_argument_group("serving, in place of training"))
    parser.add_argument(
        "--simulate", action="store_true", help="run all of it, too (seconds to minutes)"
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="what --simulate runs on: portable, the virtual GPU; native, PyTorch's own CUDA code, "
        "see `vramlab native`; auto, native where the installed PyTorch's version is set up "
        f"(default: ${ENVIRONMENT}, else auto)",
    )
    parser.add_argument(
        INSIDE, nargs=2, metavar=("STAGE", "FILE"), dest="inside", help=argparse.SUPPRESS
    )
    parser.add_argument("--json", action="store_true", help="print everything, in bytes, as JSON")
    parser.set_defaults(run=run)


def _add_call(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="TENSOR",
        help='what it is called with, such as "float32[B,3,224,224]" by position or '
        '"input_ids=int64[B,S]" by keyword, once for each tensor; B is the batch that a GPU takes '
        "at a time, S the sequence",
    )
    group.add_argument(
        "--target", metavar="TENSOR", help='what the loss is compared with, such as "int64[B]"'
    )
    group.add_argument(
        "--loss",
        metavar="FUNCTION",
        help="called with output and target: a name in torch.nn.functional, or file.py:function "
        "(default: the model returns its loss)",
    )


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--batch", type=int, help="sequences of a step, on all GPUs together")
    group.add_argument("--micro-batch", type=int, help="sequences that a GPU takes at a time")
    group.add_argument(
        "--sequence", type=int, help="tokens of each (default: 1024, or the most the model takes)"
    )
    group.add_argument(
        "--precision",
        help='such as "float32" (default: "autocast bfloat16", or "autocast float16" on a GPU '
        "without bfloat16)",
    )
    group.add_argument("--optimizer", help="sgd, sgd with momentum, or adamw")
    group.add_argument("--implementation", choices=("loop", "foreach", "fused"))
    group.add_argument(
        "--attention",
        choices=("eager", "math", "efficient", "flash"),
        help="default: flash, or else efficient or math, whichever the GPU has for the precision",
    )
    group.add_argument("--dropout", action="store_true", default=None)
    group.add_argument("--checkpointing", choices=("none", "selective", "full"))
    group.add_argument("--offload", choices=("nothing", "optimizer", "activations", "both"))


def _add_gpus(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpu",
        help="a name that `vramlab gpus` lists, or 'H100,memory=60GiB' (default: A100-80GB)",
    )
    group.add_argument("--data", type=int, metavar="N", help="data-parallel ranks")
    group.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="what these divide")
    group.add_argument("--tensor", type=int, metavar="N", help="ranks that share matrices")
    group.add_argument("--sequence-parallel", action="store_true", default=None)
    group.add_argument("--pipeline", type=int, metavar="N", help="stages")
    group.add_argument("--schedule", choices=("GPipe", "1F1B"))


def _add_serving(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--serve",
        action="store_true",
        help="say how many requests fit when the model is served: --sequence is of each request, "
        "--tensor the GPUs that share it",
    )
    group.add_argument("--weights", metavar="DTYPE", help="float32, float16, bfloat16 or float8")
    group.add_argument("--cache", metavar="DTYPE", help="of keys and values")
    group.add_argument("--page", type=int, metavar="TOKENS", help="of the cache (default: 16)")
    group.add_argument(
        "--utilization", type=float, help="share of the memory that is taken (default: 0.9)"
    )
    group.add_argument(
        "--batched-tokens", type=int, metavar="N", help="of a forward pass (default: 2048)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report; answer the exit status.

    Raises:
        UnknownModel, UnusableModel, UnsupportedPlan, UnevenParts, UnknownGPUError: what was
            asked for cannot be.
    """
    if arguments.serve:
        return _serve(arguments)
    for name in _SERVING:
        if getattr(arguments, name) is not None:
            raise VramlabError(f"{_flag(name)} is for --serve")
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
    """Return what simulates on the native engine, if that is the one to take.

    Raises:
        NativeEngineError: it was asked for and cannot be had.
    """
    if not arguments.simulate:
        if arguments.engine:
            raise VramlabError("--engine is what --simulate runs on: give both")
        return None
    # A later stage's rank would wait for what the first rank of all says.
    later = "a stage of a pipeline" if plan.pipeline > 1 else ""
    choice = choose(arguments.engine or default_engine(), portable_only=later)
    if choice.build is None:
        return None
    return lambda plan, stage: simulate_natively(plan, stage, choice, arguments.words)


_SERVING = ("weights", "cache", "page", "utilization", "batched_tokens")


def _serve(arguments: argparse.Namespace) -> int:
    """Say how many requests fit; 0: one of --sequence does at least, 1: none does.

    Raises:
        UnknownModel, UnusableModel, UnusableServing, UnknownGPUError: what was asked for cannot be.
    """
    from vramlab import catalogue
    from vramlab.planner.models import is_built_in
    from vramlab.planner.served_models import served_config, served_transformer
    from vramlab.planner.serving import Serving
    from vramlab.planner.serving_report import serving_dict, serving_text

    given = arguments.model or ""
    path = arguments.config or (Path(given) if given and Path(given).exists() else None)
    if ":" in given:
        raise VramlabError("--serve takes a known model, a config.json, or sizes")
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
                f"--sequence {sequence}: {model.name} has positions for {model.positions} tokens"
            )
        told = serving_dict(serving, sequence)
    print(json.dumps(told, indent=2) if arguments.json else serving_text(serving, sequence))
    return _EXIT_FITS if told["fits"] else _EXIT_DOES_NOT_FIT


def _model(arguments: argparse.Namespace) -> Sizes | CustomModel:
    """Return the model that is named, read or described by sizes.

    A name is looked for among known ones first; so a folder of the same name is written ./name.
    """
    from vramlab.planner import MODELS
    from vramlab.planner.models import is_built_in

    if arguments.model and arguments.config:
        raise VramlabError(
            f"both a model ({arguments.model}) and a configuration ({arguments.config}): give one"
        )
    given = arguments.model or ""
    is_function = ":" in given
    is_path = not is_function and given.lower() not in MODELS and Path(given).exists()
    if given and (is_function or is_path):
        return _custom(arguments, None if is_function else Path(given))
    if arguments.config and not is_built_in(arguments.config):
        return _custom(arguments, arguments.config)
    call = [name for name in _CALL if getattr(arguments, name)]
    if call:
        raise VramlabError(
            f"{_flag(call[0])} says how a model of your own is called: give one, as "
            "file.py:function or as its config.json"
        )
    return _sizes(arguments)


_CALL = ("input", "target", "loss")
_BUILT_IN = (*_SIZES, "attention", "dropout")
"""Options of the built-in transformer only."""


def _custom(arguments: argparse.Namespace, config: Path | None) -> CustomModel:
    from vramlab.planner.sources import custom_model, transformers_model

    for name in _BUILT_IN:
        if getattr(arguments, name) is not None:
            raise VramlabError(
                f"{_flag(name)} is for the built-in transformer: {config or arguments.model} has "
                "its own"
            )
    if config is None:
        return custom_model(arguments.model, arguments.input, arguments.target, arguments.loss)
    if arguments.target or arguments.loss:
        raise VramlabError(
            "models of transformers return their loss: leave --target and --loss out, and give "
            "labels with --input if others than the usual ones are wanted"
        )
    return transformers_model(config, arguments.input)


def _sizes(arguments: argparse.Namespace) -> Sizes:
    from vramlab.planner import find_model, read_config

    changes: dict[str, Any] = {
        name: value for name in _SIZES if (value := getattr(arguments, name)) is not None
    }
    if not (arguments.model or arguments.config or changes):
        raise VramlabError("which model? Give a name, such as gpt2-xl, or --config, or sizes")
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
    """Give the whole report as text.

    Args:
        found: the report.
        defaults: options that were chosen for this GPU and this model.
    """
    from vramlab.planner import describe

    parts = [
        describe(found.plan),
        _told(found, defaults or {}),
        str(found.table()),
        found.verdict(),
        found.value_reads(),
        str(found.changes()),
    ]
    return "\n\n".join(filter(None, parts))


def _told(found: Report, defaults: Mapping[str, Any]) -> str:
    """Say which defaults are not the usual ones; '' if all are."""
    if not defaults:
        return ""
    options = ", ".join(f'{_flag(name)} "{value}"' for name, value in defaults.items())
    return f"Defaults for this model on {found.plan.model.name}: {options}."


def as_dict(found: Report) -> dict[str, Any]:
    """Give the whole report in types that JSON has; sizes in bytes."""
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
    told: dict[str, Any] = {
        "model": custom.name,
        "inputs": [each.text for each in custom.inputs],
        "target": custom.target and custom.target.text,
    }
    settings = {
        field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "sizes"
    }
    return told | settings


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
