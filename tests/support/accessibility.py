"""What axe finds in a page: violations of the WCAG and of good practice that a program can see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).resolve().parents[2] / "build/browser/node_modules/axe-core/axe.min.js"
"""Where `make browser` puts it."""

_RUN = """async selectors => {
    const context = selectors.length ? {include: selectors.map(one => [one])} : document;
    const result = await axe.run(context, {resultTypes: ['violations']});
    return result.violations.flatMap(violation => violation.nodes.map(node =>
        `${violation.id} (${violation.impact}): ${violation.help}: ${node.html.slice(0, 300)}`));
}"""


def violations(page: Page, axe: str, within: Sequence[str] = ()) -> list[str]:
    """Everything that axe objects to, one line each.

    Args:
        page: where to look.
        axe: the script.
        within: CSS selectors of the parts to look at; without any, the whole page.
    """
    page.evaluate(axe)
    found: list[str] = page.evaluate(_RUN, list(within))
    return found
