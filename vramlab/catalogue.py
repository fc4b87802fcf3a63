"""The catalogue of GPU models: what the virtual GPU must know about the GPU it stands for.

The figures are data, in `gpus.toml`, each beside the source it comes from. `gpu_model.py` says what
each figure means. This module finds a GPU by the names people use for it:

    >>> find("rtx 3090").total_bytes
    25286672384
    >>> find("rtx 3090").sources["context_bytes"]
    'nvidia-smi, process before its first tensor: 256 MiB with torch 2.7.1+cu128, ...'
    >>> find("A100-40GB-1g.5gb").multiprocessors                    # a MIG slice
    14
    >>> find("H100,memory=60GiB").total_bytes                       # with a figure of your own
    64424509440
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from importlib import resources

from vramlab.errors import UnknownGPUError
from vramlab.gpu_figures import with_figures
from vramlab.gpu_model import GPUModel, HistoricalContext, link_bytes_per_s
from vramlab.gpu_table import GPUTable, Slice, sliced
from vramlab.units import short_size

__all__ = [
    "GPUModel",
    "HistoricalContext",
    "common",
    "family_of",
    "find",
    "find_device",
    "link_bytes_per_s",
    "models",
    "names",
    "parse",
    "slices",
    "split",
]

# Words of a product name that tell no two GPUs apart.
_MARKETING = ("nvidia", "geforce", "tesla", "gpu", "generation", "edition")

# `RTX 4090` is also `4090`.
_SERIES = re.compile(r"^(rtx|gtx)(?=.*\d)")

_PROFILE = re.compile(
    r"^(?P<gpu>.+?)[\s_-]+(?:mig[\s_-]+)?(?P<profile>\d+g\.\d+gb)(?:[+-]\w+)*$", re.I
)
_ONLY_G = re.compile(r"(\b\d+)g\b")
_SAME = {"mobile": "laptop", "notebook": "laptop"}
_NOMINAL_SIZE = re.compile(r"(?:\b|_)(\d+)\s*gi?b?(?:\b|_)", re.I)
_MODEL_NUMBER = re.compile(r"\d{2,}")
_MOST_NAMED = 8


def models() -> tuple[GPUModel, ...]:
    """Return every GPU in the catalogue, oldest architecture first."""
    return tuple(map(_table().model, names()))


def names() -> tuple[str, ...]:
    """Return the name of every GPU in the catalogue."""
    return _table().names


def common() -> tuple[GPUModel, ...]:
    """Return the GPUs that most programs run on: those that `vramlab run --gpu all` tries."""
    return tuple(map(_table().model, _table().common))


def slices(gpu: GPUModel) -> tuple[str, ...]:
    """Return the names of a GPU's MIG slices, such as `H100-1g.10gb`; empty: it has none."""
    return tuple(f"{gpu.name}-{profile.name}" for profile in _table().slices(gpu.name))


def family_of(capability: tuple[int, int], product_name: str) -> str | None:
    """Name the family in `gpus.toml` that a GPU belongs to; None: there is none yet."""
    return _table().family_of(capability, product_name)


def split(text: str) -> list[str]:
    """Split a list of GPUs at its commas: `T4,H100,memory=60GiB` are `T4` and `H100,memory=60GiB`.

    A part without a name, as between two commas, is an empty string.
    """
    found: list[str] = []
    for part in text.split(","):
        if "=" in part and found and found[-1]:
            found[-1] += f",{part.strip()}"
        else:
            found.append(part.strip())
    return found


def find(name: str) -> GPUModel:
    """Find a GPU by its name, an alias or its product name.

    Case, punctuation, order and words such as NVIDIA, GeForce and Tesla make no difference; nor do
    `RTX` and `GTX`, or the size of the memory, where the rest says enough. A name that fits several
    GPUs, such as `A100`, is refused: which one is meant changes every answer.

    A MIG profile can follow the name (`H100-1g.10gb`), and so can figures that replace the
    catalogue's (`H100,memory=60GiB,multiprocessors=114`): names of `GPUModel`'s fields, without
    their unit if you like. `memory` is what programs can have of it.

    Raises:
        UnknownGPUError: no GPU has that name; the message names those that come closest.
        GPUFigureError: no figure has that name, or it cannot have that value.
    """
    name, *settings = split_settings(name)
    gpu = _find(name)
    return with_figures(gpu, settings, _table().of_capability) if settings else gpu


def find_device(product_name: str, total_bytes: int) -> GPUModel:
    """Find the GPU that CUDA describes.

    Args:
        product_name: what `torch.cuda.get_device_name` returns. Several GPUs can have the same; the
            one whose memory is nearest is meant.
        total_bytes: `total_memory` of its device properties.

    Raises:
        UnknownGPUError: no GPU has that product name.
    """
    key = _key(product_name)
    alike = [name for product, name in _table().product_names() if _key(product) == key]
    if not alike:
        return find(product_name)
    return min(map(_table().model, alike), key=lambda gpu: abs(gpu.total_bytes - total_bytes))


def split_settings(text: str) -> list[str]:
    """Split `H100,memory=60GiB` into the name and its settings."""
    return [part.strip() for part in text.split(",")]


