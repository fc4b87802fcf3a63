"""The course in a learner's folder: it is brought up to date, and nothing of theirs is lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vramlab.cli import main
from vramlab_course.commands import lab
from vramlab_course.notebooks import FIRST, UnusableFolder, deliver, installed_notebooks
from vramlab_course.translations.language import language_of


def write(path: Path, text: str, output: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {"cell_type": "code", "source": [text], "outputs": [output] if output else []}
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")


def text_of(path: Path) -> str:
    return "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])


@pytest.fixture
def course(tmp_path: Path) -> tuple[Path, Path]:
    """A course with a lesson and an exercise, and a learner's folder that has it."""
    source, folder = tmp_path / "source", tmp_path / "mine"
    write(source / "lessons" / "01.ipynb", "lesson, 1")
    write(source / "exercises" / "01" / "01.ipynb", "exercise, 1")
    write(source / "solutions" / "01" / "01.ipynb", "solution")
    delivery = deliver(source, folder)
    assert delivery.added == ["exercises/01/01.ipynb", "lessons/01.ipynb"]
    assert not (folder / "solutions").exists()
    return source, folder


def test_what_only_ran_is_brought_up_to_date(course: tuple[Path, Path]) -> None:
    source, folder = course
    write(folder / "lessons" / "01.ipynb", "lesson, 1", output="42 bytes")
    write(source / "lessons" / "01.ipynb", "lesson, 2")
    delivery = deliver(source, folder)
    assert delivery.updated == ["lessons/01.ipynb"]
    assert delivery.unchanged == 1
    assert text_of(folder / "lessons" / "01.ipynb") == "lesson, 2"


def test_what_a_learner_has_written_stays(course: tuple[Path, Path]) -> None:
    source, folder = course
    exercise = folder / "exercises" / "01" / "01.ipynb"
    write(exercise, "exercise, 1, and my answer")
    assert deliver(source, folder).kept == ["exercises/01/01.ipynb"]

    write(source / "exercises" / "01" / "01.ipynb", "exercise, 2")
    delivery = deliver(source, folder)
    assert delivery.beside == ["exercises/01/01 (new).ipynb"]
    assert text_of(exercise) == "exercise, 1, and my answer"
    assert text_of(folder / "exercises" / "01" / "01 (new).ipynb") == "exercise, 2"

    again = deliver(source, folder)  # it is reported once
    assert (again.beside, again.kept) == ([], ["exercises/01/01.ipynb"])


EXERCISE = "exercises/01/01.ipynb"
NEW, NEW_2, NEW_3 = (f"exercises/01/01 (new{number}).ipynb" for number in ("", " 2", " 3"))


@pytest.mark.parametrize(
    ("edited", "lies_at"),
    [
        ((), EXERCISE),
        ((EXERCISE,), NEW),
        ((EXERCISE, NEW), NEW_2),  # "(new)" is the newer one: it is natural to answer there
        ((EXERCISE, NEW, NEW_2), NEW_3),
    ],
    ids=["none", "old", "old and new", "all"],
)
@pytest.mark.parametrize("how", ["edited", "read-only", "deleted"])
def test_no_version_overwrites_what_a_learner_has_written(
    course: tuple[Path, Path], edited: tuple[str, ...], lies_at: str, how: str
) -> None:
    """After each version the learner does something with the next file; then comes another."""
    source, folder = course
    version = 1
    for name in edited:
        if how == "read-only":
            (folder / name).chmod(0o444)
        else:
            write(folder / name, f"my answers in {name}")
        version += 1
        write(source / EXERCISE, f"exercise, {version}")
        deliver(source, folder)
    if how == "deleted" and edited:
        (folder / edited[-1]).unlink()
        lies_at = edited[-1]
    before = {name: (folder / name).read_bytes() for name in edited if (folder / name).exists()}
    for version in (10, 11):
        write(source / EXERCISE, f"exercise, {version}")
        deliver(source, folder)
    assert text_of(folder / lies_at) == "exercise, 11"
    assert {name: (folder / name).read_bytes() for name in before} == before
    if how == "deleted":
        return
    assert {path.name for path in (folder / EXERCISE).parent.iterdir()} == {
        Path(name).name for name in (*edited, lies_at)
    }


def test_a_file_that_a_learner_named_like_a_newer_version_stays(course: tuple[Path, Path]) -> None:
    source, folder = course
    write(folder / EXERCISE, "my answers")
    write(folder / NEW, "exercise, 2")
    write(source / EXERCISE, "exercise, 2")
    assert deliver(source, folder).beside == [NEW_2]


