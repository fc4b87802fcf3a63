"""Reads the finished pages and says what is wrong with them.

- every link to a page of the site leads to a page that is there, and to a place that is on it;
- every picture is there and says in words what it shows;
- every page has a title, a language and one main part; its headings start at 1 and skip no level.

Links to other sites are not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

WORDLESS = frozenset({"search.html", "genindex.html", "py-modindex.html"})
"""Pages that Sphinx makes: their links are checked, their headings are its own."""

_SOURCES = {"a": "href", "link": "href", "img": "src", "script": "src"}


@dataclass
class Page(HTMLParser):
    """What a page of HTML has, read by `feed`."""

    language: str = ""
    """The `lang` of its root element."""
    title: str = ""
    """The text of its title."""
    mains: int = 0
    """How many main parts it has."""
    headings: list[int] = field(default_factory=list)
    """The levels of its headings, in order."""
    places: set[str] = field(default_factory=set)
    """What links can lead to: the ids of its elements."""
    targets: list[str] = field(default_factory=list)
    """What its links, pictures, styles and scripts name."""
    wordless_pictures: list[str] = field(default_factory=list)
    """The sources of pictures without alternative text."""

    def __post_init__(self) -> None:
        super().__init__()
        self._in_title = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what an element says."""
        values = {name: value or "" for name, value in attributes}
        if "id" in values:
            self.places.add(values["id"])
        if target := values.get(_SOURCES.get(tag, "")):
            self.targets.append(target)
        if tag == "html":
            self.language = values.get("lang", "")
        elif tag == "main":
            self.mains += 1
        elif tag in {"h1", "h2", "h3", "h4", "h5", "h6"}:
            self.headings.append(int(tag[1]))
        elif tag == "img" and not values.get("alt", "").strip():
            self.wordless_pictures.append(values.get("src", "")[:80])
        # An <svg> in the body may have a title, too.
        self._in_title = tag == "title" and not self.title

    def handle_endtag(self, tag: str) -> None:
        """Note that the title is over."""
        if tag == "title":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        """Note the title's text."""
        if self._in_title:
            self.title += data.strip()


def faults(site: Path) -> list[str]:
    """What is wrong with the pages of a site: one line each, with the page."""
    pages = {
        path.relative_to(site).as_posix(): _read(path) for path in sorted(site.rglob("*.html"))
    }
    pages = {name: page for name, page in pages.items() if not name.startswith("_static/")}
    return [
        f"{name}: {fault}"
        for name, page in pages.items()
        for fault in (
            *_faults_of_links(name, page, pages, site),
            *(() if name in WORDLESS else _faults_of_words(page)),
        )
    ]


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _faults_of_words(page: Page) -> Iterator[str]:
    if not page.title:
        yield "has no title"
    if not page.language:
        yield "does not say its language"
    if page.mains != 1:
        yield f"has {page.mains} main parts"
    if page.headings[:1] != [1]:
        yield f"starts with heading {page.headings[:1]}, not 1"
    for before, after in zip(page.headings, page.headings[1:], strict=False):
        if after > before + 1:
            yield f"heading {after} follows heading {before}"
    for source in page.wordless_pictures:
        yield f"picture {source} has no words (alt)"


def _faults_of_links(name: str, page: Page, pages: Mapping[str, Page], site: Path) -> Iterator[str]:
    for target in sorted(set(page.targets)):
        link = urlsplit(target)
        if link.scheme or link.netloc:
            continue
        path = (site / name).parent / unquote(link.path) if link.path else site / name
        path = path.resolve()
        if not path.is_relative_to(site.resolve()) or not path.is_file():
            yield f"{target} is not there"
            continue
        there = pages.get(path.relative_to(site.resolve()).as_posix())
        place = unquote(link.fragment)
        if there and place and place not in there.places:
            yield f"{target} is there, but has no #{place}"
