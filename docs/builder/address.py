"""Where the course is published: the one place that says so.

README.md's badges are made of it, and the cell that installs the course in Colab. After a change:

    python -m docs.builder.colab       the notebooks' cells
    make notebooks                     exercises from solutions
    python -m benchmarks.pages         README.md's badges

CITATION.cff then wants it as `repository-code`, and pyproject.toml among `project.urls` as
`Repository`; a test compares them.
"""

from __future__ import annotations

REPOSITORY: str | None = None
"""The repository on GitHub, such as https://github.com/someone/vramlab, without a slash behind;
None until there is one."""

START = "start.ipynb"
FIRST_LESSON = "lessons/01_cuda_context.ipynb"


def requirements(repository: str | None = REPOSITORY) -> list[str]:
    """List the requirements that give pip what the notebooks need.

    From the repository, so that packages and notebook are of one version; from the package index
    where no repository is known.
    """
    if repository is None:
        return ["vramlab-course"]
    source = f"git+{repository}"
    names = ("vramlab-classroom", "vramlab-course")
    inner = [f"{name} @ {source}#subdirectory=packages/{name}" for name in names]
    return [f"vramlab @ {source}", *inner]


def badges(repository: str | None = REPOSITORY) -> str:
    """Write badges that open the first lesson in Colab and the course on Binder, in Markdown.

    Without an address they would lead nowhere: then a comment says where to set it.
    """
    if repository is None:
        return "<!-- Badges for Colab and Binder: set REPOSITORY in docs/builder/address.py. -->"
    name = repository.removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{name}/blob/main/{FIRST_LESSON}"
    binder = f"https://mybinder.org/v2/gh/{name}/main?urlpath=lab/tree/{START}"
    return (
        "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"({colab})\n[![Open on Binder](https://mybinder.org/badge_logo.svg)]({binder})"
    )
