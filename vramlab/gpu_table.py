"""Reads `gpus.toml`: GPU models, what they have in common, and their MIG slices.

An entry is parsed when its GPU is wanted: all of them would take a tenth of a second.

An entry has figures that were measured or published. What is missing comes, in this order,
from its family, its compute capability, what all GPUs have in common, and arithmetic: bandwidth
from the memory's clock, FLOP/s from the multiprocessors' clock, the context from a GPU of which it
was measured. Every figure gets its source.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from vramlab.gpu_model import GPUModel, HistoricalContext
from vramlab.units import GIB, MIB

_NO_FIGURES = {"name", "aliases", "historical_contexts", "sources"}
FIGURES = tuple(known.name for known in fields(GPUModel) if known.name not in _NO_FIGURES)
"""Fields of `GPUModel` that are figures, in their order."""

# Where an entry begins, and what it is called by: the file is TOML, read piece by piece.
_ENTRY = re.compile(r"^\[\[gpu\]\]$", re.M)
_AFTER_ENTRIES = re.compile(r"^\[\[mig\]\]$", re.M)
_NAME = re.compile(r'^name = "(.+)"$', re.M)
_ALIASES = re.compile(r"^aliases = \[(.*)\]$", re.M)
_PRODUCT_NAME = re.compile(r'\bproduct_name = "(.+?)"')
_STRING = re.compile(r'"(.+?)"')

_RATES = tuple(name for name in FIGURES if name.endswith("_flops_per_s"))


@dataclass(frozen=True)
class Slice:
    """A MIG profile of a GPU."""

    name: str
    """Such as `1g.10gb`."""

    total_bytes: int
    """Memory of the instance."""

    multiprocessors: int
    """Multiprocessors of the instance."""

    memory_share: float
    """Part of the memory's bandwidth and of the level 2 cache."""

    source: str
    """Where the memory and the multiprocessors come from."""


