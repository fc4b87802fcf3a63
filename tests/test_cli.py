"""The command line: verbs are found, errors are one line, and nothing heavy is imported early."""

from __future__ import annotations

import argparse
import os
import pkgutil
import platform
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import vramlab
import vramlab.commands
import vramlab_classroom.commands
import vramlab_course.commands
from vramlab import cli
from vramlab.cli import _MODULES_OF_EXTRAS, main, parser
from vramlab.errors import VramlabError
from vramlab.torch_versions import NEWEST, text

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


def test_every_module_of_commands_is_a_verb() -> None:
    (verbs,) = (
        action.choices
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    packages = (vramlab.commands, vramlab_course.commands, vramlab_classroom.commands)
    assert set(verbs) == {
        module.name for package in packages for module in pkgutil.iter_modules(package.__path__)
    }
    assert {"gpus", "run"} <= set(verbs)


def imported(code: str) -> set[str]:
    """The packages outside Python's own library that a program has in the end."""
    last = "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    answers = [
        subprocess.run([sys.executable, "-c", each + last], capture_output=True, text=True)
        for each in (code, "")
    ]
    assert [answer.returncode for answer in answers] == [0, 0], answers[0].stderr
    # Without the program, there is what the installation itself imports at its start.
    after, before = (set(answer.stdout.splitlines()[-1].split()) for answer in answers)
    return after - before - sys.stdlib_module_names


@pytest.mark.parametrize(
    "code",
    [
        "import vramlab",
        "import vramlab.allocator, vramlab.catalogue, vramlab.units, vramlab.errors",
        "import vramlab_course.lessons.l20_zero.formulas, vramlab.planner",
        "from vramlab.cli import parser; parser().format_help()",
        "from vramlab.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass",
        "from vramlab.cli import main; main(['gpus'])",
        "from vramlab.cli import main; main(['run', 'no-such-script.py'])",
        "from vramlab.cli import main; main(['run', '--gpu', 'T5', '-m', 'this'])",
    ],
)
def test_what_needs_no_torch_imports_nothing_beside_python(code: str) -> None:
    assert imported(code) <= {"vramlab", "vramlab_course", "vramlab_classroom"}


def test_the_status_of_a_command_is_the_status_of_vramlab(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["gpus", "T4"]) == 0
    assert capsys.readouterr().out.startswith("T4: ")
    assert main(["gpus", "T5"]) == 2


def test_an_error_of_vramlab_is_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(arguments: argparse.Namespace) -> int:
        raise VramlabError("no such thing; take another")

    monkeypatch.setattr("vramlab.commands.gpus.run", refuse)
    assert main(["gpus"]) == 2
    assert capsys.readouterr().err == "vramlab: no such thing; take another\n"


@pytest.mark.parametrize(
    ("words", "lacking", "extra"),
    [
        (["scores"], "nbgrader", "classroom"),
        (["check", "01"], "IPython", "course"),
        (["experiments", "run", "fp16-linear-torchinfo", "--gpu", "T4"], "torchinfo", "record"),
    ],
)
def test_a_command_that_lacks_a_package_says_what_brings_it(
    words: list[str], lacking: str, extra: str
) -> None:
    code = f"""
import sys
from vramlab.cli import main

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == {lacking!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
sys.exit(main({words!r}))
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stderr == (
        f"vramlab: this command needs {lacking}, which is not installed: "
        f"pip install 'vramlab[{extra}]'\n"
    )
    assert ran.returncode == 2


@pytest.mark.parametrize("words", [["run", "--engine", "portable", "x.py"], ["rules"]])
def test_without_pytorch_a_command_says_what_to_install(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.py").touch()
    code = f"""
import sys
from vramlab.cli import main

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
sys.exit(main({words!r}))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.stderr == (
        "vramlab: this command needs PyTorch, which is not installed: pip install torch\n"
    )
    assert ran.returncode == 2


def test_any_other_missing_module_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_it(arguments: argparse.Namespace) -> int:
        raise ModuleNotFoundError("No module named 'vramlab.nowhere'", name="vramlab.nowhere")

    monkeypatch.setattr("vramlab.commands.gpus.run", import_it)
    with pytest.raises(ModuleNotFoundError, match=r"vramlab\.nowhere"):
        main(["gpus"])


@pytest.mark.parametrize("extra", _MODULES_OF_EXTRAS)
def test_what_an_extra_brings_is_what_pip_installs_with_it(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = set()
    for requirement in map(Requirement, project["optional-dependencies"][extra]):
        is_ours = requirement.name.startswith("vramlab")
        listed |= (
            needed_by(requirement.name, *requirement.extras) if is_ours else {requirement.name}
        )
    brought = {dependency for name in listed for dependency in {name, *needed_by(name)}}
    of_modules = packages_distributions()
    for module in _MODULES_OF_EXTRAS[extra]:
        assert {canonicalize_name(name) for name in of_modules[module]} & brought, module


def needed_by(distribution: str, *extras: str) -> set[str]:
    """What a distribution needs itself, and with these of its extras."""
    needed = (Requirement(text) for text in requires(distribution) or [])
    return {
        canonicalize_name(each.name)
        for each in needed
        if each.marker is None or any(each.marker.evaluate({"extra": it}) for it in ("", *extras))
    }


def test_an_interrupted_command_ends_as_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("vramlab.commands.gpus.run", interrupt)
    assert main(["gpus"]) == 130  # 128 + SIGINT


@pytest.mark.parametrize("words", [["gpus", "--json"], ["--version"]])
def test_nobody_complains_if_the_reader_goes_away(words: list[str]) -> None:
    code = f"import sys; from vramlab.cli import main; sys.exit(main({words}))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before it writes more than a pipe holds
        assert process.stderr.read() == b""
    assert process.returncode == 141  # 128 + SIGPIPE


@pytest.mark.parametrize(
    ("installed", "rules"),
    [
        ("2.13.0+cpu", ", simulated with the rules of 2.13"),
        (
            "2.99.0.dev20990101",
            f", simulated with the rules of {text(NEWEST)}",
        ),  # newer than what is known
    ],
)
def test_versions_are_those_that_a_bug_report_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, installed: str, rules: str
) -> None:
    monkeypatch.setattr(cli, "version", {"torch": installed}.__getitem__)
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        f"vramlab {vramlab.__version__}",
        f"PyTorch {installed}{rules} (supported: 1.13, 2.0, 2.5 to {text(NEWEST)})",
        f"{platform.python_implementation()} {platform.python_version()}",
        platform.platform(),
    ]


def test_versions_are_shown_without_a_torch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_found(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cli, "version", not_found)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.splitlines()[1].startswith("PyTorch not installed (supported: ")


def test_python_m_vramlab_is_the_same_command_line() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "vramlab", "gpus", "T5"], capture_output=True, text=True
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("vramlab: No GPU named 'T5' in the catalogue.")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("plan gpt2 --batch many", "argument --batch: invalid number 'many': use an integer"),
        ("native setup 2.15", "unrecognized arguments: 2.15"),
    ],
)
def test_a_wrong_option_is_one_line_in_the_name_of_its_command(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    line, *others = capsys.readouterr().err.splitlines()
    command = " ".join(words.split()[: 1 + words.startswith("native")])
    assert line.startswith(f"vramlab {command}: error: {problem}")
    assert others == []
