"""The explanation of snapshots as one page, with a timeline of each GPU under each setting.

The page loads nothing: it can be sent to someone, or kept with the results of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from vramlab.explaining.explanation import Explanation
from vramlab.explaining.shown import as_html
from vramlab.explaining.timelines import choices, drawn
from vramlab.explaining.traces import GPUTrace
from vramlab.viz.timeline_html import PAGE_STYLE

_TABS = """
for (const form of document.forms) {
  const draw = () => {
    const shown = form.querySelector('.shown');
    shown.replaceChildren(form.querySelector(':checked').nextElementSibling.content.cloneNode(true));
  };
  form.addEventListener('change', draw);
  draw();
}
"""
"""Scripts in a template run when its copy is put into the page, and can measure themselves then."""


def as_page(explanations: Sequence[Explanation]) -> str:
    """Return the page.

    Args:
        explanations: of one snapshot, or of a rank each.
    """
    return "\n".join(_parts(explanations))


def _parts(explanations: Sequence[Explanation]) -> Iterator[str]:
    title = "Explanation of " + ", ".join(each.path for each in explanations)
    yield (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE_STYLE}</style></head>\n<body><main>"
        f"<h1>{escape(title)}</h1>"
    )
    for explanation in explanations:
        if len(explanations) > 1:
            yield f"<h2>{escape(explanation.path)}</h2>"
        yield as_html(explanation)
        for gpu in explanation.traces:
            yield from _tabs(gpu)
    yield f"<script>{_TABS}</script></main></body>\n</html>\n"


def _tabs(gpu: GPUTrace) -> Iterable[str]:
    yield f"<form><fieldset><legend>Timeline of cuda:{gpu.device}</legend>"
    for number, (name, settings) in enumerate(choices()):
        checked = "" if number else " checked"
        yield f'<label><input type="radio" name="settings"{checked}>'
        yield f"<template>{drawn(gpu, settings)}</template> {escape(name)}</label> "
    yield '</fieldset><div class="shown"></div></form>'
