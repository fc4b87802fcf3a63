"""The start page: the course, what the learner has done of it, and what comes next.

    start_page()

It reads the file that `predict` and `check` write; see `prediction_record`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from vramlab_classroom.judge.exercises import WORKSHOP, exercise_names, find_exercise
from vramlab_course.course_map import ONWARD, PARTS, PATHS, LearningPath, stem_of
from vramlab_course.notebooks import installed_notebooks
from vramlab_course.translations.language import language_here
from vramlab_course.translations.notebook import translate
from vramlab_course.translations.speech import say
from vramlab_course.widgets.prediction_record import PredictionRecord, own_record
from vramlab_course.widgets.questions import find

_SECOND_PART = "## To the byte"
_CELL = "padding: 0.2em 0.8em; text-align: left;"


@dataclass(frozen=True)
class LessonProgress:
    """One lesson, and what a learner has done of it and its exercise.

    Attributes:
        stem: its name, such as '05_one_training_step'.
        title: such as '05 · One training step'.
        asked: how many predictions its main path asks for.
        answered: how many of them were made or skipped.
        tasks: how many its exercise has.
        solved: how many of them are solved.
        core: how many core tasks its exercise has.
        core_solved: how many of them are solved.
    """

    stem: str
    title: str
    asked: int
    answered: int
    tasks: int
    solved: int
    core: int = 0
    core_solved: int = 0

    @property
    def is_read(self) -> bool:
        """Whether all predictions of its main path are decided."""
        return self.answered >= self.asked

    @property
    def is_done(self) -> bool:
        """Whether it is read and its exercise solved."""
        return self.is_read and self.solved >= self.tasks

    @property
    def mark(self) -> str:
        """A sign for it: done, begun, or not begun."""
        return _mark(self.is_done, bool(self.answered or self.solved))

    @property
    def words(self) -> str:
        """How it stands."""
        return say(
            "{answered} of {asked} predictions, {exercise}",
            answered=self.answered,
            asked=self.asked,
            exercise=self.exercise,
        )

    @property
    def exercise(self) -> str:
        """How its exercise stands."""
        return say(
            "{tasks}, ★ {solved} of {core}",
            tasks=_tasks(self.solved, self.tasks),
            solved=self.core_solved,
            core=self.core,
        )


def progress_of(
    record: PredictionRecord, lessons: Iterable[str], folder: Path
) -> dict[str, LessonProgress]:
    """Return how lessons stand, by their numbers.

    Args:
        record: the learner's.
        lessons: numbers, such as '05'.
        folder: with `lessons/` and `exercises/` as they were installed.

    Raises:
        OSError: the record or a lesson cannot be read.
        BrokenRecord: the file is no record.
    """
    answered = {(outcome.lesson, outcome.question) for outcome in record.outcomes()}
    solved = {(task.exercise, task.task) for task in record.solved_tasks()}
    found = {}
    for number in lessons:
        stem = stem_of(number)
        title, questions = _read_lesson(folder, f"lessons/{stem}.ipynb")
        exercise = find_exercise(stem)
        found[number] = LessonProgress(
            stem,
            title,
            len(questions),
            sum((stem, question) in answered for question in questions),
            len(exercise.tasks),
            sum((stem, task.name) in solved for task in exercise.tasks),
            len(exercise.core),
            sum((stem, task) in solved for task in exercise.core),
        )
    return found


@dataclass(frozen=True)
class WorkshopProgress:
    """One workshop, and what a learner has solved of it.

    Attributes:
        stem: its name, such as 'workshop_f_chunked_cross_entropy'.
        title: such as 'Workshop F: chunked cross-entropy'.
        tasks: how many it has.
        solved: how many of them are solved.
    """

    stem: str
    title: str
    tasks: int
    solved: int

    @property
    def mark(self) -> str:
        """A sign for it: done, begun, or not begun."""
        return _mark(self.solved >= self.tasks, self.solved > 0)

    @property
    def lessons(self) -> str:
        """The numbers of the lessons that it goes on from, such as '02, 03'."""
        return ", ".join(number for number, further in ONWARD.items() if self.stem in further)


def workshops_of(record: PredictionRecord, folder: Path) -> list[WorkshopProgress]:
    """Return how the workshops stand, in their order; arguments and errors as `progress_of`."""
    solved = {(task.exercise, task.task) for task in record.solved_tasks()}
    found = []
    for stem in exercise_names():
        if stem.startswith(WORKSHOP):
            title, _ = _read_lesson(folder, f"exercises/{stem}/{stem}.ipynb")
            tasks = [task.name for task in find_exercise(stem).tasks]
            done = sum((stem, task) in solved for task in tasks)
            found.append(WorkshopProgress(stem, title, len(tasks), done))
    return found


def _read_lesson(folder: Path, name: str) -> tuple[str, list[str]]:
    """Return a lesson's title, as the learner reads it, and the questions of its main path."""
    notebook = json.loads((folder / name).read_text(encoding="utf-8"))
    cells = notebook["cells"]
    opening = "".join(translate(notebook, name, language_here())["cells"][0]["source"])
    sources = ["".join(cell["source"]) for cell in cells]
    ends = next((n for n, text in enumerate(sources) if _SECOND_PART in text.splitlines()), None)
    questions = []
    for cell, source in zip(cells[:ends], sources[:ends], strict=True):
        if cell["cell_type"] == "code" and "predict(" in source:
            questions += [find(key).text for key in keys_in(source)]
    return opening.partition("\n")[0].removeprefix("# "), questions