def test_a_delivery_that_stops_half_way_remembers_what_it_wrote(course: tuple[Path, Path]) -> None:
    source, folder = course
    (folder / "lessons" / "01.ipynb").unlink()
    (folder / "lessons" / "01.ipynb").mkdir()  # the lesson, which comes last, cannot be written
    write(source / EXERCISE, "exercise, 2")
    with pytest.raises(UnusableFolder):
        deliver(source, folder)
    (folder / "lessons" / "01.ipynb").rmdir()
    write(source / EXERCISE, "exercise, 3")
    assert deliver(source, folder).updated == [EXERCISE]


def test_a_folder_without_a_record_is_the_learners(course: tuple[Path, Path]) -> None:
    source, folder = course
    (folder / ".vramlab" / "delivered.json").unlink()
    (folder / "lessons" / "01.ipynb").write_text("{ half of a notebook", encoding="utf-8")
    assert deliver(source, folder).beside == ["lessons/01 (new).ipynb"]
    assert (folder / "lessons" / "01.ipynb").read_text(encoding="utf-8") == "{ half of a notebook"


def test_what_was_deleted_comes_back(course: tuple[Path, Path]) -> None:
    source, folder = course
    (folder / "lessons" / "01.ipynb").unlink()
    assert deliver(source, folder).added == ["lessons/01.ipynb"]


def test_the_command_puts_every_notebook_there_and_opens_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gpu memory"
    called: list[tuple[list[str], Path]] = []

    def call(words: list[str], cwd: Path, env: dict[str, str]) -> int:
        called.append((words, cwd))
        return 3

    monkeypatch.setattr(lab.subprocess, "call", call)
    assert main(["lab", str(folder), "--teach", "--", "--no-browser"]) == 3
    page = f"--LabApp.default_url=/lab/tree/{FIRST}"
    assert called == [([sys.executable, "-m", "jupyterlab", page, "--no-browser"], folder)]
    assert (folder / FIRST).exists()
    assert (folder / "lessons" / "01_cuda_context.ipynb").exists()
    names = {path.relative_to(folder).as_posix() for path in folder.glob("*/**/*.ipynb")}
    source = installed_notebooks()
    assert names == {
        path.relative_to(source).as_posix()
        for part in ("lessons", "exercises")
        for path in (source / part).rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    }
    assert main(["lab", str(folder), "--no-open"]) == 0
    assert capsys.readouterr().out.endswith(f"The course is in {folder}\n")
    assert len(called) == 1


TEACHERS_TOOLS = {
    f"@jupyter/nbgrader:{name}"
    for name in ("assignment-list", "course-list", "create-assignment", "formgrader", "menu")
}


@pytest.mark.parametrize("teaches", [False, True])
def test_learners_do_not_see_what_nbgrader_has_for_teachers(
    teaches: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(lab.subprocess, "call", lambda words, cwd, env: seen.append(env))
    main(["lab", str(tmp_path / "course"), *(["--teach"] if teaches else [])])
    program = (
        "from jupyterlab_server.config import get_page_config\n"
        "print(*get_page_config([])['disabledExtensions'])"
    )
    settings = {"JUPYTER_CONFIG_DIR": str(tmp_path)}  # not those of this user
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env={**seen[0], **settings}, capture_output=True, text=True)
    assert set(done.stdout.split()) & TEACHERS_TOOLS == (set() if teaches else TEACHERS_TOOLS)


def test_nbgrader_calls_its_tools_so() -> None:
    folder = Path(sys.prefix, "share", "jupyter", "labextensions", "@jupyter", "nbgrader")
    sources = [path.read_text(encoding="utf-8") for path in folder.glob("static/*.js")]
    known = {
        name for source in sources for name in re.findall(r"@jupyter/nbgrader:[a-z-]+", source)
    }
    assert known - TEACHERS_TOOLS == {"@jupyter/nbgrader:validate-assignment"}


def test_a_folder_keeps_the_language_that_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson, exercise = "lessons/01_cuda_context.ipynb", "exercises/01_cuda_context"
    title, second = "# 01 · CUDA 上下文\n", "# 练习 01"
    folder = tmp_path / "course"
    assert main(["lab", str(folder), "--language", "zh", "--no-open"]) == 0
    assert text_of(folder / lesson).startswith(title)
    assert text_of(folder / exercise / "01_cuda_context.ipynb").startswith(second)

    (folder / lesson).unlink()
    assert main(["lab", str(folder), "--no-open"]) == 0
    assert text_of(folder / lesson).startswith(title)
    assert language_of(folder) == "zh"

    capsys.readouterr()
    assert main(["lab", str(folder), "--language", "en", "--no-open"]) == 0
    assert text_of(folder / lesson).startswith("# 01 · The CUDA context\n")
    # Every notebook with a note or a translation, since the learner changed none of them.
    assert "notebooks were brought up to date" in capsys.readouterr().out
    assert language_of(folder) == "en"
