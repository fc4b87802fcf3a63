"""Sphinx's configuration of the site.

Why Sphinx with MyST-NB, and not Jupyter Book 2: it makes the reference from docstrings, has search
and reads notebooks, all in Python, from the lock that the course has anyway. Jupyter Book 2 needs
Node, and leaves the reference to a tool of its own. Why the theme of the PyData projects: it is
made for phones, keyboards and screen readers, and tested for them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx import addnodes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.builder.docstrings import to_rest  # noqa: E402
from docs.builder.sources import DOWNLOADS  # noqa: E402

project = "vramlab"
author = "The vramlab authors"
project_copyright = f"{author}. Text: CC BY 4.0, code: MIT"
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = [DOWNLOADS]

# ---- Pages and lessons ----

myst_heading_anchors = 3
nb_execution_mode = "off"  # builder/lessons.py has run them
nb_merge_streams = True

# ---- Reference ----

autodoc_mock_imports = ["lightning"]  # vramlab has a callback for it, and does not need it
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch's are torch's
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields have a description of their own
toc_object_entries_show_parents = "hide"


def _docstring_to_rest(
    _app: Any, what: str, _name: str, described: Any, _options: Any, lines: list[str]
) -> None:
    # A module's docstring is not indented in its file. Autodoc would take an example's margin for
    # the docstring's if nothing else follows the first line.
    text = described.__doc__ or "" if what == "module" else "\n".join(lines)
    # What is indented is code without being announced by two colons; with them, it is announced
    # twice, and reST takes the second time for the code.
    text = re.sub("::$", ":", text, flags=re.MULTILINE)
    lines[:] = [*to_rest(text).splitlines(), ""]


def _link_exact_names_only(_app: Any, page: Any) -> None:
    """Link no name to another module's name that happens to be the same."""
    for reference in page.findall(addnodes.pending_xref):
        reference.attributes.pop("refspecific", None)


def setup(app: Any) -> None:
    """Read docstrings as the plain text that they are, before napoleon reads their sections."""
    # What these two files say of docstrings is in all pages of the reference.
    rules = [Path(__file__), ROOT / "docs" / "builder" / "docstrings.py"]
    app.add_config_value("rules", [path.read_text() for path in rules], "env")
    app.connect("autodoc-process-docstring", _docstring_to_rest, priority=400)
    app.connect("doctree-read", _link_exact_names_only)


# ---- Looks ----

html_theme = "pydata_sphinx_theme"
html_title = "vramlab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "vramlab"},
    "header_links_before_dropdown": 4,
    "navigation_with_keys": False,
    "back_to_top_button": False,  # it covers what is read, on a phone most of all
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
