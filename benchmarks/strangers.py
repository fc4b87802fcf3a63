"""Public training scripts under `vramlab run`, as they are: what became of each.

    python -m benchmarks.strangers                          run all, and write strangers.json
    python -m benchmarks.strangers nanoGPT --mirror FOLDER  run some, from clones that are there

Every script is fetched at a pinned commit into a temporary folder and thrown away afterwards;
nothing of it is kept in this project. Data sets are not fetched: where a script wants one, random
numbers of the right form take its place, which changes no byte of memory. The table of README.md is
made from strangers.json.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT, installed_versions
from vramlab.units import format_bytes

RESULTS_FILE = ROOT / "benchmarks" / "strangers.json"

LIMIT_SECONDS = 480
"""A run that takes longer is ended, with a report."""


def _no_data(folder: Path) -> None:
    """Prepare nothing: the script brings its data, or makes it."""


def _nanogpt_tokens(
    name: str, vocabulary: int, *, has_meta: bool = False
) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        """Write random tokens where nanoGPT's prepare.py would write a text's.

        For single characters, it writes how many there are as well.
        """
        import numpy as np

        place = folder / "data" / name
        place.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for part in ("train", "val"):
            tokens = random.integers(vocabulary, size=20_000, dtype=np.uint16)
            tokens.tofile(place / f"{part}.bin")
        if has_meta:
            (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": vocabulary}))

    return prepare


@dataclass(frozen=True)
class Stranger:
    """A public script."""

    name: str
    """For the table."""
    repository: str
    """OWNER/NAME on GitHub."""
    commit: str
    """Which state of it."""
    command: str
    """What follows `vramlab run`, options of its included."""
    folder: str = "."
    """Where it is started, in the repository."""
    prepare: Callable[[Path], None] = _no_data
    """Puts data in place; gets the folder in which the script is started."""


_NANOGPT = ("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")
_LECTURE = ("karpathy/ng-video-lecture", "52201428ed7b46804849dea0b3ccf0de9df1a5c3")
_EXAMPLES = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")

STRANGERS = (
    Stranger(
        "nanoGPT, its defaults",
        *_NANOGPT,
        "--gpu A100-40GB --steps 1 train.py",
        prepare=_nanogpt_tokens("openwebtext", 50_257),
    ),
    Stranger(
        "nanoGPT, Shakespeare",
        *_NANOGPT,
        "--gpu T4 --steps 2 train.py config/train_shakespeare_char.py --eval_iters=5",
        prepare=_nanogpt_tokens("shakespeare_char", 65, has_meta=True),
    ),
    Stranger("ng-video-lecture, bigrams", *_LECTURE, "--gpu T4 --steps 2 bigram.py"),
    Stranger(
        "pytorch/examples, DDP on one GPU",
        *_EXAMPLES,
        "--gpu T4 single_gpu.py 2 1",
        "distributed/ddp-tutorial-series",
    ),
    Stranger(
        "pytorch/examples, mp.spawn",
        *_EXAMPLES,
        "--gpu T4 --count 2 multigpu.py 2 1",
        "distributed/ddp-tutorial-series",
    ),
)


@dataclass(frozen=True)
class Tried:
    """What became of a script."""

    name: str
    """Of the script."""
    repository: str
    """Where it is from."""
    commit: str
    """In which state."""
    folder: str
    """Where in it."""
    command: str
    """How it was run."""
    outcome: str
    """`fits`, `does not fit`, `stopped` (in time), `failed`, `no GPU` or `no report`."""
    detail: str
    """What was needed, or the error."""
    engine: str
    """Which ran it."""
    seconds: float
    """How long it took here."""


def run_stranger(stranger: Stranger, mirror: Path | None) -> Tried:
    """Fetch a script, run it, and say what became of it.

    Args:
        stranger: which.
        mirror: a folder with clones, `OWNER+NAME/repo`; None: GitHub.

    Raises:
        subprocess.CalledProcessError: it cannot be fetched.
    """
    with tempfile.TemporaryDirectory() as temporary:
        checkout, report = Path(temporary) / "checkout", Path(temporary) / "report.json"
        _fetch(stranger, mirror, checkout)
        folder = checkout / stranger.folder
        stranger.prepare(folder)
        words = ["--json", str(report), "--seconds", str(LIMIT_SECONDS)]
        ran = subprocess.run(
            [sys.executable, "-m", "vramlab", "run", *words, *shlex.split(stranger.command)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    outcome, detail = ending(told, ran.stderr)
    return Tried(
        stranger.name,
        stranger.repository,
        stranger.commit,
        stranger.folder,
        stranger.command,
        outcome,
        detail,
        told["engine"] if told else "",
        round(told["seconds"], 1) if told else 0.0,
    )


def ending(report: dict[str, Any] | None, stderr: str) -> tuple[str, str]:
    """Say how a run ended, from its report: (outcome, detail)."""
    if report is None:
        said = stderr.strip().splitlines()
        return "no report", said[-1] if said else ""
    used = [device for device in report["devices"] if device["context_bytes"]]
    if used and report["fits"] is None and report["stopped_by"] == "--seconds":
        needed = format_bytes(max(device["needed_bytes"] for device in used))
        return "stopped", f"{needed} until then, no step of its training yet"
    if report["fits"] is None:
        return "failed", (report["error"] or f"exit status {report['status']}").splitlines()[0]
    if not used:
        return "no GPU", "it put nothing on one"
    needed = format_bytes(max(device["needed_bytes"] for device in used))
    total = format_bytes(used[0]["total_bytes"])
    if report["fits"]:
        return "fits", f"{needed} of {total}"
    return "does not fit", f"more than {total}"


def markdown(tried: Sequence[Tried]) -> str:
    """Give the table for README.md."""
    header = (
        "| script | `vramlab run` ... | outcome | needed | s |\n| --- | --- | --- | --- | --- |"
    )
    rows = [
        f"| [{each.name}](https://github.com/{each.repository}/tree/{each.commit}"
        f"{'' if each.folder == '.' else f'/{each.folder}'}) | `{each.command}` | {each.outcome} | "
        f"{each.detail} | {each.seconds:.1f} |"
        for each in tried
    ]
    engines = ", ".join(sorted({each.engine for each in tried if each.engine}))
    fine = sum(each.outcome in ("fits", "does not fit") for each in tried)
    versions = ", ".join(f"{name} {of}" for name, of in read_versions().items())
    note = (
        f"{fine} of {len(tried)} ended with an answer, on the {engines} engine, with {versions}. "
        "Seconds are of the machine that wrote this table."
    )
    return "\n".join([header, *rows, "", note])


def read_results(path: Path = RESULTS_FILE) -> list[Tried]:
    """Read what was found last."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [Tried(**entry) for entry in data["tried"]]


