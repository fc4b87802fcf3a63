"""Keeps what a learner wrote in Markdown from running in the grader's page.

Markdown may hold HTML, and nbgrader's pages (feedback, formgrader) take it over as it is. The
formgrader is served by the teacher's own Jupyter server, so a `<script>` in a submission could do
there whatever the teacher can. Here is the filter that these pages use instead of nbconvert's own
(see `HTMLExporter.filters` in autograder/nbgrader_config.py). Other cells need none: code and
tracebacks are escaped by nbconvert, and outputs of a submission are cleared before it is graded.
"""

from __future__ import annotations

from functools import cache

from nbconvert.filters import markdown2html
from nbconvert.preprocessors.sanitize import SanitizeHTML

# fmt: off
_TAGS = [
    "a", "abbr", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "kbd", "li", "ol", "p", "pre", "s",
    "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
]
# fmt: on

_ATTRIBUTES = {
    "*": ["class", "title"],
    "a": ["href"],  # to http, https and mailto, or within the page
    "img": ["alt"],
    "td": ["colspan", "rowspan"],
    "th": ["colspan", "rowspan"],
}


def safe_markdown(source: str) -> str:
    """Turn Markdown into HTML that shows, and links where a reader clicks, but runs nothing.

    Of pictures it shows the alternative text: one that is fetched from elsewhere would tell its
    owner who grades, and when.
    """
    html: str = _sanitizer().sanitize_html_tags(markdown2html(source))
    return html


@cache
def _sanitizer() -> SanitizeHTML:
    return SanitizeHTML(tags=_TAGS, attributes=_ATTRIBUTES)
