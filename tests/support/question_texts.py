"""How the question of a task begins, and its folded hints."""

from __future__ import annotations

import re

HEADING = re.compile(
    r"## \d\. .+ \((?P<kind>predict|diagnose|fix|build), (?P<points>\d+) points,"
    r" about (?P<minutes>\d+) minutes\)"
)
MARKS = re.compile(
    r"(?P<core>★ Core task · difficulty|Difficulty) (?P<difficulty>[●○]{5}) \((?P<d>\d) of 5\)"
    r" · importance (?P<importance>[●○]{5}) \((?P<i>\d) of 5\)"
)
HINT = re.compile(
    r"<details><summary>Hint (?P<number>\d)</summary>\n\n(?P<text>.+?)\n\n</details>", re.DOTALL
)
