"""Programs whose packages lie elsewhere: vramlab may have an environment of its own.

`pipx` and `uvx` give it one. A program then runs there, too, and does not find what it imports.
"""

from __future__ import annotations

import sys


def missing_package_hint(error: BaseException | None) -> str | None:
    """Say where a package is missing that a program imports; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package in sys.modules or package in sys.stdlib_module_names:
        return None
    return (
        f"The program runs in vramlab's environment, {sys.prefix}: install {package} there, or "
        "vramlab where the program's packages are"
    )
