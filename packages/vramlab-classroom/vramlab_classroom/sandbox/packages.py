"""Which packages judge, and where they lie: what sandboxes show, and what verdicts depend on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

EXERCISES = "vramlab_classroom.exercises"
"""The group of entry points by which a package says that it has exercises."""


@cache
def judging_packages() -> Mapping[str, Path]:
    """Find the folders of vramlab, of this package, and of those that have exercises, by name.

    None of them is imported. Folders that are the same are there once: a link to one is the folder.
    """
    names = ["vramlab", __name__.partition(".")[0]]
    names += [entry.module.partition(".")[0] for entry in entry_points(group=EXERCISES)]
    found = {}
    for name in names:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[name] = Path(spec.submodule_search_locations[0]).resolve()
    return MappingProxyType(found)


def search_path() -> list[Path]:
    """List the folders from which Python imports these packages."""
    return list(dict.fromkeys(folder.parent for folder in judging_packages().values()))
