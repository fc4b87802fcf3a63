"""`vramlab lab`: copy the course to a folder, and open JupyterLab there.

$ vramlab lab
$ vramlab lab ~/gpu-memory
$ vramlab lab --language zh
$ vramlab lab --no-open
$ vramlab lab --teach
$ vramlab lab my-course -- --no-browser --port 9999
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from vramlab_course.translations.language import languages

_DEFAULT = "vramlab-course"
_FOR_LEARNERS = Path(__file__).with_name("for_learners")
"""A folder of Jupyter settings that disables what nbgrader has for teachers."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `lab` to the command line."""
    parser = subparsers.add_parser(
        "lab",
        help="copy lessons and exercises to a folder and open JupyterLab",
        description="Copy the lessons and exercises to a folder and open JupyterLab there. If the "
        "folder exists, update it. Notebooks you have changed are kept; their new versions are "
        "saved next to them.",
        examples=(
            "vramlab lab",
            "vramlab lab --language zh my-course",
            "vramlab lab my-course --teach -- --no-browser --port 9999",
        ),
        passes_on="jupyter",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(_DEFAULT),
        help="target folder, created if missing (default: %(default)s)",
    )
    parser.add_argument(
        "--language",
        choices=languages(),
        help="language of lessons and exercises (default: that of the folder, or en); notebooks "
        "without a translation are in English",
    )
    parser.add_argument("--no-open", action="store_true", help="do not open JupyterLab")
    parser.add_argument(
        "--teach",
        action="store_true",
        help="show nbgrader's menu for teachers (default: hidden)",
    )
    parser.add_argument(
        "jupyter", nargs="*", metavar="...", help="options for JupyterLab, after a --"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Copy the course and open it; return JupyterLab's exit status.

    Raises:
        UnusableFolder: the folder cannot be used.
        ModuleNotFoundError: JupyterLab is not installed; the command line names the extra.
    """
    from vramlab_course.notebooks import FIRST, deliver, installed_notebooks

    if not arguments.no_open:
        import jupyterlab  # noqa: F401  # before anything is written
    delivery = deliver(installed_notebooks(), arguments.folder, arguments.language)
    for line in delivery.lines():
        print(line)
    print(f"The course is in {arguments.folder.resolve()}", flush=True)
    if arguments.no_open:
        return 0
    # Not `jupyter lab FILE`: that would show the folder of the file only.
    page = f"--LabApp.default_url=/lab/tree/{FIRST}"
    environment = dict(os.environ) if arguments.teach else _without_teachers_tools()
    return subprocess.call(
        [sys.executable, "-m", "jupyterlab", page, *arguments.jupyter],
        cwd=arguments.folder,
        env=environment,
    )


def _without_teachers_tools() -> dict[str, str]:
    """Return an environment in which JupyterLab finds the settings for learners first."""
    paths = [str(_FOR_LEARNERS), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(paths)}