class GPUTable:
    """The GPUs of a document in the form of `gpus.toml`; each is built when it is wanted."""

    def __init__(self, text: str) -> None:
        """Read the document.

        Args:
            text: TOML.

        Raises:
            ValueError: it is no TOML, or an entry has no name or no aliases.
        """
        first, last = _ENTRY.search(text), _AFTER_ENTRIES.search(text)
        begin = first.start() if first else len(text)
        end = last.start() if last else len(text)
        self._document = tomllib.loads(text[:begin] + text[end:])
        pieces = [f"[[gpu]]{piece}" for piece in _ENTRY.split(text[begin:end])[1:]]
        self._texts = {_only(_NAME, piece): piece for piece in pieces}
        self._models: dict[str, GPUModel] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every GPU, in the document's order."""
        return tuple(self._texts)

    @property
    def common(self) -> tuple[str, ...]:
        """Names of the GPUs that most programs run on."""
        return tuple(self._document.get("common", ()))

    def spellings(self) -> Iterator[tuple[str, str]]:
        """Yield each name and alias, with the name of its GPU."""
        for name, piece in self._texts.items():
            yield name, name
            yield from ((alias, name) for alias in _STRING.findall(_only(_ALIASES, piece)))

    def product_names(self) -> Iterator[tuple[str, str]]:
        """Yield each product name, with the name of its GPU. Several GPUs can have the same."""
        for name, piece in self._texts.items():
            yield from ((product, name) for product in _PRODUCT_NAME.findall(piece))

    def model(self, name: str) -> GPUModel:
        """Build a GPU.

        Raises:
            KeyError: there is none of that name.
            ValueError: a figure is missing, unknown, or given twice.
        """
        if name not in self._models:
            (entry,) = tomllib.loads(self._texts[name])["gpu"]
            self._models[name] = self._build(entry)
        return self._models[name]

    def of_capability(self, capability: tuple[int, int]) -> Mapping[str, int]:
        """Return the figures that follow from a compute capability.

        Raises:
            ValueError: the document has no figures for it.
        """
        known = self._document["capability"]
        try:
            table = known["{}.{}".format(*capability)]
        except KeyError:
            raise ValueError(f"the known ones are {', '.join(known)}") from None
        return {name: value for name, value in table.items() if name != "source"}

    def family_of(self, capability: tuple[int, int], product_name: str) -> str | None:
        """Name the family that a GPU belongs to; None: the document has none for it."""
        alike = [
            (name, table)
            for name, table in self._document["family"].items()
            if tuple(table["compute_capability"]) == capability
        ]
        fitting = [name for name, table in alike if table.get("product", "") in product_name]
        return max(fitting, key=lambda name: "product" in dict(alike)[name], default=None)

    def slices(self, name: str) -> tuple[Slice, ...]:
        """List the MIG profiles of a GPU; empty: it has none, or they are not known."""
        return tuple(
            Slice(
                name=profile["name"],
                total_bytes=int(profile["memory_gib"] * GIB),
                multiprocessors=profile["multiprocessors"],
                memory_share=profile["memory_share"],
                source=profile.get("source", table["source"]),
            )
            for table in self._document.get("mig", ())
            if name in table["gpus"]
            for profile in table["profiles"]
        )

    def _build(self, entry: Mapping[str, Any]) -> GPUModel:
        """Bring together what is known of one GPU."""
        name = entry["name"]
        figures: dict[str, Any] = {}
        sources: dict[str, str] = {}

        def take(table: Mapping[str, Any], *, only_missing: bool = False) -> None:
            found = {key: value for key, value in table.items() if key not in ("source", "without")}
            found |= dict.fromkeys(table.get("without", ()))
            for figure, value in found.items():
                if figure in figures:
                    if only_missing:
                        continue
                    raise ValueError(f"{name}: {figure} is given twice.")
                figures[figure] = tuple(value) if isinstance(value, list) else value
                sources[figure] = table["source"]

        for table in entry["figures"]:
            take(table)
        family = self._document["family"][entry["family"]] if "family" in entry else {}
        if family:
            no_figures = {"product", "context_of", "flops_per_clock"}
            common = {key: value for key, value in family.items() if key not in no_figures}
            take(common, only_missing=True)
        if "compute_capability" in figures:
            capability = "{}.{}".format(*figures["compute_capability"])
            take(self._document["capability"][capability])
        take(self._document["every_gpu"])
        for table in self._derived(family, figures):
            take(table, only_missing=True)

        if figures.keys() != set(FIGURES):
            missing = sorted(set(FIGURES) - figures.keys())
            unknown = sorted(figures.keys() - set(FIGURES))
            raise ValueError(f"{name}: missing figures {missing}, unknown figures {unknown}.")
        return GPUModel(
            name=name,
            aliases=tuple(entry["aliases"]),
            historical_contexts=tuple(
                HistoricalContext(**context) for context in entry.get("historical_contexts", ())
            ),
            sources=sources,
            **figures,
        )

    def _derived(
        self, family: Mapping[str, Any], known: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """Compute figures from others, as tables of the document would give them."""
        yield {"host_link_bandwidth_bytes_per_s": None, "source": "the link is PCI Express"}
        if not family or not {"multiprocessors", "clock_rate_khz"} <= known.keys():
            return
        if {"memory_clock_rate_khz", "memory_bus_width_bits"} <= known.keys():
            clock_khz, bits = known["memory_clock_rate_khz"], known["memory_bus_width_bits"]
            yield {
                "memory_bandwidth_bytes_per_s": 2 * clock_khz * 1000 * bits // 8,
                "source": f"2 transfers a clock: 2 x {clock_khz / 1000:g} MHz x {bits} bits",
            }
        count, clock_khz = known["multiprocessors"], known["clock_rate_khz"]
        for rate in _RATES:
            per_clock = family["flops_per_clock"].get(rate.removesuffix("_flops_per_s"))
            if per_clock is None:
                yield {rate: None, "source": family["source"]}
                continue
            yield {
                rate: float(per_clock * count * clock_khz * 1000),
                "source": f"estimated: {per_clock} FLOP a clock and multiprocessor "
                f"({family['source']}), {count} multiprocessors at {clock_khz / 1e6:g} GHz",
            }
        reference = self.model(family["context_of"])
        context_mib = round(reference.context_bytes / MIB * (count / reference.multiprocessors))
        yield {
            "context_bytes": context_mib * MIB,
            "source": f"estimated: {reference.name}'s {reference.context_bytes // MIB} MiB scaled "
            f"by multiprocessors, {count}/{reference.multiprocessors}, to whole MiB",
        }


def _only(pattern: re.Pattern[str], piece: str) -> str:
    found = pattern.search(piece)
    if found is None:
        raise ValueError(f"an entry has no line like {pattern.pattern}: {piece[:200]!r}")
    return found[1]


def sliced(gpu: GPUModel, profile: Slice) -> GPUModel:
    """Return the GPU that a program sees in a MIG instance.

    Its memory and its multiprocessors are the profile's. Bandwidth and level 2 cache are shared out
    by the profile's part of the memory; FLOP/s and the context by the multiprocessors. It has no
    NVLink.
    """
    part = profile.multiprocessors / gpu.multiprocessors
    rates = {rate: value * part for rate in _RATES if (value := getattr(gpu, rate)) is not None}
    context_bytes = round(gpu.context_bytes / MIB * part) * MIB
    by_memory = f"{profile.memory_share:g} of the {gpu.name}'s, {profile.source}"
    by_count = f"estimated: {profile.multiprocessors}/{gpu.multiprocessors} of the {gpu.name}'s"
    return replace(
        gpu,
        name=f"{gpu.name}-{profile.name}",
        aliases=(),
        product_name=f"{gpu.product_name} MIG {profile.name}",
        total_bytes=profile.total_bytes,
        nvml_total_bytes=profile.total_bytes,
        context_bytes=context_bytes,
        historical_contexts=(),
        multiprocessors=profile.multiprocessors,
        l2_cache_bytes=int(gpu.l2_cache_bytes * profile.memory_share),
        memory_bus_width_bits=int(gpu.memory_bus_width_bits * profile.memory_share),
        memory_bandwidth_bytes_per_s=int(gpu.memory_bandwidth_bytes_per_s * profile.memory_share),
        nvlink_bandwidth_bytes_per_s=None,
        sources={
            **gpu.sources,
            **dict.fromkeys(("total_bytes", "nvml_total_bytes", "multiprocessors"), profile.source),
            **dict.fromkeys(
                ("l2_cache_bytes", "memory_bus_width_bits", "memory_bandwidth_bytes_per_s"),
                by_memory,
            ),
            **dict.fromkeys(("context_bytes", *rates), by_count),
            "product_name": "as torch.cuda names a MIG device",
            "nvlink_bandwidth_bytes_per_s": "NVIDIA MIG user guide: no peer-to-peer over NVLink",
        },
        **rates,
    )
