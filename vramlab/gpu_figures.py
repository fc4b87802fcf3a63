"""Replaces figures of a GPU by a caller's: `memory=60GiB`, `multiprocessors=114`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from vramlab.errors import GPUFigureError
from vramlab.gpu_model import GPUModel
from vramlab.gpu_table import FIGURES
from vramlab.units import parse_bytes, short_size

_UNITS = ("_bytes_per_s", "_flops_per_s", "_per_s", "_bytes", "_khz", "_bits")
_SHORT = {"memory": "total_bytes", "sms": "multiprocessors", "capability": "compute_capability"}
_CAN_LACK = {
    "tf32_tensor_flops_per_s",
    "fp16_tensor_flops_per_s",
    "bf16_tensor_flops_per_s",
    "fp8_tensor_flops_per_s",
    "nvlink_bandwidth_bytes_per_s",
    "host_link_bandwidth_bytes_per_s",
}


def with_figures(
    gpu: GPUModel,
    settings: Iterable[str],
    of_capability: Callable[[tuple[int, int]], Mapping[str, int]],
) -> GPUModel:
    """Replace figures of a GPU, and add them to its name.

    What NVML counts as the whole memory changes by as much as `total_bytes`, unless it is given,
    and a compute capability brings what follows from it. Other figures stay as they are.

    Args:
        gpu: the GPU.
        settings: `figure=value`, each figure by its field's name, with or without the unit.
        of_capability: gives the figures that follow from a compute capability; ValueError: unknown.

    Raises:
        GPUFigureError: no figure has that name, it cannot have that value, or it is given twice.
    """
    given: dict[str, Any] = {}
    written = []
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        figure = _figure(gpu, name, setting) if equals else None
        if figure is None:
            raise GPUFigureError(
                f"invalid {setting!r} after {gpu.name}: write figure=value, such as memory=60GiB"
            )
        if figure in given:
            raise GPUFigureError(
                f"{figure} of {gpu.name} is set twice: remove {setting!r} or the other one"
            )
        given[figure] = _value(figure, text, setting, type(getattr(gpu, figure)))
        written.append(f"{name}={text}")
    changed = dict(given)
    if "total_bytes" in given:
        changed.setdefault("nvml_total_bytes", given["total_bytes"] + gpu.driver_reserved_bytes)
    if "compute_capability" in given:
        try:
            changed = {**of_capability(given["compute_capability"]), **changed}
        except ValueError as unknown:
            shown = "{}.{}".format(*given["compute_capability"])
            raise GPUFigureError(f"unknown compute capability {shown}: {unknown}") from None
    name = ",".join((gpu.name, *written))
    source = f"given: {', '.join(written)}"
    result = replace(
        gpu,
        name=name,
        aliases=(),
        sources={**gpu.sources, **dict.fromkeys(changed, source)},
        **changed,
    )
    _check(result)
    return result


def _figure(gpu: GPUModel, name: str, setting: str) -> str:
    """Find the field that a name stands for."""
    wanted = name.lower().replace("-", "_").replace(" ", "_")
    wanted = _SHORT.get(wanted, wanted)
    fitting = [one for one in FIGURES if wanted in (one, *map(one.removesuffix, _UNITS))]
    if not fitting:
        raise GPUFigureError(
            f"invalid {setting!r}: unknown name {name!r}; use memory, context, multiprocessors, "
            f"memory_bandwidth, or another name listed by `vramlab gpus {gpu.name}`"
        )
    return fitting[0]


def _value(figure: str, text: str, setting: str, usual: type) -> Any:
    """Read a value as the field's type wants it."""
    if figure == "product_name":
        if not text:
            raise GPUFigureError(f"invalid {setting!r}: the name is empty")
        return text
    if text.lower() == "none":
        if figure not in _CAN_LACK:
            raise GPUFigureError(f"invalid {setting!r}: every GPU has {figure}")
        return None
    if figure == "compute_capability":
        major, _, minor = text.partition(".")
        if not (_is_number(major) and _is_number(minor)):
            raise GPUFigureError(f"invalid {setting!r}: write a compute capability like 9.0")
        return int(major), int(minor)
    if figure.endswith("_bytes"):
        try:
            value: Any = parse_bytes(text)
        except ValueError as wrong:
            raise GPUFigureError(f"invalid {setting!r}: {wrong}") from None
    else:
        value = _number(figure, text, setting)
    if value <= 0:
        raise GPUFigureError(f"invalid {setting!r}: {figure} must be above 0")
    return float(value) if usual is float or figure.endswith("_flops_per_s") else value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _number(figure: str, text: str, setting: str) -> int:
    """Read a whole number, also as 3.35e12 or 0x2330."""
    try:
        if text.lower().startswith("0x"):
            return int(text, 16)
        value = Decimal(text)
        if not value.is_finite() or value != int(value):
            raise ValueError
    except (ValueError, InvalidOperation):
        raise GPUFigureError(
            f"invalid {setting!r}: {figure} must be an integer, such as 114 or 3.35e12"
        ) from None
    return int(value)


def _check(gpu: GPUModel) -> None:
    """Refuse sizes that cannot be together."""
    if gpu.context_bytes >= gpu.total_bytes:
        raise GPUFigureError(
            f"{gpu.name}: the context of {short_size(gpu.context_bytes)} leaves nothing of "
            f"{short_size(gpu.total_bytes)} of memory"
        )
    if gpu.nvml_total_bytes < gpu.total_bytes:
        raise GPUFigureError(
            f"{gpu.name}: programs cannot have {short_size(gpu.total_bytes)} of memory if NVML "
            f"counts {short_size(gpu.nvml_total_bytes)}"
        )
