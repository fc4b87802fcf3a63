"""PyTorch's files that vramlab's rules cite, and what changed in them between two versions.

A citation is a path of PyTorch's repository in the code or its docstrings, mostly with the names of
functions before it and the version behind it:

    Source: `can_use_fast_route` in aten/src/ATen/native/ForeachUtils.h, PyTorch 2.13.

Where a file comes from, the first that has it:

1. The wheel: Python files, and the headers that it brings for extensions.
2. A folder of checkouts: FOLDER/2.15.0/aten/src/ATen/native/ForeachUtils.h.
3. GitHub, where there is a network: the file of the tag v2.15.0, or of a nightly's commit.
"""

from __future__ import annotations

import difflib
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
CITING = ("vramlab", "packages")
"""Folders that are searched."""

_ROOTS = r"(?:torch|torchgen|aten|c10|caffe2)/"
_SUFFIX = r"\.(?:py|pyi|cpp|cc|cuh|cu|hpp|h|yaml|in)\b"
_PATH = re.compile(
    rf"(?<![\w/.])(?P<path>{_ROOTS}[\w./-]+?{_SUFFIX})"
    # others of the same folder: `a.cpp, b.cpp and cuda/c.cu`, `a.cu and .cuh`
    rf"(?P<more>(?:(?:, | and |; )(?:and )?(?!{_ROOTS})(?:[\w/]*\w)?{_SUFFIX})*)"
)
_MORE = re.compile(rf"(?:[\w/]*\w)?{_SUFFIX}")
_VERSION = re.compile(r"PyTorch (?:\d+\.\d+ (?:to|and) )?(\d+\.\d+)")
_LINE_BREAK = re.compile(r"[\"']?[ \t]*\n[ \t]*(?:#+ |//+ |\* )?f?[\"']?")
_CODE = re.compile(r"`([\w:.]+?)`|\b([A-Za-z]+_\w+|[a-z]\w*[A-Z]\w+)\b")
_VERSION_IS_WITHIN = 160
_SYMBOLS_ARE_WITHIN = 200

_IN_WHEEL = {
    "aten/src/ATen/": "torch/include/ATen/",
    "c10/": "torch/include/c10/",
    "torch/csrc/": "torch/include/torch/csrc/",
    "torch/": "torch/",
    "torchgen/": "torchgen/",
}
"""Where a wheel has what a folder of the repository has, as far as it has it."""

_RAW = "https://raw.githubusercontent.com/pytorch/pytorch/{ref}/{path}"
_TIMEOUT_S = 20
_DOWNLOADS_AT_ONCE = 8
_NEAR_LINES = 25


@dataclass(frozen=True)
class Citation:
    """A place that cites a file of PyTorch.

    Attributes:
        paths: of the file in PyTorch's repository; of one that is named by its last part alone,
            where it may be.
        at: where it is cited, such as "vramlab/units.py:16".
        version: the PyTorch that was read, such as "2.13"; None: not said.
        symbols: names of functions that are cited with it.
    """

    paths: tuple[str, ...]
    at: str
    version: str | None
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where the files of one version of PyTorch are taken from.

    Attributes:
        version: such as "2.15.0".
        ref: how Git calls it: a tag or a commit.
        site: the folder of its wheel; None: no wheel.
        checkout: a folder with the repository's files; None: none.
    """

    version: str
    ref: str
    site: Path | None = None
    checkout: Path | None = None

    def local(self, path: str) -> str | None:
        """Read a file from the wheel or the checkout; None if neither has it."""
        places = [self.checkout / path] if self.checkout else []
        for folder, there in _IN_WHEEL.items():
            if self.site and path.startswith(folder):
                places.append(self.site / there / path.removeprefix(folder))
        for place in places:
            if place.is_file():
                return place.read_text(encoding="utf-8", errors="replace")
        return None


@dataclass
class Change:
    """What became of one cited file.

    Attributes:
        path: in PyTorch's repository.
        citations: the places that cite it.
        added: lines that the newer version has, and the older has not.
        removed: lines that the older version has, and the newer has not.
        touched: cited names that are near a change: probably the functions that changed.
        diff: the unified diff.
        around: the changed lines and many around them.
    """

    path: str
    citations: list[Citation] = field(default_factory=list)
    added: int = 0
    removed: int = 0
    touched: list[str] = field(default_factory=list)
    diff: str = ""
    around: str = ""

    def look_at(self, before: str, after: str, old: str, new: str) -> None:
        """Compare the texts of two versions."""
        texts = before.splitlines(), after.splitlines()
        names = f"{old}/{self.path}", f"{new}/{self.path}"
        rows = [*difflib.unified_diff(*texts, *names, lineterm="")]
        self.diff = "\n".join(rows)
        self.added = sum(row.startswith("+") for row in rows[2:])
        self.removed = sum(row.startswith("-") for row in rows[2:])
        self.around = "\n".join([*difflib.unified_diff(*texts, lineterm="", n=_NEAR_LINES)])


@dataclass
class Changes:
    """What became of all cited files.

    Attributes:
        changed: files that differ, those first in which a cited name is near a change.
        same: files that do not.
        gone: files that the older version has, and the newer has not.
        not_obtained: files that could not be had, of one version or both.
    """

    changed: list[Change] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    gone: list[Change] = field(default_factory=list)
    not_obtained: list[str] = field(default_factory=list)


def citations(root: Path = ROOT) -> Iterator[Citation]:
    """Find every citation in the packages under a folder."""
    for package in CITING:
        files = (root / package).rglob("*")
        for file in sorted(each for each in files if each.suffix in (".py", ".c", ".h", ".toml")):
            text = file.read_text(encoding="utf-8")
            yield from citations_in(text, file.relative_to(root).as_posix())


def citations_in(text: str, name: str) -> Iterator[Citation]:
    """Find the citations in a file's text."""
    joined, lines = _joined(text)
    for found in _PATH.finditer(joined):
        before = re.split(r"\. |\"\"\"", joined[: found.start()][-_SYMBOLS_ARE_WITHIN:])[-1]
        behind = joined[found.end() :][:_VERSION_IS_WITHIN].split('"""')[0]
        version = _VERSION.search(behind)
        symbols = (one or other for one, other in _CODE.findall(before))
        at = f"{name}:{lines[found.start()]}"
        read = version[1] if version else None
        names = tuple(dict.fromkeys(symbols))
        yield Citation((found["path"],), at, read, names)
        for more in _MORE.findall(found["more"]):
            yield Citation(_beside(found["path"], more), at, read, names)


