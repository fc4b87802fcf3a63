"""What a learner wrote in Markdown shows in the pages of nbgrader, and runs nothing there."""

from __future__ import annotations

import pytest
from classroom import ROOT
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict
from vramlab_classroom.nbgrader.nbgrader_steps import verdict_outputs
from vramlab_classroom.nbgrader.release import course_config
from vramlab_classroom.nbgrader.safe_pages import safe_markdown


def test_markdown_looks_as_always() -> None:
    html = safe_markdown(
        "## Title\n\n*so* `a<b`\n\n| a |\n|---|\n| 1 |\n\n[l](https://example.org)"
    )
    for part in ("<h2>Title", "<em>so</em>", "<code>a&lt;b</code>", "<td>1</td>"):
        assert part in html
    assert '<a href="https://example.org">l</a>' in html


@pytest.mark.parametrize(
    ("attack", "runs"),
    [
        ("<script>alert(1)</script>", "<script"),
        ("<img src=x onerror=alert(1)>", "onerror"),
        ("<svg onload=alert(1)>", "<svg"),
        ("[click](javascript:alert(1))", "javascript"),
        ("<a href='data:text/html,<script>alert(1)</script>'>click</a>", "data:"),
        ("<iframe src=https://example.org></iframe>", "<iframe"),
        ("<form action=https://example.org><button>ok</button></form>", "<form"),
        ("<p style='position:fixed;top:0'>full marks</p>", "position"),
        ("![who grades](https://example.org/pixel.png)", "example.org"),
        ("<meta http-equiv=refresh content='0;url=https://example.org'>", "<meta"),
    ],
)
def test_nothing_in_it_runs(attack: str, runs: str) -> None:
    assert runs not in safe_markdown(attack)


@pytest.fixture
def exporter() -> HTMLExporter:
    """Give the exporter of the feedback pages, as the course configures it."""
    config: Config = course_config(ROOT)
    step = GenerateFeedback(CourseDirectory(config=config), config=config)
    return HTMLExporter(config=step.config)


def _page(exporter: HTMLExporter, *cells: object) -> str:
    details = {"notebook": "toy", "score": 0, "max_score": 2, "late_penalty": 0}
    page, _ = exporter.from_notebook_node(
        new_notebook(cells=list(cells)), resources={"nbgrader": details}
    )
    return str(page)


def test_feedback_pages_use_the_filter(exporter: HTMLExporter) -> None:
    page = _page(exporter, new_markdown_cell("<script>alert('learner')</script>"))
    assert "&lt;script&gt;alert('learner')" in page


def test_feedback_pages_show_the_picture_and_escape_what_was_answered(
    exporter: HTMLExporter,
) -> None:
    attack = "<script>alert('learner')</script>"
    cases = (
        CaseResult({"size": 4}, False, "4", "512", visible=True),
        CaseResult({"size": 5}, False, attack, "512", visible=False),
    )
    verdict = Verdict("block_bytes", 2, Grade.FAILED, f"TypeError: {attack}", cases)
    cell = new_code_cell(f"# {attack}", outputs=verdict_outputs(verdict, 2))
    page = _page(exporter, cell)
    assert "<script>alert('learner')" not in page
    assert 'src="data:image/svg+xml;base64,' in page
    assert 'alt="Bars for block_bytes: your answer beside what was measured' in page
    assert "TypeError: &lt;script&gt;" in page
    assert "size=4" in page
