"""docs/teaching.md: what it tells teachers to type works as written, with a small class."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import markdown_blocks
import pytest
from distributed.cli import dask_scheduler, dask_worker
from markdown_blocks import ROOT, environment
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from warm_python import warm_classroom

from vramlab.cli import parser

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
EXERCISE = "02_pages_and_blocks"

HERE = "sh"
ELSEWHERE = "sh elsewhere"
"""Needs a cluster, a container, a hub, a server, or the network: only its options are looked at."""


def blocks(kind: str) -> list[str]:
    return markdown_blocks.blocks(PAGE, kind)


def commands(program: str) -> list[list[str]]:
    """Give the words of each command of a program, wherever it is."""
    return markdown_blocks.commands(PAGE, program, (HERE, ELSEWHERE))


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do all that the guide tells, one after the other, in a copy of the course."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "course"
    for name in ("nbgrader_config.py", "autograder/nbgrader_config.py", "requirements.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "solutions" / EXERCISE, folder / "solutions" / EXERCISE)
    notebook = ROOT / "exercises" / EXERCISE / f"{EXERCISE}.ipynb"
    solution = ROOT / "solutions" / EXERCISE / f"{EXERCISE}.ipynb"
    for student, file in (("ada", solution), ("bob", notebook)):
        (folder / "handed-in" / student).mkdir(parents=True)
        shutil.copy(file, folder / "handed-in" / student)
    downloads = home / "Downloads"
    downloads.mkdir()
    with zipfile.ZipFile(downloads / "submissions.zip", "w") as archive:
        archive.write(solution, "eve_7_8_my_homework.ipynb")
    (downloads / "canvas.csv").write_text("Student,ID,SIS Login ID,Section\nEve,7,eve,A\n")
    (downloads / "moodle.csv").write_text("Identifier,Full name,Grade\nParticipant 1,Ada,\n")
    ran = subprocess.run(
        ["bash", "-e"],
        input="".join(blocks(HERE)),
        cwd=folder,
        env=environment(HOME=f"{home}", PATH=_path()),
        capture_output=True,
        text=True,
        preexec_fn=_one_core,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "could not" not in ran.stdout
    return folder


def _path() -> str:
    """Find the commands that have imported nbgrader already, and then all others."""
    folders = [Path(warm_classroom()).parent, environment()["PATH"]]
    return os.pathsep.join(map(str, folders))


def _one_core() -> None:
    """Let `vramlab grade` take one worker, so that it starts no more than it needs."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])


def test_the_class_is_graded(course: Path) -> None:
    with Gradebook(f"sqlite:///{course}/autograder/gradebook.db") as gradebook:
        scores = {
            submission.student_id: submission.score
            for submission in gradebook.assignment_submissions(EXERCISE)
        }
    # 2 + 3 + 4 + 3 + 4 points; bob has submitted what was released.
    assert scores == {"ada": 16.0, "bob": 0.0, "eve-7": 16.0}
    for student in scores:
        assert (course / "autograder" / "feedback" / student / EXERCISE).is_dir()


def test_it_leaves_what_it_says(course: Path) -> None:
    assert "16" in (course / "report.html").read_text()
    assert len((course / "scores.csv").read_text().splitlines()) == 1 + 3
    with (course / "canvas-import.csv").open(newline="") as file:
        rows = {row["Student"]: row for row in csv.DictReader(file)}
    assert rows["Eve"][EXERCISE] == "16"
    assert "Participant 1,Ada,16" in (course / "moodle-upload.csv").read_text()
    for name, member in (
        ("feedback.zip", "eve_7_8_my_homework.html"),
        ("autograder.zip", "run_autograder"),
    ):
        with zipfile.ZipFile(course / name) as archive:
            assert member in archive.namelist()


def test_every_place_that_the_guide_names_is_where_it_says(course: Path) -> None:
    table = PAGE.partition("## What is stored where")[2]
    places = set(re.findall(r"`(autograder/[^`]+)`", table))
    assert places == {
        f"autograder/{name}"
        for name in (
            *("submitted/", "autograded/", "feedback/"),
            *("gradebook.db", "journal.db", "hidden_seed.txt"),
        )
    }
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for place in places:
        assert (course / place).exists()
        assert place in ignored or f"{place}*" in ignored


@pytest.mark.parametrize("words", commands("vramlab"), ids=" ".join)
def test_options_of_vramlab_are_there(words: list[str]) -> None:
    assert parser().parse_args(words)


@pytest.mark.parametrize("words", commands("nbgrader"), ids=" ".join)
def test_verbs_of_nbgrader_are_there(words: list[str]) -> None:
    verb, assignment, *options = words
    app, _ = NbGraderApp.subcommands[verb]
    assert assignment == EXERCISE
    assert set(options) <= {f"--{flag}" for flag in app.flags}


@pytest.mark.parametrize("words", commands("dask"), ids=" ".join)
def test_options_of_dask_are_there(words: list[str]) -> None:
    verb, *rest = words
    command = {"scheduler": dask_scheduler, "worker": dask_worker}[verb].main
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists()
    for name in re.findall(
        r"`((?:vramlab|tests|autograder)/[\w/]+\.py|autograder/Containerfile)`", PAGE
    ):
        assert (ROOT / name).exists()
