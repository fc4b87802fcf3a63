"""Catalogues: what a translator sees, and what becomes of it when the English changes."""

from __future__ import annotations

from pathlib import Path

from vramlab_course.translations.catalogue import (
    CatalogueEntry,
    brought_up_to_date,
    read,
    write,
)
from vramlab_course.translations.texts import (
    MISTAKES,
    Text,
    texts_of_findings,
    texts_of_headings,
    texts_of_mistakes,
    texts_of_notebook,
    texts_of_predictions,
    texts_of_widgets,
)

ASKED = ("How much?", "Look.", "Look again.", "Too little.", "At {}.")
ONE, TWO, THREE = (Text("cell", words) for words in ("One.", "Two.", "Three."))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    entries = [
        CatalogueEntry(
            Text("title", '# 01 · "Quoted"\n\n- `a\\n`;\n- 30 % of it.\n'),
            "# 01 · “引用”\n\n- 甲\n",
        ),
        CatalogueEntry(Text("same", "One."), "一。"),
        CatalogueEntry(Text("other", "One."), "壹。"),
        CatalogueEntry(Text("new", "Two.")),
        CatalogueEntry(Text("changed", "Three, now."), "三。", is_stale=True),
        CatalogueEntry(Text("", "{points} points."), "{points} 分。"),
    ]
    path = tmp_path / "lessons" / "01.po"
    write(path, entries, "lessons/01.ipynb", "zh")
    assert read(path) == entries
    assert [entry.is_fresh for entry in entries] == [True, True, True, False, False, True]


def test_it_is_a_file_that_translators_editors_know(tmp_path: Path) -> None:
    write(
        tmp_path / "01.po", [CatalogueEntry(ONE, "一。", is_stale=True)], "lessons/01.ipynb", "zh"
    )
    assert (tmp_path / "01.po").read_text(encoding="utf-8") == (
        "# lessons/01.ipynb\n"
        'msgid ""\n'
        'msgstr ""\n'
        '"Language: zh\\n"\n'
        '"MIME-Version: 1.0\\n"\n'
        '"Content-Type: text/plain; charset=utf-8\\n"\n'
        '"Content-Transfer-Encoding: 8bit\\n"\n'
        "\n"
        "#, fuzzy\n"
        'msgctxt "cell"\n'
        'msgid "One."\n'
        'msgstr "一。"\n'
    )


def test_what_has_not_changed_keeps_its_translation() -> None:
    entries = [CatalogueEntry(ONE, "一。"), CatalogueEntry(TWO, "二。")]
    assert brought_up_to_date(entries, [TWO, ONE]) == entries[::-1]


def test_what_has_changed_keeps_its_translation_to_be_mended() -> None:
    (changed,) = brought_up_to_date([CatalogueEntry(ONE, "一。")], [TWO])
    assert changed == CatalogueEntry(TWO, "一。", is_stale=True)
    assert brought_up_to_date([changed], [TWO]) == [changed]
    assert brought_up_to_date([changed], [THREE]) == [CatalogueEntry(THREE, "一。", is_stale=True)]
    # A text without a translation has no stale one: it is still to be translated.
    assert brought_up_to_date([CatalogueEntry(ONE)], [TWO]) == [CatalogueEntry(TWO)]


def test_what_is_new_has_no_translation_and_what_has_gone_no_entry() -> None:
    elsewhere = Text("another cell", "One.")
    assert brought_up_to_date([CatalogueEntry(ONE, "一。")], [elsewhere]) == [
        CatalogueEntry(elsewhere)
    ]


def test_a_cell_that_is_moved_to_another_text_takes_one_translation_only() -> None:
    assert brought_up_to_date([CatalogueEntry(ONE, "一。")], [TWO, THREE]) == [
        CatalogueEntry(TWO, "一。", is_stale=True),
        CatalogueEntry(THREE),
    ]


def test_a_notebook_has_its_markdown_to_translate() -> None:
    cells = [
        {"cell_type": "markdown", "id": "title", "source": ["# One\n", "Two"]},
        {"cell_type": "code", "id": "ask", "source": ['predict("05.forward")\nprint("No, no")']},
        {"cell_type": "code", "id": "colab", "source": ["%pip install vramlab"]},
    ]
    assert texts_of_notebook({"cells": cells}) == [Text("title", "# One\nTwo")]


def test_a_lesson_has_its_predictions_to_translate(tmp_path: Path) -> None:
    path = tmp_path / "predictions.py"
    path.write_text(
        """\
PREDICTIONS = {
    "first": Question(
        "How much?",
        unit="B",
        hint=("Look.", "Look again."),
        mistakes={"Too little.": 4, f"At {MIB}.": lambda measured: 5},
    ),
    "second": Question("And now?"),
}
""",
        encoding="utf-8",
    )
    assert texts_of_predictions(path, "05") == [
        *(Text("05.first", words) for words in ASKED),
        Text("05.second", "And now?"),
    ]


def test_widgets_have_what_they_say_to_translate(tmp_path: Path) -> None:
    (tmp_path / "widget.py").write_text(
        '_HOW = "How {it} goes."\n\ndef f(words):\n    say(_HOW, it=1)\n    say("Now.")\n'
        '    say("Now.")\n    say(words)\n'
        '@explorer("What it takes")\ndef g(\n    a: Annotated[int, slider("Layers", 1, 2)],\n'
        '    b: Annotated[str, choice("dtype", DTYPES), "in words"],\n) -> View: ...\n',
        encoding="utf-8",
    )
    told = ("How {it} goes.", "Now.", "What it takes", "Layers")
    assert texts_of_widgets(sorted(tmp_path.glob("*.py"))) == [Text("", words) for words in told]


def test_titles_and_tables_are_to_be_translated_but_no_units_and_no_code() -> None:
    code = """\
draw_stacks(parts, title=f"A cache of {size / MIB:.0f} MiB, in {count} parts")
header = ("way", "MiB", "eval()")
Table("What it takes", header, rows)
Table("Again", ("y = a(x)", "at most"), rows)
"""
    cell = {"cell_type": "code", "id": "show", "source": [code]}
    assert texts_of_notebook({"cells": [cell]}) == [
        Text("show", words)
        for words in (
            "A cache of {} MiB, in {} parts",
            "What it takes",
            "way",
            "Again",
            "at most",
        )
    ]


def test_what_modules_tell_is_found(tmp_path: Path) -> None:
    path = tmp_path / "tasks.py"
    path.write_text(
        'A = of(right, ("You forgot it.", {"it": 0}), ("You took two.", {"it": 2}))\n'
        'B = (Mistake("You took three.", three), Mistake("You forgot it.", none))\n'
        'def _finding(n):\n    if n:\n        return f"There are now {n}"\n'
        '    return "None is there"\n'
        'header = ("stage", "measured")\nTable("", header=("measured", "published"))\n',
        encoding="utf-8",
    )
    assert texts_of_mistakes(path) == [
        Text(MISTAKES, f"You {words}.") for words in ("forgot it", "took two", "took three")
    ]
    assert texts_of_findings([path]) == [Text("", "There are now {}"), Text("", "None is there")]
    assert texts_of_headings([path]) == [
        Text("", words) for words in ("stage", "measured", "published")
    ]
