"""The command that builds the site: `python -m docs.builder`; `--help` says what it takes."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from docs.builder import browser, folds, lessons, other_languages, pages, pictures, sources

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Build the site; the exit status is 1 if anything is wrong with it."""
    parser = argparse.ArgumentParser(prog="python -m docs.builder", description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "site",
        help="where to build; html/ in it is the site (default: build/site)",
    )
    parser.add_argument(
        "--without-outputs",
        action="store_true",
        help="show lessons as they are, without running them: quick, to look at the prose",
    )
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    all_lessons = sorted((ROOT / "lessons").glob("*.ipynb"))
    if arguments.without_outputs:
        runs = {path: path for path in all_lessons}
    else:
        try:
            runs = lessons.run_all(all_lessons, folder / "runs", ROOT)
        except ExceptionGroup as failures:
            print(*failures.exceptions, sep="\n\n", file=sys.stderr)
            return 1
    status = build(runs, folder)
    if status == 0:
        print(f"The site is in {folder / 'html'}: open index.html there.")
    return status


def build(runs: Mapping[Path, Path], folder: Path, modules: Collection[str] = ()) -> int:
    """Build the site of these lessons, and look it over.

    Args:
        runs: for each lesson the notebook that shows it.
        folder: gets `html/`, the site, and what makes the next build quick.
        modules: what the reference describes; without any, everything.

    Returns:
        0, or 1 if Sphinx warned or a page has a fault; what is wrong is on stderr.
    """
    html = folder / "html"
    sources.put(sources.collect(ROOT, runs, modules), folder / "sources")
    sphinx = [sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", str(ROOT / "docs")]
    sphinx += ["--doctree-dir", str(folder / "doctrees"), "--jobs", "auto"]
    sphinx += ["--fail-on-warning", str(folder / "sources"), str(html)]
    if subprocess.run(sphinx, cwd=ROOT).returncode != 0:
        # Pages that were warned about would be taken for finished ones the next time.
        shutil.rmtree(folder / "doctrees", ignore_errors=True)
        return 1
    pictures.move_out(html)
    other_languages.say_which(html)
    folds.name_switches(html)
    if not browser.put(ROOT, html):
        print("docs/explain.html has no Python to run: `make site` fetches it", file=sys.stderr)
    faults = pages.faults(html)
    print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
