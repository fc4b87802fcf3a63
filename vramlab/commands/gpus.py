"""`vramlab gpus`: list the GPUs; `vramlab gpus NAME`: show one with the source of every number.

$ vramlab gpus
$ vramlab gpus a100-40gb
$ vramlab gpus 'H100-1g.10gb,memory=9GiB'
$ vramlab gpus --json
$ vramlab gpus --measure
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.errors import VramlabError
from vramlab.units import MIB, format_bytes

_EXIT_OK = 0

_COLUMNS = ("GPU", "memory", "context", "capability", "SMs", "bandwidth", "fp32", "fp16", "bf16")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `gpus` to the command line."""
    parser = subparsers.add_parser(
        "gpus",
        help="list the GPUs that vramlab can simulate",
        description="List the GPUs that vramlab can simulate, or show one of them with the source "
        "of every number. In the list, 'memory' is the total that PyTorch sees, and 'context' is "
        "the part that CUDA takes before the first tensor.",
        examples=(
            "vramlab gpus",
            "vramlab gpus A100-40GB",
            "vramlab gpus 'H100-1g.10gb,memory=9GiB'",
        ),
    )
    parser.add_argument(
        "name",
        nargs="?",
        help="GPU to show, for example T4, 'rtx 3090', a MIG slice such as A100-40GB-1g.5gb, or a "
        "GPU with your own numbers such as 'H100,memory=60GiB' (default: list all)",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure this machine's GPU and print an entry for the catalogue",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list or one GPU.

    Raises:
        VramlabError: An unknown name, or `--measure` without a GPU.
    """
    if arguments.measure:
        if arguments.name or arguments.json:
            raise VramlabError("--measure cannot be combined with a GPU name or --json")
        from vramlab.recordings.gpu_entry import measured_entry

        print(measured_entry())
        return _EXIT_OK
    chosen = [catalogue.find(arguments.name)] if arguments.name else list(catalogue.models())
    if arguments.json:
        shown = [as_dict(gpu) for gpu in chosen]
        print(json.dumps(shown[0] if arguments.name else shown, indent=2))
    elif arguments.name:
        print("\n".join(details(chosen[0])))
    else:
        print("\n".join(table(chosen)))
    return _EXIT_OK


def as_dict(gpu: GPUModel) -> dict[str, Any]:
    """Return every field of a GPU in JSON types, with sizes in bytes."""
    return asdict(gpu) | {"sources": dict(gpu.sources)}


def table(gpus: Iterable[GPUModel]) -> list[str]:
    """Return a table with one line per GPU. `~` marks estimates."""
    rows = [_COLUMNS, *(_row(gpu) for gpu in gpus)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return [
        *lines,
        "",
        "~ estimated. `vramlab gpus NAME` shows MIG slices and the source of each number.",
        f"`vramlab run --gpu all` tries {', '.join(gpu.name for gpu in catalogue.common())}.",
    ]


def _row(gpu: GPUModel) -> tuple[str, ...]:
    return (
        gpu.name,
        _estimate_mark(gpu, "total_bytes") + format_bytes(gpu.total_bytes),
        _estimate_mark(gpu, "context_bytes") + f"{gpu.context_bytes // MIB} MiB",
        "{}.{}".format(*gpu.compute_capability),
        str(gpu.multiprocessors),
        f"{gpu.memory_bandwidth_bytes_per_s / 1e9:,.0f} GB/s",
        _rate(gpu, "fp32_flops_per_s"),
        _rate(gpu, "fp16_tensor_flops_per_s"),
        _rate(gpu, "bf16_tensor_flops_per_s"),
    )


def _rate(gpu: GPUModel, field: str) -> str:
    """Return a FLOP rate in TFLOP/s, or a dash if the GPU lacks such units."""
    flops_per_s = getattr(gpu, field)
    if flops_per_s is None:
        return "-"
    return _estimate_mark(gpu, field) + f"{flops_per_s / 1e12:,.1f} TFLOP/s"


def _estimate_mark(gpu: GPUModel, field: str) -> str:
    return "~" if gpu.is_estimated(field) else ""


def details(gpu: GPUModel) -> list[str]:
    """Return every number of one GPU, grouped by source, and its earlier context sizes."""
    lines = [f"{gpu.name}: {gpu.product_name}"]
    if gpu.aliases:
        lines.append(f"also called {', '.join(gpu.aliases)}")
    if slices := catalogue.slices(gpu):
        lines.append(f"MIG slices: {', '.join(slices)}")
    order = [field.name for field in fields(gpu) if field.name in gpu.sources]
    for source in dict.fromkeys(gpu.sources[name] for name in order):
        named = [name for name in order if gpu.sources[name] == source]
        lines += ["", *_figures(gpu, named), f"  source: {source}"]
    for context in gpu.historical_contexts:
        lines += [
            "",
            f"  earlier context_bytes  {_readable('context_bytes', context.context_bytes)}",
            f"  measured with: {context.conditions}",
            f"  source: {context.source}",
        ]
    return lines


def _figures(gpu: GPUModel, names: Sequence[str]) -> list[str]:
    width = max(map(len, names))
    return [f"  {name.ljust(width)}  {_readable(name, getattr(gpu, name))}" for name in names]


def _readable(name: str, value: object) -> str:
    """Return a number with its unit: exact bytes first, then a rounded size."""
    match value:
        case None:
            return "not available on this GPU"
        case int() if name.endswith("_bytes"):
            return f"{value:,} B ({format_bytes(value)})"
        case int() if name.endswith("_bytes_per_s"):
            return f"{value / 1e9:,.0f} GB/s"
        case float() if name.endswith("_flops_per_s"):
            return f"{value / 1e12:,.1f} TFLOP/s"
        case int() if name == "pci_device_id":
            return f"0x{value:04X}"
        case tuple():
            return ".".join(map(str, value))
        case int():
            return f"{value:,}"
        case _:
            return str(value)
