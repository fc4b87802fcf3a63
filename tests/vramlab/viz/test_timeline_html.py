"""The piece of HTML: it needs nothing else, and nothing in the data gets out of its script."""

from __future__ import annotations

import json
import re

from vramlab.measure import Category
from vramlab.viz import TimelineView, ViewBlock, timeline_html

NASTY = "</script><b>&\u2028'\"\\"
VIEW = TimelineView(
    NASTY, 2, (ViewBlock(Category.INPUTS, NASTY, f"a.py:1 f: x = '{NASTY}'", 512, 1, 3),)
)


def test_it_loads_nothing() -> None:
    html = timeline_html(VIEW)
    assert not re.search(r"\b(src|href|import|url|fetch)\b\s*[=(]", html)
    assert "http" not in html


def test_names_of_tensors_cannot_end_the_script() -> None:
    html = timeline_html(VIEW)
    assert html.count("</script>") == 1
    script = html.partition("<script>")[2].partition("</script>")[0]
    data = script.partition("(document.currentScript.parentElement, ")[2].removesuffix(");")
    assert json.loads(data) == json.loads(json.dumps({**VIEW.to_dict(), "words": {}}))
