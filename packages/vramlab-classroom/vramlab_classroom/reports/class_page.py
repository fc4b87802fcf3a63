"""A class report as a page of its own: no script, nothing fetched, ready to be printed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from vramlab_classroom.nbgrader.scores_csv import number
from vramlab_classroom.reports.class_report import OUTCOMES, ClassReport, late_in_words, overview


def class_page(report: ClassReport, *, names: bool = False) -> str:
    """Write a report as HTML; everything that a student wrote is escaped.

    Args:
        report: of a class.
        names: whether boards say who has which place.
    """
    return _template().render(
        report=report,
        names=names,
        overview=overview(report),
        outcome_classes={name: name.replace(" ", "-") for name in OUTCOMES},
        most=max((count for _, count in report.histogram), default=0),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["points"] = number
    environment.filters["late_in_words"] = late_in_words
    return environment.get_template("class_page.html.j2")
