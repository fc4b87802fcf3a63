"""Replace a missing `nvidia-smi`, which many training scripts call to log their GPU."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from vramlab import catalogue
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.stand_ins.libraries.nvml_library import DRIVER_VERSION
from vramlab.units import MIB

_COMMAND = re.compile(r"\s*nvidia-smi(?:\.exe)?(?=\s|$)([^|;&<>]*)")
"""At the beginning of a line for a shell, up to the next command."""

_PRINT = "import sys; sys.stdout.write(sys.argv[1])"


def _total_bytes(index: int) -> int:
    """Return what NVML says, which is more than CUDA does: a part is the driver's."""
    return int(torch.cuda.get_device_properties(index).total_memory) + _reserved_bytes(index)


def _reserved_bytes(index: int) -> int:
    gpu = ATTACHED.newest
    if gpu is not None:
        return gpu.model.driver_reserved_bytes
    properties = torch.cuda.get_device_properties(index)
    return catalogue.find_device(properties.name, properties.total_memory).driver_reserved_bytes


def _free_bytes(index: int) -> int:
    return _total_bytes(index) - _reserved_bytes(index) - _used_bytes(index)


def _used_bytes(index: int) -> int:
    if not torch.cuda.max_memory_reserved(index):
        return 0  # asking the driver would make a context, which takes memory
    free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    return total_bytes - free_bytes


_FIELDS: dict[str, Callable[[int], str]] = {
    "index": str,
    "count": lambda index: f"{torch.cuda.device_count()}",
    "name": torch.cuda.get_device_name,
    "gpu_name": torch.cuda.get_device_name,
    "uuid": lambda index: _uuid(index),
    "gpu_uuid": lambda index: _uuid(index),
    "driver_version": lambda index: DRIVER_VERSION,
    "compute_cap": lambda index: "{}.{}".format(*torch.cuda.get_device_capability(index)),
    "memory.total": lambda index: f"{_total_bytes(index) // MIB} MiB",
    "memory.reserved": lambda index: f"{_reserved_bytes(index) // MIB} MiB",
    "memory.free": lambda index: f"{_free_bytes(index) // MIB} MiB",
    "memory.used": lambda index: f"{_used_bytes(index) // MIB} MiB",
    "utilization.gpu": lambda index: "0 %",
    "utilization.memory": lambda index: "0 %",
}
"""What `--query-gpu` may ask; all else is `[N/A]`, as nvidia-smi itself says."""

_PROCESS_FIELDS: dict[str, Callable[[int], str]] = {
    "pid": lambda index: f"{os.getpid()}",
    "process_name": lambda index: sys.executable,
    "name": lambda index: sys.executable,
    "gpu_name": torch.cuda.get_device_name,
    "gpu_uuid": lambda index: _uuid(index),
    "used_gpu_memory": lambda index: f"{_used_bytes(index) // MIB} MiB",
    "used_memory": lambda index: f"{_used_bytes(index) // MIB} MiB",
}
"""What `--query-compute-apps` may ask of this process, the one on every GPU that it uses."""


def smi_command(args: Any) -> Any:
    """Return a command that prints what nvidia-smi would; None: it is another one, or it is there.

    Args:
        args: the words of a command, or a line for a shell, as `subprocess.Popen` gets them.
    """
    if shutil.which("nvidia-smi"):
        return None
    if isinstance(args, str):
        found = _COMMAND.match(args)
        if found is None:
            return None
        return shlex.join(_printing(shlex.split(found[1]))) + args[found.end() :]
    words = [str(word) for word in args] if isinstance(args, list | tuple) else []
    return _printing(words[1:]) if words[:1] in (["nvidia-smi"], ["nvidia-smi.exe"]) else None


def _printing(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", _PRINT, _answer(options)]


def _answer(options: Sequence[str]) -> str:
    named = dict(option.partition("=")[::2] for option in options)
    indices = _chosen(options, named)
    if not indices:
        return "No devices were found\n"
    if "-L" in options or "--list-gpus" in options:
        return "".join(
            f"GPU {index}: {torch.cuda.get_device_name(index)} (UUID: {_uuid(index)})\n"
            for index in indices
        )
    table = _FIELDS
    queried = named.get("--query-gpu")
    if queried is None and (queried := named.get("--query-compute-apps")) is not None:
        table, indices = _PROCESS_FIELDS, [index for index in indices if _used_bytes(index)]
    if queried is None:
        lines = [f"{_FIELDS['name'](i)} (virtual)  {_memory(i)}" for i in indices]
        return "\n".join(["NVIDIA-SMI (simulated by vramlab)", *lines, ""])
    fields = [field.strip() for field in queried.split(",")]
    how = named.get("--format", "csv").split(",")
    rows = [[table.get(field, _unknown)(index) for field in fields] for index in indices]
    if "nounits" in how:
        rows = [[re.sub(" (MiB|%)$", "", text) for text in row] for row in rows]
    header = [] if "noheader" in how else [fields]
    return "".join(f"{', '.join(row)}\n" for row in [*header, *rows])


def _chosen(options: Sequence[str], named: Mapping[str, str]) -> list[int]:
    """Return the GPUs that `-i 0,1` or `--id=1` names; all of them without it."""
    ids = named.get("--id") or named.get("-i")
    if not ids and "-i" in options[:-1]:
        ids = options[options.index("-i") + 1]
    everything = range(torch.cuda.device_count())
    wanted = [each.strip() for each in ids.split(",")] if ids else map(str, everything)
    return [int(each) for each in wanted if each in map(str, everything)]


def _uuid(index: int) -> str:
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def _unknown(index: int) -> str:
    return "[N/A]"


def _memory(index: int) -> str:
    return f"{_FIELDS['memory.used'](index)} / {_FIELDS['memory.total'](index)}"
