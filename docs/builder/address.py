"""Where the course is published: the one place that says so.

README.md's badges are made of it, and the cell that installs the course in Colab. After a change:

    python -m docs.builder.colab       the notebooks' cells
    make notebooks                     exercises from solutions
    python -m benchmarks.pages         README.md's badges

CITATION.cff then wants it as `repository-code`; a test compares them.
"""

from __future__ import annotations

NOT_PUBLISHED = "https://github.com/OWNER_NOT_SET/vramlab"
"""Stands for the address until there is one. No account on GitHub can have an underscore in its
name, so it leads to no stranger's repository."""

REPOSITORY = NOT_PUBLISHED
"""The repository on GitHub, such as https://github.com/someone/vramlab, without a slash behind."""

FIRST_LESSON = "lessons/01_cuda_context.ipynb"


def badges(repository: str = REPOSITORY) -> str:
    """Badges that open the first lesson in Colab and the course on Binder, in Markdown.

    Without an address they would lead nowhere: then a comment says where to set it.
    """
    if repository == NOT_PUBLISHED:
        return "<!-- Badges for Colab and Binder: set REPOSITORY in docs/builder/address.py. -->"
    name = repository.removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{name}/blob/main/{FIRST_LESSON}"
    binder = f"https://mybinder.org/v2/gh/{name}/main?urlpath=lab/tree/{FIRST_LESSON}"
    return (
        "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"({colab})\n[![Open on Binder](https://mybinder.org/badge_logo.svg)]({binder})"
    )