def read_versions(path: Path = RESULTS_FILE) -> dict[str, str]:
    """Read with which packages."""
    versions: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["versions"]
    return {name: versions[name] for name in ("torch", "transformers")}


def write_results(tried: Iterable[Tried], path: Path = RESULTS_FILE) -> None:
    """Write what was found; of scripts that were not run again, what was found before."""
    before = {each.name: each for each in (read_results(path) if path.exists() else ())}
    after = before | {each.name: each for each in tried}
    data = {
        "about": "written by `python -m benchmarks.strangers`",
        "versions": installed_versions(),
        "tried": [asdict(after[each.name]) for each in STRANGERS if each.name in after],
    }
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _fetch(stranger: Stranger, mirror: Path | None, checkout: Path) -> None:
    """Put one state of a repository into a folder, without its history."""
    if mirror is None:
        checkout.mkdir()
        address = f"https://github.com/{stranger.repository}"
        for words in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", address, stranger.commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            subprocess.run(["git", "-C", str(checkout), *words], check=True)
        return
    git = mirror / stranger.repository.replace("/", "+") / "repo"
    tree = stranger.commit if stranger.folder == "." else f"{stranger.commit}:{stranger.folder}"
    archive = ["git", "--git-dir", str(git), "archive", tree]  # large files may be absent elsewhere
    packed = subprocess.run(archive, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(checkout / stranger.folder, filter="data")


def main() -> int:
    """Run scripts and write what became of them; answer the exit status, 1 if one had no report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--mirror", type=Path, help="a folder with clones: OWNER+NAME/repo")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in STRANGERS
        if not arguments.names or any(name in each.name for name in arguments.names)
    ]
    silent = 0
    for stranger in chosen:
        tried = run_stranger(stranger, arguments.mirror)
        silent += tried.outcome == "no report"
        print(f"{tried.name}: {tried.outcome}, {tried.detail}, {tried.seconds:.1f} s", flush=True)
        write_results([tried])
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