def _beside(path: str, name: str) -> tuple[str, ...]:
    """Where a file may be that is named after another, as "cuda/ScanUtils.cuh" or ".cuh"."""
    first = PurePosixPath(path)
    if name.startswith("."):
        return (str(first.with_suffix(name)),)
    return tuple(str(folder / name) for folder in (first.parent, first.parent / "cuda"))


def _joined(text: str) -> tuple[str, Sequence[int]]:
    """Join lines of comments and of adjacent strings; and the line of each letter."""
    letters: list[str] = []
    lines: list[int] = []
    at, line = 0, 1
    for found in _LINE_BREAK.finditer(text):
        part = text[at : found.start()] + " "
        letters.append(part)
        lines += [line] * len(part)
        at, line = found.end(), line + 1
    letters.append(text[at:])
    return "".join(letters), [*lines, *[line] * len(text[at:])]


def compare(found: Iterable[Citation], old: Source, new: Source, network: bool = True) -> Changes:
    """Compare every cited file of two versions."""
    cited: dict[tuple[str, ...], list[Citation]] = {}
    for citation in found:
        cited.setdefault(citation.paths, []).append(citation)
    files = _Files(network)
    changes: dict[str, Change] = {}
    result = Changes()
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
        texts = pool.map(lambda paths: _both(files, paths, old, new), cited)
        for places, (path, before, after) in zip(cited.values(), texts, strict=True):
            change = changes.setdefault(path, Change(path))
            change.citations += places
            if len(change.citations) > len(places):
                continue  # another way to name it
            if before is None or after is None:
                if before is not None and files.is_complete(new):
                    result.gone.append(change)
                else:
                    result.not_obtained.append(path)
            elif before == after:
                result.same.append(path)
            else:
                change.look_at(before, after, old.version, new.version)
                result.changed.append(change)
    for change in result.changed:
        symbols = {name for citation in change.citations for name in citation.symbols}
        change.touched = sorted(name for name in symbols if _is_in(name, change.around))
    result.changed.sort(key=lambda each: (not each.touched, each.path))
    return result


def _both(
    files: _Files, paths: Sequence[str], old: Source, new: Source
) -> tuple[str, str | None, str | None]:
    for path in paths:
        before = files.text(old, path)
        if before is not None:
            return path, before, files.text(new, path)
    return paths[0], None, None


def _is_in(name: str, diff: str) -> bool:
    last = re.split(r"::|\.", name)[-1]
    return re.search(rf"\b{re.escape(last)}\b", diff) is not None


class _Files:
    """Reads files; stops downloading once GitHub cannot be reached."""

    def __init__(self, network: bool) -> None:
        self._network = network

    def text(self, source: Source, path: str) -> str | None:
        """Return a file's text; None if it is missing or cannot be downloaded."""
        local = source.local(path)
        return local if local is not None else self._fetched(source, path)

    def is_complete(self, source: Source) -> bool:
        """Return whether a file that was not found is really missing from that version."""
        return self._network or source.checkout is not None

    def _fetched(self, source: Source, path: str) -> str | None:
        if not self._network:
            return None
        address = _RAW.format(ref=source.ref, path=path)
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                return str(answer.read().decode("utf-8", errors="replace"))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                self._network = False
        except OSError:
            self._network = False
        return None