def keys_in(source: str) -> list[str]:
    """Return the keys of the predictions that a code cell asks for, in their order."""
    return [
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "predict"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]


def next_on(path: LearningPath, progress: Mapping[str, LessonProgress]) -> LessonProgress | None:
    """Return the first lesson on a path that is not done; None at its end."""
    return next((progress[number] for number in path.lessons if not progress[number].is_done), None)


class StartPage:
    """What `start_page` shows: in a notebook with links, elsewhere as text.

    Args:
        progress: of every lesson, by its number.
        kept_in: the file that it was read from.
        workshops: what has been built of them.
    """

    def __init__(
        self,
        progress: Mapping[str, LessonProgress],
        kept_in: Path,
        workshops: Sequence[WorkshopProgress] = (),
    ) -> None:
        self.progress = progress
        self.workshops = workshops
        self.kept_in = kept_in

    def _repr_html_(self) -> str:
        paths = "".join(self._path_html(path) for path in PATHS)
        parts = "".join(
            f'<tr><th colspan="3" style="{_CELL} padding-top: 1em;">'
            f"{say('Part {number}:', number=part.number)} {escape(say(part.title))}</th></tr>"
            f"{''.join(map(self._lesson_html, part.lessons))}"
            for part in PARTS
        )
        if self.workshops:
            head = f'<tr><th colspan="3" style="{_CELL} padding-top: 1em;">'
            parts += f"{head}{say('Workshops')}</th></tr>"
            parts += "".join(map(_workshop_html, self.workshops))
        return (
            f"<p>{self._summary()} {say('● done · ◐ begun · ○ not begun')}</p>"
            f"{_head(say('path'), say('done'), say('for whom'), say('what comes next'))}"
            f"<tbody>{paths}</tbody></table><p>{_about_core()}</p>"
            f"{_head(say('lesson'), say('predictions'), say('exercise'))}"
            f"<tbody>{parts}</tbody></table><p>{escape(self._where())}</p>"
        )

    def _where(self) -> str:
        return say(
            "Kept in {file}, and nowhere else. The file is yours: delete it to start afresh.",
            file=self.kept_in,
        )

    def _path_html(self, path: LearningPath) -> str:
        following = next_on(path, self.progress)
        goes_on = say("You have done it all.") if following is None else _link(following)
        return (
            f'<tr><td style="{_CELL}"><strong>{escape(say(path.name))}</strong></td>'
            f'<td style="{_CELL}">{_share(self._done(path), len(path.lessons))}</td>'
            f'<td style="{_CELL}">{escape(say(path.aim))}</td>'
            f'<td style="{_CELL}">{goes_on}</td></tr>'
        )

    def _lesson_html(self, number: str) -> str:
        lesson = self.progress[number]
        exercise = f"exercises/{lesson.stem}/{lesson.stem}.ipynb"
        return (
            f'<tr><td style="{_CELL}">{lesson.mark} {_link(lesson)}</td>'
            f'<td style="{_CELL}">{_share(lesson.answered, lesson.asked)}</td>'
            f'<td style="{_CELL}"><a href="{exercise}">{lesson.exercise}</a></td></tr>'
        )

    def _done(self, path: LearningPath) -> int:
        return sum(self.progress[number].is_done for number in path.lessons)

    def _summary(self) -> str:
        lessons = self.progress.values()
        solved = sum(lesson.solved for lesson in lessons)
        solved += sum(workshop.solved for workshop in self.workshops)
        return say(
            "Lessons done: {done} of {lessons}. Predictions made or skipped: {answered}. Tasks "
            "solved: {solved}.",
            done=sum(lesson.is_done for lesson in lessons),
            lessons=len(lessons),
            answered=sum(lesson.answered for lesson in lessons),
            solved=solved,
        )

    def __str__(self) -> str:
        lines = [self._summary()]
        for path in PATHS:
            following = next_on(path, self.progress)
            goes_on = "all done" if following is None else f"next: {following.title}"
            lines.append(f"{path.name}: {self._done(path)} of {len(path.lessons)}, {goes_on}")
        lines += [f"{each.mark} {each.title}: {each.words}" for each in self.progress.values()]
        lines += [
            f"{each.mark} {each.title}: {each.solved} of {each.tasks} tasks"
            for each in self.workshops
        ]
        return "\n".join([*lines, _about_core(), f"Kept in {self.kept_in}."])

    __repr__ = __str__


