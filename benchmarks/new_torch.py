"""What a new PyTorch needs of vramlab: one command that ends with a to-do list.

    make torch VERSION=2.16.0                           writes docs/torch-2.16.md
    make torch VERSION=2.16.0 STEPS=names,sources       some steps; these take minutes
    make torch VERSION=2.16.0 SOURCES=~/pytorch         has 2.15.0/aten/... and 2.16.0/aten/...
    make torch VERSION=nightly                          the newest that pip finds with --pre

Steps, each of which says what it found, and ends no other if it fails:

    setup      set up the native engine for it
    names      private names, their arguments, ops, C functions: against the last known version
    sources    PyTorch's files that rules cite: against the last known version
    tests      the portable engine's tests, with this PyTorch on stub libraries
    engines    every experiment, zoo program and rule, on both engines
    operators  every operator of PyTorch's own database, on both engines

The report is written after each step, also where Ctrl+C ends one. Linux x86-64; where the native
engine cannot be set up, the steps that need it say so.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import cited_sources, torch_on_stubs
from benchmarks import native as native_table
from benchmarks.cited_sources import Source
from vramlab import native, streams, torch_versions
from vramlab.errors import VramlabError
from vramlab.native import Build
from vramlab.native.builds import python_tag
from vramlab.native.fetch import fetch
from vramlab.native.setup import NEEDED_BYTES

ROOT = Path(__file__).parents[1]
NIGHTLY = "nightly"
PORTABLE_TESTS = (
    *("tests/vramlab/allocator", "tests/vramlab/gpu", "tests/vramlab/kernels"),
    *("tests/vramlab/measure", "tests/vramlab/planner", "tests/vramlab/report"),
)
GPUS = ("T4", "A100-40GB", "H200")
_MOST_LISTED = 60
_MOST_TESTS = 8
_MOST_NUMBERS = 3
_LAST_LINES = 30


@dataclass
class Ground:
    """What the steps share.

    Attributes:
        version: the new PyTorch, such as "2.16.0".
        since: the last known one, such as "2.15.0".
        site: the folder of its wheel; None: it could not be fetched.
        build: the native engine for it; None: it could not be set up.
        work: the folder for logs, diffs and recordings.
        sources: the folder with PyTorch's files, by version; None: none.
        gpus: for the engines.
        only: pattern of the entries that the engines run; empty: all.
        operators: pattern of the operators; empty: all.
        tests: arguments of pytest.
    """

    version: str
    since: str
    work: Path
    site: Path | None = None
    build: Build | None = None
    sources: Path | None = None
    gpus: Sequence[str] = GPUS
    only: str = ""
    operators: str = ""
    tests: Sequence[str] = PORTABLE_TESTS

    def environment(self) -> dict[str, str]:
        """Return the environment with which Python finds the new PyTorch."""
        if self.build is not None:
            return torch_on_stubs.environment(self.build)
        if self.site is None:
            raise StepFailed("its wheel could not be fetched, see setup")
        return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.site}"}

    def needed_build(self) -> Build:
        """Return the native engine for it.

        Raises:
            StepFailed: it could not be set up.
        """
        if self.build is None:
            raise StepFailed("the native engine could not be set up, see setup")
        return self.build


class StepFailed(Exception):
    """A step has no result; the message says why."""


@dataclass
class Findings:
    """What a step has found.

    Attributes:
        summary: in a few words.
        to_do: what a maintainer has to do or to look at, a line each.
        details: Markdown.
    """

    summary: str
    to_do: list[str] = field(default_factory=list)
    details: str = ""


@dataclass
class Outcome:
    """What became of a step."""

    status: str = "not run"
    seconds: float = 0
    findings: Findings = field(default_factory=lambda: Findings(""))


# ---- Steps ----


def setup(ground: Ground) -> Findings:
    """Set up the native engine; with cuDNN, which convolutions need."""
    build = ground.needed_build()
    major, minor = divmod(build.cuda_version // 10, 100)
    notes = [f"PyTorch {build.torch_version}, for CUDA {major}.{minor}"]
    if build.cudnn is None:
        notes.append("without cuDNN")
    return Findings(", ".join(notes))


def names(ground: Ground) -> Findings:
    """Look names up under both versions, each in a process of its own."""
    new = _names_of(ground, ground.environment(), "new")
    old_build = native.set_up(ground.since, report=streams.print_error)
    old = _names_of(ground, torch_on_stubs.environment(old_build), "old")
    to_do = [f"`{path}`, which {purpose}, is missing" for path, purpose in new["missing"].items()]
    to_do += [f"Arguments changed: {change}" for change in new["changed"]]
    new_c = sorted(set(new["c functions"]) - set(old["c functions"]))
    new_public = sorted(set(new["public names"]) - set(old["public names"]))
    ops, old_ops = new["ops"], old["ops"]
    unreviewed = sorted(set(new["unreviewed"]) - set(old["unreviewed"]))
    if new_public:
        to_do.append(f"Answer or refuse the new names of torch.cuda: {_listed(new_public)}")
    if new_c:
        to_do.append(f"Answer or hide the new C functions: {_listed(new_c)}")
    if unreviewed:
        to_do.append(f"Read the kernels of {len(unreviewed)} new ops: {_listed(unreviewed)}")
    schemas = sorted(name for name in ops.keys() & old_ops.keys() if ops[name] != old_ops[name])
    details = [
        *_part("New ops", sorted(ops.keys() - old_ops.keys())),
        *_part("Ops that are gone", sorted(old_ops.keys() - ops.keys())),
        *_part("C functions that are gone", set(old["c functions"]) - set(new["c functions"])),
        *_part("Public names that are gone", set(old["public names"]) - set(new["public names"])),
    ]
    if schemas:
        to_do.append(f"Look at ops whose arguments changed: {_listed(schemas)}")
        details += ["Ops whose arguments changed:", ""]
        details += [f"- `{old_ops[name]}`\n  `{ops[name]}`" for name in schemas]
    summary = (
        f"{len(new['missing'])} names missing, {len(new['changed'])} with other arguments, "
        f"{len(ops.keys() - old_ops.keys())} new ops"
    )
    return Findings(summary, to_do, "\n".join(details))


def _names_of(ground: Ground, environment: Mapping[str, str], what: str) -> dict[str, Any]:
    file = ground.work / f"names-{what}.json"
    file.unlink(missing_ok=True)
    _run(ground, f"names-{what}", ["-m", "benchmarks.torch_names", str(file)], environment)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def sources(ground: Ground) -> Findings:
    """Compare the cited files of both versions; write the differences beside the logs."""
    old_site = _fetched(ground.since)
    old = Source(ground.since, f"v{ground.since}", old_site, _folder(ground.sources, ground.since))
    new = Source(
        ground.version,
        _git_commit(ground.site) or f"v{ground.version}",
        ground.site,
        _folder(ground.sources, ground.version),
    )
    found = cited_sources.compare(cited_sources.citations(), old, new)
    diff = ground.work / "sources.diff"
    diff.write_text("\n".join(change.diff for change in found.changed), encoding="utf-8")
    to_do = []
    rows = ["| file | lines | cited names near a change | cited in |", "|---|---|---|---|"]
    for change in (*found.changed, *found.gone):
        places = sorted({citation.at for citation in change.citations})
        lines = f"+{change.added} -{change.removed}" if change.diff else "is gone"
        rows.append(
            f"| {change.path} | {lines} | {_listed(change.touched)} | {', '.join(places)} |"
        )
        if change.touched or not change.diff:
            why = f": {_listed(change.touched)}" if change.touched else " is gone"
            to_do.append(f"Read {change.path}{why} (cited in {_first(places)})")
    others = sum(not change.touched for change in found.changed)
    if others:
        to_do.append(f"Look through {others} other files that changed: `{_shown(diff)}`")
    if found.not_obtained:
        to_do.append(
            f"Compare {len(found.not_obtained)} files that could not be read: run again with "
            "network access, or with SOURCES=FOLDER, which has "
            f"FOLDER/{ground.since}/aten/... and FOLDER/{ground.version}/aten/..."
        )
    summary = (
        f"{len(found.changed)} cited files changed, {len(found.gone)} are gone, "
        f"{len(found.same)} are the same, {len(found.not_obtained)} could not be read"
    )
    missing = _part("Files that could not be read", found.not_obtained)
    return Findings(summary, to_do, "\n".join([*rows, "", *missing]))


def tests(ground: Ground) -> Findings:
    """Run the portable engine's tests, and group what fails by its error."""
    file = ground.work / "tests.xml"
    file.unlink(missing_ok=True)
    words = ["-m", "pytest", "-q", "-n", "auto", f"--junit-xml={file}", *ground.tests]
    try:
        _run(ground, "tests", words, ground.environment())
    except StepFailed:
        if not file.exists():
            raise
    suite = ElementTree.parse(file).getroot()
    causes: dict[str, list[str]] = {}
    count: Counter[str] = Counter()
    for case in suite.iter("testcase"):
        problem = next((part for part in case if part.tag in ("failure", "error")), None)
        skipped = case.find("skipped") is not None
        count["failed" if problem is not None else "skipped" if skipped else "passed"] += 1
        if problem is not None:
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            causes.setdefault(_cause(problem.get("message") or ""), []).append(name)
    to_do, details = [], []
    for cause, failed in sorted(causes.items(), key=lambda item: -len(item[1])):
        to_do.append(f"{len(failed)} tests: {cause}")
        more = [f"- and {len(failed) - _MOST_TESTS} more"] if len(failed) > _MOST_TESTS else []
        details += [cause, "", *(f"- {name}" for name in failed[:_MOST_TESTS]), *more, ""]
    summary = ", ".join(f"{count[what]} {what}" for what in ("passed", "failed", "skipped"))
    return Findings(summary, to_do, "\n".join(details))


