"""What the accuracy benchmark found, in a file that is committed: `accuracy.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.estimates.cases import Case
from benchmarks.estimates.scores import Comparison
from vramlab.measure.figures import Published

ROOT = Path(__file__).parents[2]
RESULTS_FILE = ROOT / "benchmarks" / "accuracy.json"
RECORDINGS = ROOT / "assets" / "recordings"
_NOT_COMPARED = ("computed", "h100")
"""Folders there of which no tool but vramlab's has been asked."""

_TOOLS = ("torch", "torchinfo", "accelerate", "transformers")


@dataclass(frozen=True)
class Results:
    """What was found.

    Attributes:
        versions: of the packages that were asked.
        recordings: the recordings that were there: file name and SHA-256.
        comparisons: every case with its estimates.
        failed: by tool, the programs that it is made for and cannot run, with the error.
    """

    versions: Mapping[str, str]
    recordings: Mapping[str, str]
    comparisons: tuple[Comparison, ...]
    failed: Mapping[str, Mapping[str, str]]

    def to_json(self) -> str:
        """As text; bytes are whole numbers."""
        data = {
            "about": "written by `python -m benchmarks.accuracy --write`; sizes in bytes",
            "versions": dict(self.versions),
            "recordings": dict(self.recordings),
            "failed": {tool: dict(programs) for tool, programs in self.failed.items()},
            "cases": [
                {**asdict(one.case), "estimates_bytes": dict(one.estimates_bytes)}
                for one in self.comparisons
            ],
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        return cls(
            data["versions"],
            data["recordings"],
            tuple(_comparison(entry) for entry in data["cases"]),
            data["failed"],
        )


def _comparison(entry: Mapping[str, Any]) -> Comparison:
    plain = {name: value for name, value in entry.items() if name != "estimates_bytes"}
    if plain["published"] is not None:
        plain["published"] = Published(**plain["published"])
    return Comparison(Case(**plain), entry["estimates_bytes"])


def installed_versions() -> dict[str, str]:
    """Return the tools' versions; torch's without the build's name, as '2.13.0'."""
    return {name: version(name).partition("+")[0] for name in _TOOLS}


def fingerprints(folder: Path = RECORDINGS) -> dict[str, str]:
    """SHA-256 of every file of the recordings that the tools are compared with; empty without."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.as_posix(): hashlib.sha256((folder / path).read_bytes()).hexdigest()
        for path in files
        if path.parts[0] not in _NOT_COMPARED
    }
