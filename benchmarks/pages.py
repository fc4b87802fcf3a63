"""The generated parts of README.md and of pages in docs/: nothing in them is typed.

A part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. The pictures of README.md
and docs/native.md are made together with them.

    python -m benchmarks.pages            write the parts again
    python -m benchmarks.pages --check    say which pages are stale; the exit status is 1 if any is
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import formulas, native, neutral, operators, strangers
from benchmarks.estimates.cases import DOCUMENT
from benchmarks.estimates.estimators import TOOLS
from benchmarks.estimates.results import RECORDINGS, RESULTS_FILE, ROOT, Results
from benchmarks.estimates.scores import Comparison, cases_table, folded, summary, summary_table
from benchmarks.explained import table as explained
from benchmarks.measurements import table as measurements
from benchmarks.parts import (
    coverage_tables,
    engines_picture,
    front_page,
    plan_example,
    recorded_tables,
    workspaces_table,
)
from docs.builder import address, formula_pages
from docs.builder.sources import lessons_table, parts_table, workshops_of, workshops_table
from vramlab.commands import rules
from vramlab.kernels import TABLE
from vramlab.progress import working
from vramlab_course.course_map import PARTS, paths_table

PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            *("accuracy", "coverage", "course", "formulas"),
            *("native", "planning", "scripts"),
        )
    ),
    *(ROOT / "docs" / f"cheat_sheet_{part.number}.md" for part in PARTS),
)

OF_LOCKED_PYTORCH = ("torch-cuda", "c-layer")
"""Parts about the locked PyTorch: with another one installed they stay as they are."""

_PART = re.compile(
    r"(?P<open><!-- generated: (?P<name>[a-z0-9-]+) -->\n).*?(?P<close><!-- end: (?P=name) -->)",
    re.DOTALL,
)


def parts(results: Results) -> Mapping[str, Callable[[], str]]:
    """Return what makes each part, by its name."""
    checks = formulas.read_checks()
    sheets = {
        f"cheat-sheet-{part.number}": partial(formula_pages.cheat_sheet, part, checks)
        for part in PARTS
    }
    in_words = {name: (tool.predicts, tool.leaves_out) for name, tool in TOOLS.items()}
    return {
        "accuracy": lambda: "\n\n".join(
            (summary_table(in_words, results.comparisons), _made_with(results))
        ),
        "accuracy-short": lambda: "\n".join(
            (summary(next(iter(TOOLS)), results.comparisons), measurements.summary())
        ),
        "measurements": measurements.markdown,
        "explained": explained.markdown,
        "accuracy-cases": lambda: folded(
            "All cases", cases_table(TOOLS, _shown(results.comparisons))
        ),
        "rules": lambda: "\n\n".join(
            (
                rules.summary(TABLE.surest_first()) + ".",
                folded("All rules", rules.markdown(TABLE.surest_first())),
            )
        ),
        "workspaces": workspaces_table.markdown,
        "native": native.markdown,
        "operators": operators.markdown,
        "strangers": lambda: strangers.markdown(strangers.read_results()),
        "engines": engines_picture.markdown,
        "first-uses": lambda: recorded_tables.first_uses(RECORDINGS),
        "known-differences": recorded_tables.known_differences,
        "torch-cuda": coverage_tables.torch_cuda,
        "c-layer": coverage_tables.c_layer,
        "plan": plan_example.answer,
        "badges": address.badges,
        "picture": front_page.image,
        "program": front_page.program,
        "report": front_page.report,
        "formulas": formula_pages.formulas_markdown,
        "formula-checks": lambda: formula_pages.checks_markdown(checks),
        **sheets,
        "parts": lambda: parts_table(ROOT, "lessons/"),
        "paths": lambda: paths_table(folder="../lessons/"),
        "workshops": lambda: workshops_table(workshops_of(ROOT), "../exercises/"),
        "lessons": lambda: lessons_table(sorted((ROOT / "lessons").glob("*.ipynb")), "../lessons/"),
    }


def _shown(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return the published cases, and of recordings the peaks; accuracy.json has the rest."""
    return [one for one in comparisons if one.case.kind == DOCUMENT or one.case.quantity == "peak"]


def _made_with(results: Results) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    recordings = ", ".join(name for name in results.recordings if name.endswith(".json"))
    failed = "".join(
        f" {tool} cannot run {len(programs)} of the programs it is made for."
        for tool, programs in results.failed.items()
    )
    return f"Made with {versions}. Recordings: {recordings or 'none yet'}.{failed}"


@neutral.environment()
def filled(text: str, made: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with every part made again; KeyError if a part has no maker."""

    def fill(part: re.Match[str]) -> str:
        if part["name"] in OF_LOCKED_PYTORCH and not coverage_tables.is_locked():
            return part[0]
        with working(f"making {part['name']}"):
            return f"{part['open']}\n{made[part['name']]()}\n\n{part['close']}"

    return _PART.sub(fill, text)


def stale(pages: tuple[Path, ...] = PAGES) -> list[Path]:
    """Return the pages that do not say what they would say if they were written now."""
    made = parts(Results.from_json(RESULTS_FILE.read_text(encoding="utf-8")))
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return [page for page, text in texts.items() if filled(text, made) != text]


def write(pages: tuple[Path, ...] = PAGES) -> None:
    """Write every part again."""
    made = parts(Results.from_json(RESULTS_FILE.read_text(encoding="utf-8")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text, made), encoding="utf-8")


@neutral.environment()
def main() -> int:
    """Write or check; answer the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        write()
        front_page.write_picture()
        engines_picture.write()
        return 0
    outdated = stale()
    if not front_page.picture_is_current():
        outdated.append(front_page.PICTURE)
    if not engines_picture.is_current():
        outdated.append(engines_picture.PICTURE)
    for page in outdated:
        print(
            f"{page.relative_to(ROOT)} is stale: run `python -m benchmarks.pages`", file=sys.stderr
        )
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
