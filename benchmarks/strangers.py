"""Public training scripts under `vramlab run`, as they are: what became of each.

    python -m benchmarks.strangers                          run all, and write strangers.json
    python -m benchmarks.strangers nanoGPT --mirror FOLDER  run some, from clones that are there

The list is in stranger_scripts.py. Every script is fetched at its commit into a temporary folder
and thrown away afterwards; nothing of it is kept in this project. Data sets are not fetched: where
a script wants one, random numbers of the right form take its place (stranger_data.py), which
changes no byte of memory. Beside the project's own packages the scripts want those of `PACKAGES`.
The table of docs/scripts.md is made from strangers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.estimates.results import ROOT, installed_versions
from benchmarks.estimates.scores import folded
from benchmarks.stranger_data import TORCH_HOME
from benchmarks.stranger_scripts import STRANGERS, Stranger
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.report.summary import Fit
from vramlab.units import format_bytes

RESULTS_FILE = ROOT / "benchmarks" / "strangers.json"

LIMIT_SECONDS = 300
"""A run that takes longer is ended, with a report."""

_ANSWERS = (*(fit for fit in Fit if fit is not Fit.CUT_SHORT),)
"""The outcomes that are what was asked for."""

_VARIABLES = {"HF_HUB_OFFLINE": "1", "TORCH_HOME": TORCH_HOME, "WANDB_MODE": "disabled"}
"""Of the environment: nothing is fetched, or told to anybody, while a script runs."""

_GRACE_SECONDS = 60
"""A run that has not ended so long after that hangs, and is killed."""

PACKAGES = (
    *("torchvision", "timm", "lightning", "datasets", "peft", "trl", "pycocotools", "scikit-learn"),
    *("gymnasium", "tyro", "tensorboard", "wandb", "open-clip-torch", "opacus", "diffusers"),
    *("hydra-core", "boto3", "onnx", "pandas", "einops", "sentencepiece"),
    *("braceexpand", "webdataset", "ftfy"),
)
"""What the scripts import that this project does not."""


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
    """A `Fit`, such as `fits` or `at least`; `refused` (in plain words), `stopped` (in time),
    `failed`, `no GPU`, or `no report`."""
    detail: str
    """What was needed, or the error."""
    engine: str
    """Which ran it."""
    seconds: float
    """How long it took here."""


def run_stranger(stranger: Stranger, mirror: Path | None, *, engine: str = "portable") -> Tried:
    """Fetch a script, run it, and say what became of it.

    Args:
        stranger: which.
        mirror: a folder with clones, `OWNER+NAME/repo`; None: GitHub.
        engine: which runs it: `portable` or `native`.

    Raises:
        subprocess.CalledProcessError: it cannot be fetched.
    """
    with tempfile.TemporaryDirectory() as temporary:
        checkout, report = Path(temporary) / "checkout", Path(temporary) / "report.json"
        _fetch(stranger, mirror, checkout)
        folder = checkout / stranger.folder
        stranger.prepare(folder)
        options = ["--json", str(report), "--seconds", str(LIMIT_SECONDS), "--engine", engine]
        stderr = _run(["vramlab", "run", *options, *shlex.split(stranger.command)], folder)
        told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    outcome, detail = ending(told, stderr)
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


def _run(words: Sequence[str], folder: Path) -> str:
    """Run a module of Python, and end what it has started if it hangs; give its stderr."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **_VARIABLES, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=LIMIT_SECONDS + _GRACE_SECONDS)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"{process.communicate()[1]}\nit hung, and was killed"
    finally:
        with suppress(ProcessLookupError):  # what it has left behind
            os.killpg(process.pid, signal.SIGKILL)


def ending(report: dict[str, Any] | None, stderr: str) -> tuple[str, str]:
    """Return how a run ended, from its report: (outcome, detail)."""
    if report is None:
        said = stderr.strip().splitlines()
        return "no report", said[-1] if said else ""
    used = [device for device in report["devices"] if device["context_bytes"]]
    fit = Fit(report["outcome"])
    if used and fit is Fit.CUT_SHORT and report["stopped_by"] == "--seconds":
        needed = format_bytes(max(device["needed_bytes"] for device in used))
        return "stopped", f"{needed} until then, no step of its training yet"
    if fit is Fit.CUT_SHORT:
        problem = (report["error"] or f"exit status {report['status']}").splitlines()[0]
        is_refused = problem.startswith(UnsupportedOnVirtualGPU.__name__)
        return "refused" if is_refused else "failed", problem
    if not used:
        return "no GPU", "it put nothing on one"
    needed = format_bytes(max(device["needed_bytes"] for device in used))
    total = format_bytes(used[0]["total_bytes"])
    return str(fit), f"{needed} of {total}" if fit.had_room else f"more than {total}"


def markdown(tried: Sequence[Tried]) -> str:
    """Return the table for docs/scripts.md."""
    header = (
        "| script | `vramlab run` ... | outcome | device memory used | seconds |\n"
        "| --- | --- | --- | --- | --- |"
    )
    rows = [
        f"| [{each.name}](https://github.com/{each.repository}/tree/{each.commit}"
        f"{'' if each.folder == '.' else f'/{each.folder}'}) | `{each.command}` | {each.outcome} | "
        f"{each.detail.partition('. ')[0]} | {each.seconds:.1f} |"
        for each in tried
    ]
    engines = Counter(each.engine for each in tried if each.engine)
    ran = ", ".join(f"{count} on the {engine} engine" for engine, count in engines.most_common())
    fine = sum(each.outcome in _ANSWERS for each in tried)
    versions = ", ".join(f"{name} {of}" for name, of in read_versions().items())
    told = (
        f"For {fine} of {len(tried)} scripts, vramlab reports whether they fit; for the others, "
        f"why they cannot run. With {versions}; {ran}."
    )
    table = "\n".join((header, *rows))
    return f"{told}\n\n{folded('All scripts, with the device memory used', table)}"


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
    checkout.mkdir()
    if mirror is None:
        address = f"https://github.com/{stranger.repository}"
        for words in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", "1", address, stranger.commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            subprocess.run(["git", "-C", str(checkout), *words], check=True)
        return
    git = mirror / stranger.repository.replace("/", "+") / "repo"
    words = ["git", "--git-dir", str(git / ".git" if (git / ".git").exists() else git)]
    index = {**os.environ, "GIT_INDEX_FILE": f"{checkout}.index"}
    bare = ["-c", "core.bare=false", "--work-tree", str(checkout)]
    subprocess.run([*words, *bare, "read-tree", stranger.commit], env=index, check=True)
    # A clone may lack large files, which git says and goes on.
    files = ["checkout-index", "--all", "--quiet", f"--prefix={checkout}/"]
    subprocess.run([*words, *bare, *files], env=index, stderr=subprocess.DEVNULL)


def main() -> int:
    """Run scripts and write what became of them; answer the exit status, 1 if one had no report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--mirror", type=Path, help="a folder with clones: OWNER+NAME/repo")
    parser.add_argument("--engine", choices=("portable", "native"), default="portable")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in STRANGERS
        if not arguments.names or any(name in each.name for name in arguments.names)
    ]
    silent = 0
    for stranger in chosen:
        tried = run_stranger(stranger, arguments.mirror, engine=arguments.engine)
        silent += tried.outcome == "no report"
        print(f"{tried.name}: {tried.outcome}, {tried.detail}, {tried.seconds:.1f} s", flush=True)
        write_results([tried])
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
