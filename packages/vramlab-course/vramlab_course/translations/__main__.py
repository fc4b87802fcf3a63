"""The command that keeps catalogues up to date: `python -m vramlab_course.translations`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from vramlab.viz.timeline_html import said_by_the_script
from vramlab_course.course_map import PARTS, PATHS
from vramlab_course.translations.catalogue import (
    CatalogueEntry,
    brought_up_to_date,
    path_of,
    read,
    write,
)
from vramlab_course.translations.language import CATALOGUES, ENGLISH, languages
from vramlab_course.translations.notebook import NOT_TRANSLATED, PARTLY_TRANSLATED
from vramlab_course.translations.speech import LABELS, OWN_NAME, QUESTION, WIDGETS
from vramlab_course.translations.texts import (
    Text,
    texts_in_code,
    texts_of_findings,
    texts_of_headings,
    texts_of_mistakes,
    texts_of_notebook,
    texts_of_predictions,
    texts_of_widgets,
)

ROOT = Path(__file__).resolve().parents[4]
_COURSE = "packages/vramlab-course/vramlab_course"
_CLASSROOM = "packages/vramlab-classroom/vramlab_classroom"
ALWAYS = (OWN_NAME, QUESTION, NOT_TRANSLATED, PARTLY_TRANSLATED)
_TABLES = ("vramlab/measure/results.py", f"{_COURSE}/experiments/outcome.py")
"""The modules whose tables every lesson shows."""
_LABELLED = (
    "vramlab/measure",
    f"{_CLASSROOM}/judge",
    f"{_CLASSROOM}/sandbox",
    f"{_COURSE}/experiments",
    f"{_COURSE}/formulas",
    f"{_COURSE}/lessons",
    f"{_COURSE}/plots",
    f"{_COURSE}/programs",
    f"{_COURSE}/tasks",
    f"{_COURSE}/widgets",
    f"{_COURSE}/workshops",
)
"""Where names stand: those of the parts of pictures and the rows of tables, and what verdicts say.
Of so many, the catalogue has what the translated lessons and exercises show."""
_MADE = ("large", "small", "1 case", "{} cases", "1 point", "{} points")
"""Names that stand nowhere as they are: PyTorch's snapshot has them, or they are counted."""
COMMAND = "python -m vramlab_course.translations"


def main() -> int:
    """Bring catalogues up to date, or say what is stale; answer the exit status."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if any is stale")
    parser.add_argument(
        "--begin",
        nargs=2,
        metavar=("LANGUAGE", "NOTEBOOK"),
        help="begin a catalogue, such as zh lessons/09_bert_in_training.ipynb",
    )
    arguments = parser.parse_args()
    if arguments.begin:
        language, name = arguments.begin
        entries = [CatalogueEntry(text) for text in _texts(name)]
        write(path_of(name, language), entries, name, language)
    status = 0
    for language in languages():
        if language != ENGLISH:
            for path, about, texts in catalogues(language):
                status |= _keep(path, about, texts, language, arguments.check)
    return status


def catalogues(language: str) -> Iterator[tuple[Path, str, list[Text]]]:
    """Yield each catalogue of a language, what it is about, and what there is to translate."""
    widgets = [Text("", words) for words in ALWAYS]
    widgets += texts_of_widgets(_modules("widgets/*.py", "lessons/*/*explorer.py"))
    widgets += texts_of_headings(ROOT / name for name in _TABLES)
    widgets += texts_of_findings(_modules("plots/*.py", "lessons/*/*picture.py"))
    widgets += [Text("", part.title) for part in PARTS]
    widgets += [Text("", words) for path in PATHS for words in (path.name, path.aim)]
    yield CATALOGUES / language / WIDGETS, "what widgets say", list(dict.fromkeys(widgets))
    labels = [entry.text.english for entry in read(CATALOGUES / language / LABELS)]
    modules = [path for folder in _LABELLED for path in sorted((ROOT / folder).rglob("*.py"))]
    there = texts_in_code(modules, labels)
    there += [Text("", words) for words in labels if words in (*said_by_the_script(), *_MADE)]
    yield CATALOGUES / language / LABELS, "what tables, pictures and verdicts say", there
    notebooks = [*ROOT.glob("*.ipynb"), *ROOT.glob("lessons/*.ipynb")]
    notebooks += ROOT.glob("exercises/*/*.ipynb")
    for notebook in sorted(notebooks):
        name = notebook.relative_to(ROOT).as_posix()
        if path_of(name, language).exists():
            yield path_of(name, language), name, _texts(name)


def _modules(*patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in sorted((ROOT / _COURSE).glob(pattern))]


def _texts(name: str) -> list[Text]:
    texts = texts_of_notebook(json.loads((ROOT / name).read_text(encoding="utf-8")))
    room = ROOT / _COURSE / "lessons" / f"l{Path(name).stem}"
    tasks, predictions = room / "tasks.py", room / "predictions.py"
    if name.startswith("exercises/") and tasks.exists():
        texts += texts_of_mistakes(tasks)
    if name.startswith("lessons/") and predictions.exists():
        texts += texts_of_predictions(predictions, Path(name).stem[:2])
    return texts


def _keep(path: Path, about: str, texts: list[Text], language: str, only_check: bool) -> int:
    """Bring one catalogue up to date, or say what is stale in it; answer the exit status."""
    entries = read(path)
    now = brought_up_to_date(entries, texts)
    gone = {entry.text for entry in entries} - {entry.text for entry in now}
    if path.name == LABELS and gone:
        for text in gone:
            print(f"{path.relative_to(ROOT)}: {text.english!r} stands nowhere in the code any more")
        if only_check:
            return 1
    if now != entries and not only_check:
        write(path, now, about, language)
    for entry in now:
        if not entry.is_fresh:
            state = "has changed" if entry.is_stale else "is new"
            where = f"cell {entry.text.place}" if entry.text.place else repr(entry.text.english)
            print(f"{path.relative_to(ROOT)}: {where} {state} and wants a translation")
    if only_check and any(entry.is_stale and entry not in entries for entry in now):
        print(f"{path.relative_to(ROOT)} is stale: run `{COMMAND}`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
