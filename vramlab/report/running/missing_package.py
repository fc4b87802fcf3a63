"""Hints for programs whose packages are in another environment than vramlab.

`pipx` and `uvx` install vramlab in a separate environment. Programs then run there, too, and do not
find their packages.
"""

from __future__ import annotations

import sys


def missing_package_hint(error: BaseException | None) -> str | None:
    """Return a hint about a missing package; None for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package in sys.modules or package in sys.stdlib_module_names:
        return None
    return (
        f"The program runs in vramlab's environment, {sys.prefix}, which lacks {package}. Install "
        f"{package} there, or install vramlab in the environment of your program."
    )
