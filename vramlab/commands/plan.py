"""`vramlab plan`: will this training fit, what does each GPU hold, and what to change.

$ vramlab plan gpt2-xl --gpu A100-40GB --batch 8
$ vramlab plan llama-3.1-8b --gpu H100-80GB --batch 16 --sequence 8192 --data 8 --zero 3 --simulate
$ vramlab plan --config config.json --tensor 4 --sequence-parallel --pipeline 2 --micro-batch 1
$ vramlab plan --layers 24 --width 2048 --heads 16 --vocabulary 50257 --like gpt2
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramlab.errors import VramlabError
from vramlab.progress import working

if TYPE_CHECKING:
    from vramlab.planner import Report
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
        help="say whether a transformer's training fits, and what to change",
        description="Say what each GPU holds when a transformer is trained, in closed form, and "
        "with --simulate by PyTorch's own code on a virtual GPU. Ends with status 0 if it fits, "
        "1 if it does not.",
        allow_abbrev=False,
    )
    parser.add_argument("model", nargs="?", help="a known model, such as gpt2-xl or llama-3.1-8b")
    parser.add_argument("--config", type=Path, help="a config.json of transformers instead")
    sizes = parser.add_argument_group("sizes, instead of a model or to change it")
    sizes.add_argument("--like", metavar="MODEL", default="gpt2", help="default: %(default)s")
    for name, about in _SIZES.items():
        sizes.add_argument(_flag(name), type=int, metavar="N", help=about)
    _add_training(parser.add_argument_group("training"))
    _add_gpus(parser.add_argument_group("GPUs"))
    parser.add_argument(
        "--simulate", action="store_true", help="run it on a virtual GPU, too (seconds to minutes)"
    )
    parser.add_argument("--json", action="store_true", help="print everything, in bytes, as JSON")
    parser.set_defaults(run=run)


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--batch", type=int, help="sequences of a step, on all GPUs together")
    group.add_argument("--micro-batch", type=int, help="sequences that a GPU takes at a time")
    group.add_argument("--sequence", type=int, help="tokens of each")
    group.add_argument("--precision", help='such as "autocast bfloat16" or "float32"')
    group.add_argument("--optimizer", help="sgd, sgd with momentum, or adamw")
    group.add_argument("--implementation", choices=("loop", "foreach", "fused"))
    group.add_argument("--attention", choices=("eager", "math", "efficient", "flash"))
    group.add_argument("--dropout", action="store_true", default=None)
    group.add_argument("--checkpointing", choices=("none", "selective", "full"))
    group.add_argument("--offload", choices=("nothing", "optimizer", "activations", "both"))


def _add_gpus(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gpu", help="a name that `vramlab gpus` lists (default: A100-80GB)")
    group.add_argument("--data", type=int, metavar="N", help="data-parallel ranks")
    group.add_argument("--zero", type=int, choices=(0, 1, 2, 3), help="what these divide")
    group.add_argument("--tensor", type=int, metavar="N", help="ranks that share matrices")
    group.add_argument("--sequence-parallel", action="store_true", default=None)
    group.add_argument("--pipeline", type=int, metavar="N", help="stages")
    group.add_argument("--schedule", choices=("GPipe", "1F1B"))


def run(arguments: argparse.Namespace) -> int:
    """Print the report; answer the exit status.

    Raises:
        UnknownModel, UnsupportedPlan, UnevenParts, UnknownGPUError: what was asked for cannot be.
    """
    from vramlab.planner import Plan, report

    sizes = _sizes(arguments)
    chosen: dict[str, Any] = {
        field.name: value
        for field in fields(Plan)
        if (value := getattr(arguments, field.name, None)) is not None
    }
    plan = Plan(sizes, **chosen)
    with working("simulating" if arguments.simulate else "planning"):
        found = report(plan, simulated=arguments.simulate)
        text = json.dumps(as_dict(found), indent=2) if arguments.json else as_text(found)
    print(text)
    return _EXIT_FITS if found.fits else _EXIT_DOES_NOT_FIT


def _sizes(arguments: argparse.Namespace) -> Sizes:
    from vramlab.planner import find_model, read_config

    if arguments.model and arguments.config:
        raise VramlabError(
            f"both a model ({arguments.model}) and a configuration ({arguments.config}): give one"
        )
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


def as_text(found: Report) -> str:
    """The whole report as text."""
    from vramlab.planner import describe

    parts = [describe(found.plan), str(found.table()), found.verdict(), str(found.changes())]
    return "\n\n".join(parts)


def as_dict(found: Report) -> dict[str, Any]:
    """The whole report in types that JSON has; sizes in bytes."""
    simulation = found.simulation
    return {
        "plan": asdict(found.plan),
        "fits": found.fits,
        "available_bytes": found.estimate.available_bytes,
        "estimate": {
            "stage": found.estimate.stage,
            "moment": found.estimate.peak.name,
            "peak_bytes": found.estimate.peak_bytes,
            "bytes_by_category": dict(found.estimate.bytes_by_category),
        },
        "simulation": simulation
        and {
            "stage": simulation.stage,
            "peak_bytes": simulation.peak_bytes,
            "bytes_by_category": dict(simulation.bytes_by_category),
            "rests_bytes": simulation.rests_bytes,
            "allocated_bytes": simulation.allocated_bytes,
            "reserved_bytes": simulation.reserved_bytes,
            "problem": simulation.problem,
        },
        "changes": [
            {"what": change.what, "price": change.price, "peak_bytes": change.after.peak_bytes}
            for change in found.next_changes()
        ],
    }


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