def _about_core() -> str:
    return say(
        "★ marks the core of each exercise, two tasks. Those of “a weekend” take about 5 hours, "
        "those of the whole course 19."
    )


def _link(lesson: LessonProgress) -> str:
    return f'<a href="lessons/{lesson.stem}.ipynb">{escape(lesson.title)}</a>'


def _workshop_html(workshop: WorkshopProgress) -> str:
    link = f"exercises/{workshop.stem}/{workshop.stem}.ipynb"
    return (
        f'<tr><td style="{_CELL}">{workshop.mark} '
        f'<a href="{link}">{escape(workshop.title)}</a></td>'
        f'<td style="{_CELL}">{say("after lessons {lessons}", lessons=workshop.lessons)}</td>'
        f'<td style="{_CELL}">{_tasks(workshop.solved, workshop.tasks)}</td></tr>'
    )


def _mark(is_done: bool, is_begun: bool) -> str:
    if is_done:
        return "●"
    return "◐" if is_begun else "○"


def _head(*names: str) -> str:
    cells = "".join(f'<th style="{_CELL}">{name}</th>' for name in names)
    return f"<table><thead><tr>{cells}</tr></thead>"


def _share(part: int, whole: int) -> str:
    return say("{part} of {whole}", part=part, whole=whole)


def _tasks(solved: int, tasks: int) -> str:
    return say("{solved} of {tasks} tasks", solved=solved, tasks=tasks)


def start_page() -> StartPage:
    """Show the course, what you have done of it, and what comes next on each path.

    Raises:
        OSError: your record or a lesson cannot be read.
        BrokenRecord: your file is no record.
        UnusableFolder: no lessons were installed.
    """
    record = own_record()
    lessons = [number for part in PARTS for number in part.lessons]
    course = installed_notebooks()
    progress = progress_of(record, lessons, course)
    return StartPage(progress, record.path, workshops_of(record, course))
