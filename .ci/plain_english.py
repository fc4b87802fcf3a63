"""Keep stiff words out of what people read: pages, notebooks' text, and strings in Python.

python .ci/plain_english.py [FILES]    without FILES: all that git tracks

Where such a word is meant, mark its line: `plain-english: ok`. A short script, because the wheel of
vale 3.25.1 downloads a program when it first runs.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = {
    r"anew": "again, from scratch",
    r"mend(?:s|ed|ing)?": "fix",
    r"h(?:old|olds|eld) (?:\w+ ){0,4}against": "compare with",
    r"likewise|thereof|thereby|therein|wherein|hereby|herein|whereof": "repeat the noun",
    r"nobody(?:'s)?|somebody(?:'s)?|whoever": "name the subject, or use the passive",
    r"by lot": "at random",
    r"at hand": "available",
    r"in (?:the )?place of": "instead of",
    r"that is not there": "name what is missing",
    r"in want of|befits|heretofore|hitherto": "plain words",
    r"can be had": "is available",
    r"timelines? that can be asked": "interactive timeline",
}
FOUND = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): better for word, better in WORDS.items()}
MEANT = "plain-english: ok"
LEFT_OUT = ("docs/torch-", "assets/", ".ci/plain_english.py")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what people read in a file, line by line, with line numbers (cells' of notebooks)."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(source)["cells"], 1):
            if cell["cell_type"] == "markdown":
                yield from ((number, line) for line in "".join(cell["source"]).splitlines())
    elif path.suffix == ".py":
        marked = {n for n, line in enumerate(source.splitlines(), 1) if MEANT in line}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                lines = enumerate(node.value.splitlines(), node.lineno)
                yield from ((number, line) for number, line in lines if number not in marked)
    else:
        yield from enumerate(source.splitlines(), 1)


def read_by_people() -> list[Path]:
    """List what git tracks: pages, notebooks and Python, without the files left out."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "lessons/*.ipynb", "solutions/*.ipynb", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.splitlines() if not name.startswith(LEFT_OUT)]
    return [Path(name) for name in names if Path(name).exists()]


def main(arguments: list[str]) -> int:
    """Print each stiff word with its place and what to write instead; return the exit status."""
    found = 0
    for path in map(Path, arguments) if arguments else read_by_people():
        for number, line in texts(path):
            for pattern, better in FOUND.items():
                if MEANT not in line and (match := pattern.search(line)):
                    print(f"{path}:{number}: '{match[0]}': write {better}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
