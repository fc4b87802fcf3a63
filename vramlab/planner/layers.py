"""Layers that a model has many of: where they are, which are alike, and models with fewer.

Layers are found in `torch.nn.ModuleList`s and `torch.nn.Sequential`s. Two are alike that have
submodules of the same classes, with parameters of the same shapes and the same plain settings.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from torch import nn

MOST_PERIODS = 8
"""The longest pattern of layers that is looked for: Gemma 3 has one of six."""

_NUMBERS = ("layer_idx", "layer_id", "layer_index", "idx", "index")
"""Settings that only number layers."""


@dataclass(frozen=True)
class LayerList:
    """Layers of which some repeat those before them."""

    path: str
    """Of the container in the model."""
    length: int
    """How many layers there are."""
    first: int
    """How many come before the pattern, and how many of the pattern are left over behind it."""
    period: int
    """How many layers a pattern has: 1 if all are alike."""

    @property
    def patterns(self) -> int:
        """How often the pattern is there."""
        return (self.length - self.first) // self.period

    def kept(self, patterns: int) -> int:
        """Return how many layers there are with so many patterns."""
        return self.first + patterns * self.period


def layer_lists(model: nn.Module, fewest: int) -> list[LayerList]:
    """Find the lists of layers that can be shortened, the outermost ones.

    Args:
        model: of any kind; its parameters may be on the meta device.
        fewest: a list is one of them if it has more patterns than so many.
    """
    return list(_search(model, "", fewest))


def _search(module: nn.Module, path: str, fewest: int) -> Iterator[LayerList]:
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        found = _pattern(path, [_kind_of(child) for child in module])
        if found is not None and found.patterns > fewest:
            yield found
            return
    for name, child in module.named_children():
        yield from _search(child, f"{path}.{name}" if path else name, fewest)


def _pattern(path: str, kinds: list[Hashable]) -> LayerList | None:
    """Return the shortest pattern, after as few layers that are not of it as can be."""
    length, best = len(kinds), None
    for period in range(1, min(MOST_PERIODS, length // 2) + 1):
        lead = length - period
        while lead > 0 and kinds[lead - 1] == kinds[lead - 1 + period]:
            lead -= 1
        first = lead + (length - lead) % period
        found = LayerList(path, length, first, period)
        if found.patterns >= 2 and (best is None or found.patterns * period > covered(best)):
            best = found
    return best


def covered(found: LayerList) -> int:
    """Return how many layers are of a list's patterns."""
    return found.patterns * found.period


def _kind_of(layer: nn.Module) -> Hashable:
    return tuple(
        (
            name,
            type(module),
            tuple((key, tuple(value.shape), value.dtype) for key, value in _tensors_of(module)),
            tuple(_settings_of(module)),
        )
        for name, module in layer.named_modules()
    )


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)  # type: ignore[misc]


def _settings_of(module: nn.Module) -> Iterator[tuple[str, object]]:
    """Plain attributes, but for numbers of layers; rates of dropout are as good as each other."""
    for name, value in vars(module).items():
        if name.startswith("__") or name in _NUMBERS:
            continue
        if isinstance(value, float):
            yield name, value > 0
        elif value is None or isinstance(value, (bool, int, str)):
            yield name, value


def keep(model: nn.Module, kept: tuple[tuple[str, int], ...]) -> None:
    """Leave a model with its first layers only.

    Args:
        model: of which layers are removed.
        kept: how many layers of which list stay.
    """
    for path, count in kept:
        container = model.get_submodule(path)
        assert isinstance(container, (nn.ModuleList, nn.Sequential))
        del container[count:]
