"""What helps others to take part is right: CONTRIBUTING.md, hooks, issue forms, the citation."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from markdown_blocks import ROOT, commands, environment
from warm_python import warm_python

import vramlab
import vramlab.commands
import vramlab_classroom.commands
from docs.builder import address
from vramlab.cli import parser

pytestmark = pytest.mark.long

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "contributing").glob("*.md"))]
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
IN_BACKTICKS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.S | re.M))


# ---- CONTRIBUTING.md, docs/contributing/ ----


@pytest.mark.parametrize("words", commands(PAGE, "python"), ids=" ".join)
def test_modules_are_there_and_take_these_words(words: list[str]) -> None:
    assert words[0] == "-m"
    if words[1] == "vramlab":
        assert parser().parse_args([word.replace("<", "").replace(">", "") for word in words[2:]])
        return
    # pytest rewrites modules when it imports them: none may be there before.
    python = sys.executable if words[1] == "pytest" else warm_python()
    asked = subprocess.run(
        [python, *words[:2], "--help"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 0, asked.stderr
    for word in words[2:]:
        if word.startswith("-"):
            assert word in asked.stdout


def test_files_that_are_named_are_there() -> None:
    named = [code for code in IN_BACKTICKS if re.fullmatch(r"[\w.]+/[\w./]+", code)]
    examples = re.compile(r"(?:03|NN)_name|\.venv|build/|^aten/")
    assert len(named) > 5
    assert [
        name for name in named if not examples.search(name) and not (ROOT / name).exists()
    ] == []
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists()


# ---- Settings ----


def test_every_environment_variable_is_on_the_page_of_settings() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    read = re.compile(
        r"\"(VRAMLAB_[A-Z_]+|(?:CUBLAS|CUBLASLT|DISABLE|LD|(?:PY)?TORCH[A-Z]*|XDG)_[A-Z0-9_]+)\""
        r"|(?:environ|getenv)(?:\.[a-z]+)?[(\[]\"([A-Z0-9_]+)\""
    )
    sources = [
        path
        for folder in ("vramlab", "packages")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".c", ".h"}
    ]
    named = {
        first or second
        for path in sources
        for first, second in read.findall(path.read_text(encoding="utf-8"))
    }
    on_page = set(re.findall(r"`([A-Z0-9_]+)`", page))
    assert named - on_page == set()
    ours = {name for name in on_page if name.startswith("VRAMLAB_")}
    assert ours - named == {"VRAMLAB_TEST_SANDBOX"}  # read by tests only


# ---- SECURITY.md ----


# ---- Hooks ----


def test_the_other_hooks_run_what_make_check_runs() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    entries = {hook["id"]: hook["entry"] for hook in HOOKS}
    for hook in ("ruff-format", "mypy", "colab", "exercises"):
        assert entries[hook] in recipe
    assert entries["ruff"].removesuffix(" --fix") in recipe


# ---- Issues, citation ----


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_ask_something_and_name_commands_that_are_there(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(set(ids)) == len(ids) > 0
    assert any(field.get("validations", {}).get("required") for field in form["body"])
    verbs = set(re.findall(r"`vramlab (\w+)", path.read_text()))
    packages = (vramlab.commands, vramlab_classroom.commands)
    assert verbs <= {
        module.name for package in packages for module in pkgutil.iter_modules(package.__path__)
    }


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == vramlab.__version__
    assert citation["license"] == project["license"]
    assert citation["title"].startswith(f"{project['name']}: ")
    assert citation.get("repository-code") == address.REPOSITORY
    assert project.get("urls", {}).get("Repository") == address.REPOSITORY
