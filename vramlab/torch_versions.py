"""The versions of PyTorch that vramlab knows; read without importing torch."""

from __future__ import annotations

import re
from collections.abc import Iterable

Version = tuple[int, int]
"""(major, minor)."""

OLDEST: Version = (2, 11)
"""The oldest PyTorch that vramlab runs with."""

NEWEST: Version = (2, 15)
"""The newest PyTorch in which every private name was looked for, and whose rules are known."""

OLDEST_RULES: Version = (1, 13)
"""The oldest PyTorch whose published measurements the virtual GPU was compared with."""

KNOWN_RULES: tuple[Version, ...] = (
    OLDEST_RULES,
    (2, 0),
    *((2, minor) for minor in range(5, NEWEST[1] + 1)),
)
"""Versions whose rules a program may ask for. Nothing was compared with 2.1 to 2.4, and "2.1" is
what is left of a "2.11" that was cut off."""

KNOWN_RELEASES = f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
"""The PyTorch releases that vramlab knows, as pip takes them."""


def parse(version: str) -> Version | None:
    """Read (major, minor) of a version such as "2.11" or "2.13.0+cpu"; None if it is none."""
    found = re.match(r"(\d+)\.(\d+)(?!\d)", version)
    return None if found is None else (int(found[1]), int(found[2]))


def text(version: Version) -> str:
    """Write a version as "2.11"."""
    return ".".join(map(str, version))


def ranges(versions: Iterable[Version]) -> str:
    """Write sorted versions with what follows each other joined: "1.13, 2.0, 2.5 to 2.15"."""
    runs: list[list[Version]] = []
    for version in versions:
        if runs and runs[-1][-1] == (version[0], version[1] - 1):
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(
        text(run[0]) if len(run) == 1 else f"{text(run[0])} to {text(run[-1])}" for run in runs
    )


KNOWN = ranges(KNOWN_RULES)
"""The versions of `KNOWN_RULES` in words."""