def _find(name: str) -> GPUModel:
    profile = _PROFILE.match(name.strip())
    if profile is not None:
        gpu = _find(profile["gpu"])
        known = {known.name: known for known in _table().slices(gpu.name)}
        wanted = profile["profile"].lower()
        if wanted not in known:
            raise UnknownGPUError(_explain_unknown_profile(gpu, wanted, known.values()))
        return sliced(gpu, known[wanted])
    by_key = _by_key()
    key = _key(name)
    if key in by_key:
        return _table().model(by_key[key])
    if (found := _by_sorted_parts().get(_sorted_parts(name))) is not None:
        return _table().model(found)
    size = _NOMINAL_SIZE.search(name)
    if size is not None:
        shorter = _key(f"{name[: size.start()]} {name[size.end() :]}")
        if shorter in by_key:
            gpu = _table().model(by_key[shorter])
            if _is_sold_as(gpu, int(size[1])):
                return gpu
            raise UnknownGPUError(
                f"No GPU named {name!r} in the catalogue. {gpu.name} has "
                f"{short_size(gpu.total_bytes)}; for another size, write "
                f"'{gpu.name},memory={size[1]}GiB'."
            )
    raise UnknownGPUError(_explain_unknown(name))


def _is_sold_as(gpu: GPUModel, gigabytes: int) -> bool:
    """Whether the memory is about what the box says: a T4 of 16 GB has 15 GiB for NVML."""
    return abs(gpu.nvml_total_bytes / 10**9 / gigabytes - 1) < 0.09


def _explain_unknown(name: str) -> str:
    """Report that no GPU has that name, and what comes closest."""
    wanted = _parts(name)
    family = _distinct(found for spelling, found in _spellings() if wanted in _parts(spelling))
    if 0 < len(family) <= _MOST_NAMED:
        hint = f"Did you mean {_either(family)}?"
    else:
        nearest = _nearest(_NOMINAL_SIZE.sub(" ", name))
        hint = f"Closest: {', '.join(nearest)}." if nearest else ""
    unknown = f"No GPU named {name!r} in the catalogue."
    return " ".join(filter(None, (unknown, hint, f"`vramlab gpus` lists all {len(names())}.")))


def _nearest(name: str) -> list[str]:
    """Name GPUs that are called alike, first those with the same number."""
    wanted, keys = _key(name), {_key(spelling): found for spelling, found in _spellings()}
    close = difflib.get_close_matches(wanted, keys, n=4 * _MOST_NAMED, cutoff=0.5)
    numbers = _MODEL_NUMBER.findall(wanted)
    close.sort(key=lambda key: not any(number in key for number in numbers))
    return _distinct(keys[key] for key in close)[: _MOST_NAMED // 2]


def _explain_unknown_profile(gpu: GPUModel, profile: str, known: Iterable[Slice]) -> str:
    have = ", ".join(one.name for one in known)
    if not have:
        return f"{gpu.name} has no MIG profiles, so {profile!r} is invalid: leave it out."
    return f"{gpu.name} has no MIG profile {profile!r}. It has: {have}."


def _either(choices: list[str]) -> str:
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _parts(name: str) -> str:
    """Take letters and numbers apart: `A100` is in ` a 100 40 gb `, and not in ` rtx a 1000 `."""
    parts = re.findall(r"[a-z]+|\d+", _ONLY_G.sub(r"\1gb", name.lower()))
    return f" {' '.join(_SAME.get(part, part) for part in parts if part not in _MARKETING)} "


def _sorted_parts(name: str) -> tuple[str, ...]:
    """Return the parts without their order: `3080 16GB laptop` is `3080 laptop 16GB`."""
    return tuple(sorted(_parts(name).split()))


def _key(name: str) -> str:
    """Reduce a name to what tells GPUs apart: `NVIDIA GeForce RTX 3090` becomes `rtx3090`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _MARKETING)


@functools.cache
def _by_key() -> dict[str, str]:
    """Map the keys of all spellings to names: first names and aliases, then product names.

    A product name that several GPUs have, such as an RTX 4060 Ti of 8 and of 16 GB, finds none of
    them, unless it is the name of one.
    """
    keys = {_key(spelling): name for spelling, name in _table().spellings()}
    products: dict[str, set[str]] = {}
    for product, name in _table().product_names():
        products.setdefault(_key(product), set()).add(name)
    for key, found in products.items():
        if len(found) == 1:
            keys.setdefault(key, *found)
    short = {_SERIES.sub("", key): name for key, name in keys.items()}
    return {**short, **keys}


@functools.cache
def _by_sorted_parts() -> dict[tuple[str, ...], str | None]:
    """Map the sorted parts of all keys' spellings to names; None: they fit several GPUs."""
    found: dict[tuple[str, ...], str | None] = {}
    by_key = _by_key()
    for spelling, _ in _spellings():
        name = by_key.get(_key(spelling))
        parts = _sorted_parts(spelling)
        for written in {parts, tuple(part for part in parts if part not in ("gtx", "rtx"))}:
            found[written] = name if found.setdefault(written, name) == name else None
    return found


@functools.cache
def _spellings() -> tuple[tuple[str, str], ...]:
    """Return all spellings with their GPUs, also product names that several GPUs have."""
    return (*_table().spellings(), *_table().product_names())


@functools.cache
def _table() -> GPUTable:
    return GPUTable((resources.files("vramlab") / "gpus.toml").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[GPUModel, ...]:
    """Read a catalogue in the form of `gpus.toml`.

    Raises:
        ValueError: a figure is missing, unknown, or given twice for one GPU.
    """
    table = GPUTable(text)
    return tuple(map(table.model, table.names))
