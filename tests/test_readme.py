"""README.md and docs/install.md: what they tell people to type works, and what they name is there.

And docs/index.md, the site's first page, which tells less.
"""

from __future__ import annotations

import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from markdown_blocks import ROOT, blocks, commands, environment
from warm_python import warm_python

import vramlab.commands
import vramlab_classroom.commands
import vramlab_course.commands
from packages import FOLDERS
from vramlab.cli import main, parser

pytestmark = pytest.mark.long

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
IN_BACKTICKS = re.findall(r"`([^`\n]+)`", PROSE)


def part(name: str) -> str:
    """What stands between the markers of a generated part."""
    return PAGE.partition(f"<!-- generated: {name} -->")[2].partition(f"<!-- end: {name} -->")[0]


# ---- Python ----


@pytest.mark.parametrize("program", [*blocks(PAGE, "python"), *blocks(INDEX, "python")])
def test_programs_print_what_the_page_says(program: str, tmp_path: Path) -> None:
    said = re.findall(r"^ *print\(.*\)  # (.+)$", program, re.MULTILINE)
    assert len(said) == program.count("print(") > 0
    ran = subprocess.run(
        [warm_python(), "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == said


def test_program_report_and_picture_are_of_one_run() -> None:
    (peak,) = re.findall(r"max_memory_allocated\(\)\)  # (\d+)", PAGE)
    allocated, needed = (
        re.search(rf"^{name} .* ([\d,]+)$", part("report"), re.MULTILINE)[1]  # type: ignore[index]
        for name in ("allocated", "device memory used")
    )
    assert allocated.replace(",", "") == peak
    assert f"peak at {int(peak) / 2**30:.3f} GiB" in part("picture")
    words = " ".join(part("program").split())
    assert f"{needed} B in all" in words
    assert f"takes {int(needed.replace(',', '')) / 1e9:.0f} GB" in words


# ---- Shell ----


@pytest.mark.parametrize(
    "words", [*commands(PAGE, "vramlab"), *commands(INDEX, "vramlab")], ids=" ".join
)
def test_commands_of_vramlab_take_these_words(words: list[str]) -> None:
    assert parser().parse_args(words)


def test_verbs_that_are_mentioned_are_there() -> None:
    mentioned = {code.split()[1] for code in IN_BACKTICKS if re.match(r"vramlab [a-z]", code)}
    packages = (vramlab.commands, vramlab_course.commands, vramlab_classroom.commands)
    known = {
        module.name for package in packages for module in pkgutil.iter_modules(package.__path__)
    }
    assert mentioned - known == set()


def test_the_plan_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = (code.split()[1:] for code in IN_BACKTICKS if code.startswith("vramlab plan "))
    assert main(words) in (0, 1)
    assert "H100" in capsys.readouterr().out


def _program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {body} "$@"\n')
    path.chmod(0o755)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that `make` takes for an up-to-date environment; its programs are ours."""
    venv = tmp_path_factory.mktemp("venv")
    _program(venv / "bin" / "python", "")
    _program(venv / "bin" / "jupyter", "-m jupyter")
    (venv / "installed").mkdir()
    shutil.copy(ROOT / "requirements.txt", venv / "installed")
    projects = (ROOT, *sorted((ROOT / "packages").iterdir()))
    texts = [(folder / "pyproject.toml").read_text() for folder in projects if folder.is_dir()]
    (venv / "installed" / "projects").write_text("".join(texts))
    return venv


@pytest.mark.parametrize(
    ("words", "setting", "answer"),
    [
        (["lab"], "LAB_ARGS=--version", r"^\d+\.\d+\.\d+$"),
        (
            ["test"],
            "PYTEST_ARGS=--collect-only -q tests/vramlab/test_units.py",
            r"^\d+ tests collected",
        ),
    ],
)
def test_make_starts_what_it_says(
    words: list[str], setting: str, answer: str, installed: Path
) -> None:
    assert words in commands(PAGE, "make")
    ran = subprocess.run(
        ["make", *words, f"VENV={installed}", setting],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(answer, ran.stdout, re.MULTILINE)


def test_pip_installs_what_make_installs() -> None:
    # .ci/run does it in a fresh environment, at every push.
    script = (ROOT / ".ci" / "make-environment").read_text()
    made = re.findall(r"-m pip install \$quiet (.+)$", script, re.MULTILINE)
    (packages,) = re.findall(r"^packages='(.+)'$", script, re.MULTILINE)
    editable = " ".join(f"--editable {package}" for package in packages.split())
    made = [words.replace("$(printf -- '--editable %s ' $packages)", editable) for words in made]
    short = {"-r": "--requirement", "-e": "--editable"}
    by_hand = [
        " ".join(short.get(word, word) for word in words[1:]) for words in commands(INSTALL, "pip")
    ]
    assert by_hand == made


def test_conda_makes_the_environment_that_is_activated() -> None:
    create, activate = commands(INSTALL, "conda")
    assert create[:3] == ["env", "create", "-f"]
    described = yaml.safe_load((ROOT / create[3]).read_text())
    assert activate == ["activate", described["name"]]


# ---- What is named is there, and what is there is named ----


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "docs/course.md"])
def test_links_and_names_lead_somewhere(page: str) -> None:
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [target for target in targets if not (path.parent / target).exists()] == []
    named = [code for code in re.findall(r"`([^`\n]+)`", text) if re.fullmatch(r"[\w-]+/", code)]
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def _ignored() -> list[str]:
    return [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]


def _holds_something(path: Path) -> bool:
    return path.is_file() or any(
        each.is_file() and each.suffix != ".pyc" for each in path.rglob("*")
    )


def _there(folder: Path) -> set[str]:
    """The names in a folder, as the page writes them; not those that are hidden or git ignores."""
    return {
        f"{path.name}/" if path.is_dir() else path.name
        for path in folder.iterdir()
        if not path.name.startswith(".")
        and not any(fnmatch(path.name, pattern) for pattern in _ignored())
        and _holds_something(path)
    }


def _first_column(heading: str, package: str = "") -> set[str]:
    """The names in the first column of a table: of the first with this heading, after a package."""
    page = MAP.partition(f"\n**`{package}`**")[2] if package else MAP
    table = page.partition(f"| {heading} | ")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def test_every_folder_is_named_and_no_other() -> None:
    assert _first_column("folder") == {name for name in _there(ROOT) if name.endswith("/")}


@pytest.mark.parametrize("package", FOLDERS)
def test_every_part_is_named_and_no_other(package: str) -> None:
    named = {name for name in _first_column("part", package) if "/" not in name.strip("/")}
    assert named == _there(FOLDERS[package]) - {"__init__.py", "py.typed"}
