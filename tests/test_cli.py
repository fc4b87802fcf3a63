"""The command line: verbs are found, errors are one line, and nothing heavy is imported early."""

from __future__ import annotations

import argparse
import pkgutil
import subprocess
import sys

import pytest

from vramlab import commands
from vramlab.cli import main, parser
from vramlab.errors import VramlabError


def test_every_module_of_commands_is_a_verb() -> None:
    (verbs,) = (
        action.choices
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert set(verbs) == {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert {"gpus", "run"} <= set(verbs)


def test_torch_is_not_imported_to_tell_what_there_is() -> None:
    asked = (
        "import sys; from vramlab.cli import parser; parser().format_help(); "
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == ("[]\n", "")


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


def test_an_interrupted_command_ends_as_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("vramlab.commands.gpus.run", interrupt)
    assert main(["gpus"]) == 130  # 128 + SIGINT


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([])
    assert leaving.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_python_m_vramlab_is_the_same_command_line() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "vramlab", "gpus", "T5"], capture_output=True, text=True
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("No GPU named 'T5' in the catalogue.")
