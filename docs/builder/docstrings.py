"""Makes reST of docstrings, which are plain text with `code` in backticks.

    Docstrings are written to be read in an editor.

What looks like code is code: words in backticks, and blocks that are indented as this module's
second paragraph is. Characters that reST would take for markup are only characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CODE = re.compile(r"(?P<ticks>`+)(?P<code>[^`]+)(?P=ticks)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*\n]*[^\s*])\1(?![\w*])")
_LIST_AFTER_TEXT = re.compile(r"^( *)(?![-*] |\d+\. )(\S.*)\n(?=\1(?:[-*] |\d+\. ))", re.MULTILINE)
_MARKUP = re.compile(r"\\|(?<=\w)_(?!\w)|[|`]|(?<!^)\*|^\*(?! )", re.MULTILINE)


def to_rest(text: str) -> str:
    """A docstring, dedented already, as reST.

    A name in backticks becomes a link if the reference has a page on it.
    """
    return "\n\n".join(_blocks(text))


def first_sentence(docstring: str) -> str:
    """The first paragraph up to its first full stop or colon, as reST on one line."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return _inline(re.split(r"(?<=[.:])\s", paragraph)[0].rstrip(".:"))


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs as reST; an indented one after plain text is code."""
    text = _LIST_AFTER_TEXT.sub(r"\1\2\n\n", text)
    outer: int | None = None  # what the last plain paragraph is indented by
    for block in re.split(r"\n[ \t]*\n+", text.strip("\n")):
        indent = _indent(block)
        if outer is not None and indent >= outer + 4:
            yield f"{' ' * outer}::\n\n{block}"
            continue
        last = block.rpartition("\n")[2]
        opens_list = re.match(r"\s*([-*]|\d+\.)\s", block) is not None
        # What follows a list or a section such as "Args:" may be indented without being code.
        outer = None if opens_list or _indent(last) > indent else indent
        yield _inline(block)


def _indent(block: str) -> int:
    return len(block) - len(block.lstrip(" "))


def _inline(text: str) -> str:
    """Markup within paragraphs: code, emphasis, and nothing else."""
    parts, end = [], 0
    for match in _CODE.finditer(text):
        parts += [_plain(text[end : match.start()]), _code(match["code"])]
        end = match.end()
    parts.append(_plain(text[end:]))
    # reST wants a word's end around markup; "\ " is one that is not seen.
    return "".join(parts)


def _code(code: str) -> str:
    role = ":py:obj:`{}`" if _NAME.fullmatch(code) else "``{}``"
    return f"\\ {role.format(code.strip())}\\ "


def _plain(text: str) -> str:
    parts, end = [], 0
    for match in _EMPHASIS.finditer(text):
        parts += [_escaped(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", text)