def _cause(message: str) -> str:
    """Shorten an error to what many tests have in common: numbers and addresses are left out."""
    first = next(iter(message.strip().splitlines()), "no message")
    return re.sub(r"0x[0-9a-f]+|\d{4,}", "…", first)[:200]


def engines(ground: Ground) -> Findings:
    """Run everything that can be recorded on the native engine, then on the portable one."""
    ground.needed_build()
    only = ["--only", ground.only] if ground.only else []
    rows: list[native_table.Row] = []
    to_do: list[str] = []
    details: list[str] = []
    files: list[Path] = []
    for gpu in ground.gpus:
        out = ground.work / "recordings"
        words = ["-m", "vramlab", "record", "--engine", "native", "--gpu", gpu, *only]
        words += ["--torch-version", ground.version, "--out", str(out)]
        # A failed entry makes status 1; what was recorded is compared all the same.
        _run(ground, f"record-{gpu}", words, os.environ, (0, 1))
        recordings = out.rglob("*.json")
        newest = max(recordings, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            raise StepFailed(f"nothing was recorded of {gpu}")
        comparison = ground.work / f"comparison-{gpu}.json"
        words = ["-m", "vramlab", "compare", str(newest), "--json", *only]
        _run(ground, f"compare-{gpu}", words, ground.environment(), (0, 1), comparison)
        files.append(comparison)
        data = json.loads(comparison.read_text(encoding="utf-8"))
        rows += native_table.rows_of(data)
        details += _differing(gpu, data["entries"])
    differing = sum(len(row["unnamed"]) + len(row["missing"]) for row in rows)
    if differing:
        to_do.append(f"Resolve or name {differing} differences between the engines, listed below")
    to_do.append(f"Keep the rows: `python -m benchmarks.native {' '.join(map(_shown, files))}`")
    equal = sum(row["equal_entries"] for row in rows)
    summary = f"{equal} of {sum(row['entries'] for row in rows)} entries are equal"
    return Findings(summary, to_do, "\n".join([native_table.table(rows), "", *details]))


def _differing(gpu: str, entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """List what differs for no known reason, the first numbers of each entry."""
    for entry in entries:
        told = [f"refused, or otherwise: {entry['problem']}"] if entry["problem"] else []
        numbers = [
            f"{number['stage']}, {number['quantity']}: {number['recorded_bytes']:,} B native, "
            f"{number['difference_bytes']:+,} B portable"
            for number in entry["numbers"]
            if number["difference_bytes"] and not number["known"]
        ]
        if told or numbers:
            yield f"- {gpu}, `{entry['entry']}`: {'; '.join([*told, *numbers[:_MOST_NUMBERS]])}"


def operators(ground: Ground) -> Findings:
    """Run PyTorch's database of operators on both engines."""
    ground.needed_build()
    words = ["-m", "benchmarks.operators", "--only", ground.operators or "."]
    said = _run(ground, "operators", words, ground.environment())
    lines = said.splitlines()
    differing = [line for line in lines if re.match(r"\w+ \S+.*: \d+ of \d+ differ$", line)]
    ended = [line for line in lines if "the native engine's process ended" in line]
    totals = [line for line in lines if re.match(r"\w+ \{.*\}$", line)]
    if not any("'calls'" in line for line in totals):
        fits = f" that fits {ground.operators!r}" if ground.operators else ""
        raise StepFailed(f"no operator{fits} ran:\n\n{said.strip()}")
    to_do = [f"Operators: {line}" for line in (*ended, *differing)[:_MOST_LISTED]]
    if not ground.operators:
        again = f"python -m benchmarks.torch_on_stubs {ground.version} -m benchmarks.operators"
        to_do.append(f"To update the results in the repository for this version, run `{again}`")
    shown = [line for line in lines if line in (*ended, *differing, *totals) or line[:4] == "    "]
    details = "\n".join(["```text", *shown, "```"])
    return Findings(f"{len(differing)} entries differ", to_do, details)


STEPS: Mapping[str, Callable[[Ground], Findings]] = {
    step.__name__: step for step in (setup, names, sources, tests, engines, operators)
}


# ---- What steps use ----


def _run(
    ground: Ground,
    name: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    statuses: Sequence[int] = (0,),
    output: Path | None = None,
) -> str:
    """Run Python; what it prints shows, goes into a log, and is returned.

    Args:
        ground: says where the log is.
        name: of the log.
        words: what follows `python`.
        environment: of the process.
        statuses: those that are expected.
        output: a file for what goes to stdout; then only stderr shows.

    Raises:
        StepFailed: its status is another than expected; with the end of what it printed.
    """
    log = ground.work / f"{name}.log"
    said: list[str] = []
    with (
        open(log, "w", encoding="utf-8") as file,
        open(output or os.devnull, "w", encoding="utf-8") as out,
        subprocess.Popen(
            [sys.executable, *words],
            env={**environment, "PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            stdout=out if output else subprocess.PIPE,
            stderr=subprocess.PIPE if output else subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        told = process.stderr if output else process.stdout
        assert told is not None
        try:
            for line in told:
                said.append(line)
                file.write(line)
                streams.print_error(f"    {line.rstrip()}")
            process.wait()
        finally:
            process.kill()
    if process.returncode not in statuses:
        last = "".join(said[-_LAST_LINES:]).strip()
        raise StepFailed(f"`python {' '.join(words)}` ended with {process.returncode}:\n\n{last}")
    return "".join(said)


def _wheel(version: str) -> Path:
    """Fetch the wheel of a release, unless that was done before; return its folder."""
    return fetch(f"torch==={version}", f"torch-{version}-{python_tag()}", NEEDED_BYTES["torch"])


def _fetched(version: str) -> Path | None:
    """Return the unpacked wheel of a release; None if it cannot be fetched."""
    try:
        return _wheel(version)
    except VramlabError as error:
        streams.print_error(f"    {error}")
        return None


def _folder(sources: Path | None, version: str) -> Path | None:
    if sources is None:
        return None
    places = (sources / version, sources / f"v{version}")
    return next((place for place in places if place.is_dir()), None)


def _git_commit(site: Path | None) -> str | None:
    """Read the commit that a wheel was built from."""
    file = site and site / "torch" / "version.py"
    found = file and re.search(r"git_version = '(\w+)'", file.read_text(encoding="utf-8"))
    return found[1] if found else None


def _listed(found: Iterable[str]) -> str:
    every = [f"`{name}`" for name in found]
    more = [f"and {len(every) - _MOST_LISTED} more"] if len(every) > _MOST_LISTED else []
    return ", ".join([*every[:_MOST_LISTED], *more])


def _part(title: str, found: Iterable[str]) -> list[str]:
    every = sorted(found)
    return [f"{title} ({len(every)}): {_listed(every)}.", ""] if every else []


def _first(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


# ---- The report ----


def report(ground: Ground, outcomes: Mapping[str, Outcome]) -> str:
    """Write what was found as a page: to do first, details behind."""
    lines = [
        f"# PyTorch {ground.version}: what to do",
        "",
        f"Written by `make torch VERSION={ground.version}` on {date.today()}. Compared with "
        f"PyTorch {ground.since}; vramlab knows {torch_versions.text(torch_versions.OLDEST)} to "
        f"{torch_versions.text(torch_versions.NEWEST)}.",
        "",
        "| step | result | | minutes |",
        "|---|---|---|---|",
    ]
    for name, outcome in outcomes.items():
        minutes = f"{outcome.seconds / 60:.1f}" if outcome.seconds else ""
        lines.append(f"| {name} | {outcome.status} | {outcome.findings.summary} | {minutes} |")
    lines += ["", "## To do", ""]
    lines += [f"- [ ] {line}" for line in _known_from_the_start(ground)]
    for name, outcome in outcomes.items():
        if outcome.status != "done":
            lines.append(f"- [ ] Run the step {name}: {outcome.status}")
        lines += [f"- [ ] {line}" for line in outcome.findings.to_do]
    for name, outcome in outcomes.items():
        if outcome.findings.details:
            lines += ["", f"## {name.capitalize()}", "", outcome.findings.details.strip()]
    return "\n".join([*lines, ""])


def _known_from_the_start(ground: Ground) -> list[str]:
    """Return what every new version needs."""
    version = torch_versions.parse(ground.version)
    if version is None or version <= torch_versions.NEWEST:
        return []
    release = re.split(r"\.dev|rc|\+", ground.version)[0]
    return [
        f"Set `NEWEST` in vramlab/torch_versions.py to {version}",
        f"Add {release} to `TORCHES` in noxfile.py and to .github/workflows/test.yml",
        "Add a line to CHANGELOG.md",
    ]


# ---- The command ----


def from_noxfile(name: str) -> Any:
    """Read what a name in noxfile.py is bound to, without nox."""
    for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


def releases() -> list[str]:
    """Return the PyTorch releases that noxfile.py names."""
    return list(from_noxfile("TORCHES"))


def last_before(version: str) -> str:
    """Choose the newest known release that is of an older minor version."""
    wanted = torch_versions.parse(version)
    older = [
        each
        for each in releases()
        if wanted is None or (torch_versions.parse(each) or wanted) < wanted
    ]
    return (older or releases())[-1]


def prepare(ground: Ground, cudnn: bool) -> str | None:
    """Fetch the wheel and set up the native engine; return why that is not possible."""
    try:
        if ground.site is None:
            ground.site = _wheel(ground.version)
        ground.build = native.set_up(
            site=ground.site, cudnn=cudnn, report=lambda line: streams.print_error(f"    {line}")
        )
    except VramlabError as error:
        return str(error)
    return None


def nightly() -> tuple[str, Path]:
    """Fetch the newest build that pip finds; its version and folder.

    Raises:
        VramlabError: none can be fetched.
    """
    os.environ["PIP_PRE"] = "1"
    site = fetch("torch", f"torch-nightly-{date.today()}-{python_tag()}", NEEDED_BYTES["torch"])
    text = (site / "torch" / "version.py").read_text(encoding="utf-8")
    found = re.search(r"__version__ = '([^'+]+)", text)
    assert found is not None
    return found[1], site


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and write the report; the status is 1 if a step failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.new_torch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", help="a release such as 2.16.0, or nightly")
    parser.add_argument("--since", help="compare with this release (default: the last known one)")
    parser.add_argument(
        "--steps",
        type=_steps,
        default=list(STEPS),
        help=f"some of {','.join(STEPS)} (default: all)",
    )
    parser.add_argument("--sources", type=Path, help="folder with PyTorch's files, by version")
    parser.add_argument("--gpus", default=",".join(GPUS), help="for engines (default: %(default)s)")
    parser.add_argument("--only", default="", help="a part of the names of the engines' entries")
    parser.add_argument("--operators", default="", help="regular expression of operators' names")
    parser.add_argument("--tests", default=" ".join(PORTABLE_TESTS), help="arguments of pytest")
    parser.add_argument(
        "--out",
        type=Path,
        help="the report (default: docs/torch-X.Y.md; report.md beside the logs if it exists)",
    )
    wanted = parser.parse_args(arguments)
    try:
        version, site = wanted.version, None
        if version == NIGHTLY:
            version, site = nightly()
    except VramlabError as error:
        streams.print_error(f"new_torch: {error}")
        return 2
    if torch_versions.parse(version) is None:
        parser.error(f"{version!r} is no version of PyTorch, such as 2.16.0")
    ground = Ground(
        version,
        wanted.since or last_before(version),
        ROOT / "build" / f"torch-{version}",
        site,
        sources=wanted.sources and wanted.sources.expanduser().absolute(),
        gpus=wanted.gpus.split(","),
        only=wanted.only,
        operators=wanted.operators,
        tests=wanted.tests.split(),
    )
    ground.work.mkdir(parents=True, exist_ok=True)
    minor = torch_versions.text(torch_versions.parse(version) or (0, 0))
    out = wanted.out or ROOT / "docs" / f"torch-{minor}.md"
    if wanted.out is None and out.exists():  # its list may be ticked off by now
        out = ground.work / "report.md"
    return run_steps(ground, wanted.steps, out)


def _steps(text: str) -> list[str]:
    chosen = [name for name in text.split(",") if name]
    if unknown := [name for name in chosen if name not in STEPS]:
        raise argparse.ArgumentTypeError(f"no such step: {', '.join(unknown)}")
    return [name for name in STEPS if name in chosen]


def run_steps(ground: Ground, chosen: Sequence[str], out: Path) -> int:
    """Run steps one after the other, and write the report after each.

    Returns:
        0; 1 if a step failed; 130 if Ctrl+C ended one.
    """
    outcomes = {name: Outcome() for name in STEPS}
    try:
        streams.print_error(f"PyTorch {ground.version}: the wheel, and the native engine")
        problem = prepare(ground, cudnn=bool({"engines", "operators"} & set(chosen)))
        for number, name in enumerate(chosen, 1):
            outcome = outcomes[name]
            streams.print_error(f"[{number}/{len(chosen)}] {name}: {_purpose(STEPS[name])}")
            begun = time.monotonic()
            outcome.status = "interrupted"
            try:
                outcome.findings = STEPS[name](ground)
                outcome.status = "done"
            except Exception as error:
                outcome.status = "failed"
                outcome.findings = _failure(error, problem if name == "setup" else None)
            finally:
                outcome.seconds = time.monotonic() - begun
                out.write_text(report(ground, outcomes), encoding="utf-8")
            streams.print_error(f"    {outcome.status}: {outcome.findings.summary}")
    except KeyboardInterrupt:
        out.write_text(report(ground, outcomes), encoding="utf-8")
        streams.print_error(f"interrupted; what was found until then is in {_shown(out)}")
        return 130
    streams.print_error(f"the report is {_shown(out)}; logs and differences: {_shown(ground.work)}")
    return int(any(outcomes[name].status != "done" for name in chosen))


def _purpose(step: Callable[[Ground], Findings]) -> str:
    return (step.__doc__ or "").partition("\n")[0]


def _failure(error: Exception, problem: str | None) -> Findings:
    if isinstance(error, StepFailed | VramlabError):
        text = problem or str(error)
    else:
        text = traceback.format_exc()
    first = text.strip().splitlines()[0 if isinstance(error, StepFailed) else -1]
    return Findings(first[:200].replace("|", "\\|"), details=f"```text\n{text.strip()}\n```")


if __name__ == "__main__":
    raise SystemExit(main())
