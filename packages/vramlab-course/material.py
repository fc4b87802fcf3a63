"""Puts the notebooks into what is built: `vramlab lab` copies them into a learner's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NOTEBOOKS = ("lessons", "exercises", "start.ipynb")


class Material(BuildHookInterface[Any]):
    """Takes them from the checkout, or from the source distribution that was made there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name what is included; where the package is installed editably, it finds them itself."""
        if version == "editable":
            return
        here = Path(self.root)
        packed = here / "material"
        source = packed if packed.is_dir() else here.parents[1]
        target = "material" if self.target_name == "sdist" else "vramlab_course/material"
        build_data["force_include"] |= {
            str(source / name): f"{target}/{name}" for name in NOTEBOOKS
        }
